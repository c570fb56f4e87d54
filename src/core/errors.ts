/** Every failure of Millrace is a StreamError: a stable code, whether a retry can help, and the original cause. */

export interface StreamErrorOptions {
  readonly cause?: unknown
  readonly retryable?: boolean
  /** What the reader of the message should do now; printed on a line of its own. */
  readonly hint?: string
}

/** The base of all errors of this package. Retry decisions read `retryable`, never a message. */
export class StreamError extends Error {
  readonly code: string
  readonly retryable: boolean
  readonly hint: string | undefined

  constructor(code: string, message: string, { cause, retryable = false, hint }: StreamErrorOptions = {}) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = new.target.name
    this.code = code
    this.retryable = retryable
    this.hint = hint
  }
}

/** Wrong use or configuration, found before anything runs. */
export class ConfigError extends StreamError {
  constructor(message: string, options: StreamErrorOptions = {}) {
    super('CONFIG_INVALID', message, options)
  }
}

/** The machine or a service is not as needed: unreachable, denied, port taken. */
export class EnvironmentError extends StreamError {
  constructor(message: string, options: StreamErrorOptions = {}) {
    super('ENVIRONMENT', message, options)
  }
}

export interface SourceErrorOptions extends StreamErrorOptions {
  /** Token of the partition that was read. */
  readonly partition?: string
  /** `SOURCE_READ` by default; `SOURCE_HISTORY_EXPIRED` when the stream no longer keeps what is asked for, `SOURCE_MALFORMED` when a record is not of the documented form. */
  readonly code?: 'SOURCE_READ' | 'SOURCE_HISTORY_EXPIRED' | 'SOURCE_MALFORMED'
  /** The gRPC status with which the server ended the query, by name. */
  readonly status?: string | undefined
}

/** Reading failed. */
export class SourceError extends StreamError {
  readonly partition: string | undefined
  readonly status: string | undefined

  constructor(message: string, { partition, status, code = 'SOURCE_READ', ...options }: SourceErrorOptions = {}) {
    super(code, message, options)
    this.partition = partition
    this.status = status
  }
}

/** Commit times that can no longer be read: from the first change that may be missing to where reading can go on. */
export interface TimeGap {
  readonly from: string
  readonly to: string
}

/** The stream no longer keeps what was still to be read. */
export class HistoryExpiredError extends SourceError {
  readonly gap: TimeGap

  constructor(message: string, { gap, ...options }: Omit<SourceErrorOptions, 'code'> & { readonly gap: TimeGap }) {
    super(message, { ...options, code: 'SOURCE_HISTORY_EXPIRED' })
    this.gap = gap
  }
}

/** A callback threw, or a value is not of the documented form; `cause` is what was thrown. */
export class OperatorError extends StreamError {
  readonly operator: string

  constructor(operator: string, cause: unknown) {
    // Errors about malformed records are ours: they name table and column, and never hold a value.
    const malformed = cause instanceof SourceError && cause.code === 'SOURCE_MALFORMED' ? cause : undefined
    const message = malformed?.message ?? `the callback threw ${describeThrown(cause)}`
    super('OPERATOR_FAILED', `${operator}: ${message}`, { cause, ...(malformed?.hint && { hint: malformed.hint }) })
    this.operator = operator
  }
}

export interface SinkErrorOptions extends StreamErrorOptions {
  /** Indexes into the written array of the items that failed; the others are durable. All, if left out. */
  readonly failedItems?: readonly number[]
}

/** Writing failed. */
export class SinkError extends StreamError {
  readonly failedItems: readonly number[] | undefined

  constructor(message: string, { failedItems, ...options }: SinkErrorOptions = {}) {
    super('SINK_WRITE', message, options)
    this.failedItems = failedItems
  }
}

export interface StoreErrorOptions extends StreamErrorOptions {
  /** `STORE_CONFLICT` when another owner holds what was to be changed. */
  readonly code?: 'STORE_CONFLICT' | 'STORE_FAILED'
}

/** Progress could not be read or saved. */
export class StoreError extends StreamError {
  constructor(message: string, { code = 'STORE_FAILED', ...options }: StoreErrorOptions = {}) {
    super(code, message, options)
  }
}

/** Use after close. */
export class ClosedError extends StreamError {
  constructor(message: string) {
    super('PIPELINE_CLOSED', message)
  }
}

/** Whether trying again can help. Errors of other origin count as passing troubles, so that nothing is given up early. */
export function isRetryable(error: unknown): boolean {
  return error instanceof StreamError ? error.retryable : true
}

/**
 * The class and code of something thrown, without its message: messages of foreign errors may hold row content,
 * which must not reach a log. The original is kept as `cause`.
 */
export function describeThrown(thrown: unknown): string {
  if (!(thrown instanceof Error)) return thrown === null ? 'null' : `a ${typeof thrown}`
  const code = (thrown as { code?: unknown }).code
  return typeof code === 'string' || typeof code === 'number' ? `${thrown.name} (${code})` : thrown.name
}
