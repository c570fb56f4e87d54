/** A partition of a change stream and how far it has been read. */
import type { CommitTimestamp } from './commit-timestamp.ts'

/**
 * CREATED: announced, waits for its parents. SCHEDULED: all parents are finished, waits for a free place.
 * RUNNING: is read. FINISHED: read to its end, and everything that it delivered is settled.
 */
export type PartitionState = 'CREATED' | 'SCHEDULED' | 'RUNNING' | 'FINISHED'

export interface Partition {
  readonly token: string
  /** Empty for the root only. */
  readonly parentTokens: readonly string[]
  readonly start: CommitTimestamp
  readonly state: PartitionState
  /** The user's end at which it was finished; null if it is not finished or ended by itself. */
  readonly endedAt: CommitTimestamp | null
  /** Everything before this time is settled; `start` at first. */
  readonly watermark: CommitTimestamp
  /** What is settled at exactly the watermark. */
  readonly boundaryIds: readonly string[]
  /** Who reads it; null if nobody does. */
  readonly owner: string | null
  /** Counts the owners: a write that carries an older epoch changes nothing. */
  readonly epoch: number
  /** Until when the owner holds it, in the store's milliseconds. */
  readonly leaseUntilMs: number
}

/** Stands for the first query, which has no token and returns the partitions to begin with. */
export const ROOT_TOKEN = 'root'

/** Whether a row was finished at a user's end that lies before the one of now. */
export function isReopened({ state, endedAt }: Partition, end: CommitTimestamp | null): boolean {
  return state === 'FINISHED' && endedAt !== null && (end === null || endedAt < end)
}
