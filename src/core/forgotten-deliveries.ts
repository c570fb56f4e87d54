/** A forgotten ack must never be a silent stall: what stays open for too long is named. */
import type { Clock } from './clock.ts'
import { StreamError } from './errors.ts'
import type { InFlightTracker } from './in-flight-tracker.ts'
import type { Logger } from './types.ts'

export interface SettleTimeout {
  /** 0 turns the check off. */
  readonly settleTimeoutMs: number
  readonly onSettleTimeout: 'warn' | 'retry' | 'stop'
  readonly clock: Clock
  readonly logger: Logger
}

/**
 * Looks at the oldest open delivery of a tracker, reports it once, and returns its id if it reported it now.
 * With `'stop'` it throws instead.
 */
export function reportForgotten(
  tracker: InFlightTracker,
  partition: string,
  reportedId: string | undefined,
  { settleTimeoutMs, onSettleTimeout, clock, logger }: SettleTimeout,
): string | undefined {
  const oldest = tracker.oldestOpen
  if (settleTimeoutMs === 0 || oldest === undefined || oldest.id === reportedId) return undefined
  const openMs = Math.round(clock.now() - oldest.sinceMs)
  if (openMs < settleTimeoutMs) return undefined
  const place = partition === '' ? '' : ` of partition ${partition}`
  const message = `change ${oldest.id}${place} has not been settled for ${openMs} ms`
  if (onSettleTimeout === 'stop') {
    throw new StreamError('SETTLE_TIMEOUT', message, {
      hint: 'Something takes deliveries and never settles them, or works longer than settleTimeoutMs.',
    })
  }
  logger.warn(message, { partition, id: oldest.id, openMs })
  return oldest.id
}
