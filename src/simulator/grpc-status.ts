/** The error by which a query of the simulator ends. */
import { GRPC_CODES, type GrpcCode } from '../model/grpc-code.ts'

/** How a query ends that does not end well; `code` is the number, as in the errors of a gRPC client. */
export class QueryStatusError extends Error {
  readonly status: GrpcCode
  readonly code: number
  readonly details: string

  constructor(status: GrpcCode, details: string) {
    super(`${GRPC_CODES[status]} ${status}: ${details}`)
    this.name = 'QueryStatusError'
    this.status = status
    this.code = GRPC_CODES[status]
    this.details = details
  }
}
