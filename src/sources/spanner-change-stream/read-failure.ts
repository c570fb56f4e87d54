/** What a failed query means for its partition: the one table of every gRPC status and what is done about it. */
import { ConfigError, EnvironmentError, HistoryExpiredError, SourceError, StreamError } from '../../core/errors.ts'
import { type CommitTimestamp, timestampFromMs } from '../../model/commit-timestamp.ts'
import type { GrpcCode } from '../../model/grpc-code.ts'
import { ROOT_TOKEN } from '../../model/partition.ts'

export type ReadVerdict =
  /** The same query may succeed: try it again in place, after a wait of at least this. */
  | { readonly kind: 'retry'; readonly minDelayMs: number }
  /** The query asked behind the end of the partition, whose children are known. */
  | { readonly kind: 'ended'; readonly at: CommitTimestamp }
  /** The stream no longer keeps what comes before `to`. */
  | { readonly kind: 'expired'; readonly error: HistoryExpiredError }
  | { readonly kind: 'stop'; readonly error: unknown }

/** What is known about the query and its stream when it fails. */
export interface FailedQuery {
  readonly token: string
  /** Where the query began. */
  readonly start: CommitTimestamp
  /** When the announced children of the partition start; undefined if none is known. */
  readonly childrenStart: CommitTimestamp | undefined
  /** Whether it began where a gap ends that has just been found. */
  readonly isBehindGap: boolean
  /** Failures in a row with this status, this one included. */
  readonly failures: number
  readonly nowMs: number
  readonly retentionMs: number
}

type Rule = 'retry' | 'retry-slowly' | 'retry-a-few-times' | 'by-times' | ((error: SourceError) => StreamError)

const RULES: Readonly<Record<GrpcCode, Rule>> = {
  // The connection, the server or the moment: gone at the next try.
  UNAVAILABLE: 'retry',
  DEADLINE_EXCEEDED: 'retry',
  INTERNAL: 'retry',
  ABORTED: 'retry',
  CANCELLED: 'retry',
  UNKNOWN: 'retry',
  RESOURCE_EXHAUSTED: 'retry-slowly',
  // A credential may run out while it is being renewed.
  UNAUTHENTICATED: 'retry-a-few-times',
  OUT_OF_RANGE: 'by-times',
  PERMISSION_DENIED: (cause) => denied(cause),
  NOT_FOUND: (cause) =>
    new ConfigError('spannerChangeStream: the database or the change stream is gone while it was read', {
      cause,
      hint: 'Was it dropped or renamed? Check the options database and stream with `millrace preflight`.',
    }),
  INVALID_ARGUMENT: (cause) =>
    // A window that ends too far ahead is refused in the same way.
    stopped(
      cause,
      "Is this machine's clock right? Was the change stream dropped, or made anew under this name? Then begin anew with another name.",
    ),
  FAILED_PRECONDITION: (cause) => stopped(cause, 'Is the database restored and ready? Check it, then start again.'),
  UNIMPLEMENTED: (cause) => stopped(cause, 'Is this Spanner, or an emulator that knows change streams?'),
  ALREADY_EXISTS: (cause) => stopped(cause, undefined),
  DATA_LOSS: (cause) => stopped(cause, 'Spanner says that data is lost. Ask its support before you go on.'),
}

/** Never by message: by the status, and for OUT_OF_RANGE by comparing times. */
export function judgeFailure(error: unknown, query: FailedQuery): ReadVerdict {
  const status = error instanceof SourceError ? error.status : undefined
  const rule = status === undefined ? undefined : RULES[status as GrpcCode]
  if (rule === undefined || !(error instanceof SourceError)) {
    // Only what says of itself that a retry can help: anything else may be a mistake of ours, and would repeat for ever.
    return error instanceof StreamError && error.retryable ? RETRY : { kind: 'stop', error }
  }
  if (rule === 'retry') return RETRY
  if (rule === 'retry-slowly') return { kind: 'retry', minDelayMs: SLOW_RETRY_MS }
  if (rule === 'retry-a-few-times') {
    return query.failures <= MAX_SIGN_INS
      ? { kind: 'retry', minDelayMs: SLOW_RETRY_MS }
      : { kind: 'stop', error: denied(error) }
  }
  if (rule === 'by-times') return judgeOutOfRange(error, query)
  // A partition that is older than the retention may be forgotten altogether, token and all.
  if (status === 'INVALID_ARGUMENT' && isForgotten(query)) return judgeOutOfRange(error, query)
  return { kind: 'stop', error: rule(error) }
}

/** Whether what the failure means depends on how long the stream keeps its history. */
export function isJudgedByTimes(error: unknown): boolean {
  return error instanceof SourceError && (error.status === 'OUT_OF_RANGE' || error.status === 'INVALID_ARGUMENT')
}

function judgeOutOfRange(cause: SourceError, query: FailedQuery): ReadVerdict {
  const { token, start, childrenStart, nowMs, retentionMs } = query
  // Whoever stands at the start of its children has seen them all. Not so the root, which begins there.
  if (token !== ROOT_TOKEN && childrenStart !== undefined && start >= childrenStart) {
    return { kind: 'ended', at: childrenStart }
  }
  const to = firstReadable(nowMs, retentionMs)
  if (start < to && !isNewBorder(query)) return { kind: 'expired', error: expired(cause, token, start, to) }
  if (start > timestampFromMs(nowMs + CLOCK_SLACK_MS)) {
    const error = new ConfigError(`spannerChangeStream: start lies in the future, got ${start}`, {
      cause,
      hint: `Is the clock of this machine right? Else leave start out to begin now, ${START_IS_STORED}.`,
    })
    return { kind: 'stop', error }
  }
  // A start of about now lies ahead for a server whose clock is behind ours; in a moment it does not. Not for long: a
  // start from before the stream was made fails in the same way, and whoever gave it is to hear of it soon.
  if (token === ROOT_TOKEN && start > timestampFromMs(nowMs - MAX_WAIT_FOR_NOW_MS)) {
    return { kind: 'retry', minDelayMs: SLOW_RETRY_MS }
  }
  if (token === ROOT_TOKEN) {
    const error = new ConfigError(`spannerChangeStream: the stream does not reach back to ${start}`, {
      cause,
      hint: `It was made later than that: give a start after its creation, or leave start out to begin now, ${START_IS_STORED}. Or this machine's clock is far ahead: then set it.`,
    })
    return { kind: 'stop', error }
  }
  return {
    kind: 'stop',
    error: stopped(cause, `The stream no longer knows this partition at ${start}: was it dropped and made anew?`),
  }
}

function isForgotten({ start, nowMs, retentionMs }: FailedQuery): boolean {
  return start < timestampFromMs(nowMs - retentionMs)
}

/** If nothing can be read where the history began a moment ago, then the retention is not why: no gap leads past it. */
function isNewBorder({ isBehindGap, start, nowMs, retentionMs }: FailedQuery): boolean {
  return isBehindGap && start > timestampFromMs(nowMs - retentionMs + slackMs(retentionMs) / 2)
}

/** A little later than the retention says: clocks differ, and what is readable now must still be so in a moment. */
export function firstReadable(nowMs: number, retentionMs: number): CommitTimestamp {
  return timestampFromMs(nowMs - retentionMs + slackMs(retentionMs))
}

function slackMs(retentionMs: number): number {
  return Math.min(CLOCK_SLACK_MS, retentionMs / 20)
}

function expired(
  cause: SourceError,
  partition: string,
  from: CommitTimestamp,
  to: CommitTimestamp,
): HistoryExpiredError {
  return new HistoryExpiredError(
    `spannerChangeStream: the stream no longer keeps the changes from ${from} to ${to}, which were not read yet`,
    {
      cause,
      partition,
      gap: { from, to },
      hint: "They are lost to this pipeline. Set onGap: 'skip' to go on behind the gap, or begin anew with another name after a fresh copy of the data.",
    },
  )
}

function denied(cause: SourceError): EnvironmentError {
  return new EnvironmentError(`spannerChangeStream: reading was denied (${cause.status})`, {
    cause,
    hint: 'Give the account roles/spanner.databaseReader; with databaseRole: GRANT SELECT ON CHANGE STREAM and EXECUTE ON its read function to that role.',
  })
}

function stopped(cause: SourceError, hint: string | undefined): SourceError {
  return new SourceError(cause.message, {
    cause: cause.cause ?? cause,
    status: cause.status,
    ...(cause.partition !== undefined && { partition: cause.partition }),
    ...(hint !== undefined && { hint }),
  })
}

const START_IS_STORED = 'under another name, since the progress of this one begins there'
const RETRY: ReadVerdict = { kind: 'retry', minDelayMs: 0 }
const SLOW_RETRY_MS = 1_000
const MAX_SIGN_INS = 5
const CLOCK_SLACK_MS = 60_000
const MAX_WAIT_FOR_NOW_MS = 10_000
