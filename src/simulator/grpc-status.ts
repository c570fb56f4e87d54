/** The gRPC status codes, and the error by which a query of the simulator ends. */

export const GRPC_CODES = {
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const

export type GrpcCode = keyof typeof GRPC_CODES

/** The codes after which the same query may succeed. */
export const RETRYABLE_CODES: readonly GrpcCode[] = [
  'CANCELLED',
  'UNKNOWN',
  'DEADLINE_EXCEEDED',
  'RESOURCE_EXHAUSTED',
  'ABORTED',
  'INTERNAL',
  'UNAVAILABLE',
]

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
