/** What a failure of Spanner means for the store: whether a retry can help, and what a person should do if not. */
import { ConfigError, describeThrown, EnvironmentError, StoreError, StreamError } from '../core/errors.ts'
import { type GrpcCode, grpcCodeOf, PASSING_CODES } from '../model/grpc-code.ts'

export const OWNER = 'spannerPartitionStore'

interface Place {
  readonly database: string
  readonly emulatorHost: string | undefined
}

const PASSING: ReadonlySet<GrpcCode> = new Set(PASSING_CODES)

export function grpcCode(error: unknown): GrpcCode | undefined {
  const code = (error as { code?: unknown } | null)?.code
  return typeof code === 'number' ? grpcCodeOf(code) : undefined
}

/** No session could be made: the database is not there, or not for us, or does not answer. */
export function sessionFailure(error: unknown, { database, emulatorHost }: Place): StreamError {
  if (error instanceof StreamError) return error
  const code = grpcCode(error)
  if (code === 'NOT_FOUND') {
    return new ConfigError(`${OWNER}: database '${database}' was not found`, {
      cause: error,
      hint: 'Check the option database, and create the database first: the store makes its table, not its database.',
    })
  }
  if (code === 'PERMISSION_DENIED' || code === 'UNAUTHENTICATED') return denied(error, code, database)
  if (code === undefined && !isTimeout(error)) {
    return new EnvironmentError(`${OWNER}: no connection to '${database}' could be made (${describeThrown(error)})`, {
      cause: error,
      retryable: !isMistake(error),
      hint: 'Are there credentials? Try `gcloud auth application-default login`, or set the option emulatorHost.',
    })
  }
  const endpoint = emulatorHost ?? 'spanner.googleapis.com'
  return new StoreError(`${OWNER}: Spanner at ${endpoint} does not answer for '${database}' (${code ?? 'timeout'})`, {
    cause: error,
    retryable: code === undefined || PASSING.has(code),
    hint: 'Is the network up and the address right? With an emulator: is it running, and is emulatorHost its address?',
  })
}

/** A read or a write failed in a session that works. */
export function callFailure(
  error: unknown,
  doing: 'open' | 'read' | 'write',
  table: string,
  database: string,
): StreamError {
  if (error instanceof StreamError) return error
  const code = grpcCode(error)
  if (code === 'PERMISSION_DENIED') return denied(error, code, database)
  const what = `${OWNER}: cannot ${doing} table ${table} of '${database}' (${code ?? (isTimeout(error) ? 'timeout' : describeThrown(error))})`
  if (code === 'NOT_FOUND') {
    return new StoreError(what, {
      cause: error,
      hint: 'The table or the database is gone. If that was meant, start again: the table is made when the store is opened.',
    })
  }
  // Credentials may be renewed while a run goes on.
  const retryable = code === undefined ? !isMistake(error) : PASSING.has(code) || code === 'UNAUTHENTICATED'
  return new StoreError(what, {
    cause: error,
    retryable,
    hint: retryable
      ? 'Spanner did not take it this time. Nothing is lost: what is not stored comes again.'
      : `Is ${table} the table that this store made? Give another name in the option table.`,
  })
}

function denied(error: unknown, code: GrpcCode, database: string): EnvironmentError {
  return new EnvironmentError(`${OWNER}: access to '${database}' was denied (${code})`, {
    cause: error,
    // As above: after a failure the session is made anew, so this is what the next try meets.
    retryable: code === 'UNAUTHENTICATED',
    hint: 'Sign in with `gcloud auth application-default login`, or give the service account roles/spanner.databaseUser.',
  })
}

export function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.name === 'TimeoutError'
}

/** Errors without a code may come from the network or from credentials; these come from code, and would repeat for ever. */
function isMistake(error: unknown): boolean {
  return error instanceof TypeError || error instanceof RangeError || error instanceof ReferenceError
}
