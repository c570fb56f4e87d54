/** Which queries the server accepts, and with which status it refuses the others. */
import type { Clock } from '../core/clock.ts'
import type { PartitionMode, PartitionQuery } from '../model/change-stream.ts'
import { type CommitTimestamp, timestampToMs } from '../model/commit-timestamp.ts'
import { QueryStatusError } from './grpc-status.ts'
import type { TreeNode } from './partition-tree.ts'

/** What there is to be read. */
export interface KnownHistory {
  readonly mode: PartitionMode
  readonly clock: Clock
  readonly createdAt: CommitTimestamp
  /** What was committed before this time is no longer kept. */
  historyStart(): CommitTimestamp
  partition(token: string): TreeNode | undefined
}

/** Throws a QueryStatusError. The codes are those of Spanner's emulator; the texts are no contract. */
export function assertArguments({ token, start, end, heartbeatMs }: PartitionQuery, history: KnownHistory): void {
  const { clock, createdAt } = history
  if (end !== null && start > end) {
    throw new QueryStatusError('INVALID_ARGUMENT', `start_timestamp ${start} is after end_timestamp ${end}`)
  }
  if (!(heartbeatMs >= MIN_HEARTBEAT_MS && heartbeatMs <= MAX_HEARTBEAT_MS)) {
    const range = `from ${MIN_HEARTBEAT_MS} to ${MAX_HEARTBEAT_MS}`
    throw new QueryStatusError('OUT_OF_RANGE', `heartbeat_milliseconds must be ${range}, got ${heartbeatMs}`)
  }
  if (start < createdAt) {
    throw new QueryStatusError('OUT_OF_RANGE', `start_timestamp ${start} is before the stream's creation ${createdAt}`)
  }
  if (history.mode === 'mutable') assertWindow(start, end, clock.now())
  // Before the token: a partition that expired as a whole is no longer known.
  const oldest = history.historyStart()
  if (start < oldest) {
    throw new QueryStatusError('OUT_OF_RANGE', `start_timestamp ${start} is older than what is kept, from ${oldest} on`)
  }
  if (timestampToMs(start) > clock.now() + MAX_AHEAD_MS) {
    throw new QueryStatusError('OUT_OF_RANGE', `start_timestamp ${start} is more than 10 minutes ahead`)
  }
  if (token !== null) assertReadable(token, start, history)
}

/** Mutable key ranges are read in windows. */
function assertWindow(start: CommitTimestamp, end: CommitTimestamp | null, nowMs: number): void {
  const latestMs = Math.max(nowMs, timestampToMs(start)) + MAX_WINDOW_MS
  if (end !== null && timestampToMs(end) <= latestMs) return
  throw new QueryStatusError('INVALID_ARGUMENT', 'end_timestamp must be given, at most 30 minutes after now and start')
}

/** The partition, if `start` is in its life; its end belongs to it, since the child records are there. */
export function assertReadable(token: string, start: CommitTimestamp, history: KnownHistory): TreeNode {
  const node = history.partition(token)
  if (node === undefined) {
    throw new QueryStatusError('INVALID_ARGUMENT', 'partition_token does not belong to this change stream')
  }
  if (start < node.start || (node.end !== null && start > node.end)) {
    const life = `${node.start} to ${node.end ?? 'now'}`
    throw new QueryStatusError('OUT_OF_RANGE', `start_timestamp ${start} is outside the partition's life, ${life}`)
  }
  return node
}

const MIN_HEARTBEAT_MS = 100
const MAX_HEARTBEAT_MS = 300_000
const MAX_WINDOW_MS = 30 * 60_000
const MAX_AHEAD_MS = 600_000
