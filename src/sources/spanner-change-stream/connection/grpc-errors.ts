/** What a gRPC status means for reading: whether a retry can help, and what a person should do if not. */
import { ConfigError, EnvironmentError, SourceError, type StreamError } from '../../../core/errors.ts'
import { type GrpcCode, grpcCodeOf, PASSING_CODES } from '../../../model/grpc-code.ts'

const PASSING: ReadonlySet<GrpcCode> = new Set(PASSING_CODES)

export function grpcCode(error: unknown): GrpcCode | undefined {
  const code = (error as { code?: unknown } | null)?.code
  return typeof code === 'number' ? grpcCodeOf(code) : undefined
}

/** The server's own words; Spanner's status texts name arguments, not row content. */
function detailsOf(error: unknown): string {
  const details = (error as { details?: unknown }).details
  return typeof details === 'string' && details !== '' ? `: ${details}` : ''
}

/** An error while a partition is read, as the server said it: what follows from it is in `read-failure.ts`. */
export function readError(error: unknown, partition: string): SourceError {
  const code = grpcCode(error)
  return new SourceError(`spannerChangeStream: reading failed with ${code ?? 'an unknown error'}${detailsOf(error)}`, {
    partition,
    status: code,
    cause: error,
    retryable: code === undefined ? !isMistake(error) : PASSING.has(code),
  })
}

/** Errors without a code may come from the network or from credentials; these come from code, and would repeat for ever. */
function isMistake(error: unknown): boolean {
  return error instanceof TypeError || error instanceof RangeError || error instanceof ReferenceError
}

/** An error before the first record: said in terms of the options. */
export function openError(error: unknown, database: string, endpoint: string): StreamError {
  const code = grpcCode(error)
  if (code === 'NOT_FOUND') {
    return new ConfigError(`spannerChangeStream: database '${database}' was not found${detailsOf(error)}`, {
      cause: error,
      hint: 'Check the option database: projects/<project>/instances/<instance>/databases/<database>.',
    })
  }
  if (code === 'PERMISSION_DENIED' || code === 'UNAUTHENTICATED') {
    return new EnvironmentError(`spannerChangeStream: access to '${database}' was denied (${code})`, {
      cause: error,
      hint: 'Sign in with `gcloud auth application-default login`, or give the service account roles/spanner.databaseReader.',
    })
  }
  if (code === undefined && !(error instanceof Error && 'code' in error)) {
    return new EnvironmentError(`spannerChangeStream: no connection to '${database}' could be made`, {
      cause: error,
      hint: 'Are there credentials? Try `gcloud auth application-default login`, or set SPANNER_EMULATOR_HOST.',
    })
  }
  if (code !== undefined && !PASSING.has(code)) {
    return new EnvironmentError(
      `spannerChangeStream: Spanner refused to read '${database}' with ${code}${detailsOf(error)}`,
      {
        cause: error,
        hint: 'Does this database have change streams, and is this Spanner (or an emulator of it)?',
      },
    )
  }
  return new EnvironmentError(
    `spannerChangeStream: Spanner at ${endpoint} cannot be reached for '${database}' (${code ?? 'no answer'})`,
    {
      cause: error,
      hint: 'Is the network up and the address right? With an emulator: is it running, and is SPANNER_EMULATOR_HOST its address?',
    },
  )
}
