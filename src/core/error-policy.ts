/** What happens when user code or a sink fails: try again in place, then stop the run or give up that one value. */
import { ConfigError, isRetryable, StreamError } from './errors.ts'
import { durationMs, positiveInteger } from './options.ts'
import type { Decision } from './types.ts'

export interface FailureContext {
  readonly value: unknown
  /** Token of the partition the value came from; empty for sources without partitions. */
  readonly partition: string
  /** 1 for the first failure of this value at this place. */
  readonly attempt: number
}

/** Consulted at every failure; must answer the same for the same error and attempt, but for the delay. */
export interface ErrorPolicy {
  decide(error: unknown, context: FailureContext): Decision
}

/** `onError` of a pipeline: a policy, or a function that answers for each failure. */
export type OnError = ErrorPolicy | ((error: unknown, context: FailureContext) => Decision)

export interface RetryOptions {
  /**
   * How often the work is tried in all.
   * @default 5
   */
  readonly attempts?: number
  /**
   * Wait before the second try; doubles with each further one.
   * @default 100
   */
  readonly minDelayMs?: number
  /** @default 30000 */
  readonly maxDelayMs?: number
}

/** Tries again with growing waits; `then...` says what follows the last try. Stopping is the default. */
export interface RetryPolicy extends ErrorPolicy {
  /** After the last try the run stops with the error; progress up to the failed value is kept. */
  thenStop(): ErrorPolicy
  /** After the last try the value is given up: counted and logged by id, never seen again. */
  thenSkip(): ErrorPolicy
}

/**
 * Tries failed work again in place, inside its key's lane, so that order holds.
 * Errors that say a retry cannot help (`retryable: false`) skip the waiting.
 * @example definePipeline({ ..., onError: retry({ attempts: 10 }).thenSkip() })
 */
export function retry(options: RetryOptions = {}): RetryPolicy {
  const { attempts = 5, minDelayMs = 100, maxDelayMs = 30_000 } = options
  positiveInteger('retry', 'attempts', attempts)
  durationMs('retry', 'minDelayMs', minDelayMs)
  durationMs('retry', 'maxDelayMs', maxDelayMs)

  const retryThen = (last: 'stop' | 'skip'): ErrorPolicy => ({
    decide(error, { attempt }) {
      if (attempt >= attempts || !isWorthRetrying(error)) return last
      return { retryInMs: backoffMs(attempt, minDelayMs, maxDelayMs) }
    },
  })
  return { ...retryThen('stop'), thenStop: () => retryThen('stop'), thenSkip: () => retryThen('skip') }
}

/** Stops the run at the first failure. */
export function stop(): ErrorPolicy {
  return { decide: () => 'stop' }
}

/** Gives up every value that fails. Dangerous: what is skipped does not reach the sink. */
export function skip(): ErrorPolicy {
  return { decide: () => 'skip' }
}

/** Accepts both forms of `onError`; the default is to retry, then stop, so that nothing is dropped unasked. */
export function errorPolicy(onError: OnError = retry()): ErrorPolicy {
  if (typeof onError === 'function') return { decide: (error, context) => checked(onError(error, context)) }
  if (typeof onError === 'object' && onError !== null && typeof onError.decide === 'function') return onError
  throw new ConfigError('onError must be a policy such as retry(), stop() or skip(), or a function')
}

/** Doubles from `minMs` up to `maxMs`; the random half keeps many failing workers from striking together. */
export function backoffMs(attempt: number, minMs: number, maxMs: number, random: () => number = Math.random): number {
  const full = Math.min(maxMs, minMs * 2 ** Math.min(attempt - 1, 30))
  return full / 2 + (full / 2) * random()
}

function isWorthRetrying(error: unknown): boolean {
  // A user's callback may fail for passing reasons of its own: what it threw decides, not our wrapper.
  if (error instanceof StreamError && error.code === 'OPERATOR_FAILED') return isRetryable(error.cause)
  return isRetryable(error)
}

function checked(decision: Decision): Decision {
  const isRetry = typeof decision === 'object' && decision !== null && Number.isFinite(decision.retryInMs)
  if (decision === 'stop' || decision === 'skip' || isRetry) return decision
  throw new ConfigError(`onError must answer 'stop', 'skip' or { retryInMs }, got ${String(decision)}`)
}
