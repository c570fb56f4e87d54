/** The partitions as the screen shows them: short names, where in the key space, how far, and where they came from. */
import { createHash } from 'node:crypto'
import { timestampToMs } from '../../model/commit-timestamp.ts'
import type { PartitionStatus } from '../../sources/source.ts'
import type { PartitionRow } from './screen.ts'

/** Half open, in points of the key space. */
export interface KeyRange {
  readonly lo: number
  readonly hi: number
}

/** What the worker says about its partitions, laid over the key ranges that the database knows. */
export function partitionRows(
  partitions: readonly PartitionStatus[],
  rangeOf: (token: string) => KeyRange | undefined,
  keySpace: number,
  nowMs: number,
): PartitionRow[] {
  return partitions.flatMap(({ token, parentTokens, state, watermark, inFlight }) => {
    const range = rangeOf(token)
    if (range === undefined) return [] // the first query, which has no range of its own
    return {
      name: shortName(token),
      from: range.lo / keySpace,
      to: range.hi / keySpace,
      state,
      behindMs: state === 'RUNNING' ? Math.max(0, nowMs - timestampToMs(watermark)) : undefined,
      inFlight,
      parents: parentTokens.map(shortName),
    }
  })
}

/** Tokens are long and begin alike; four letters of a hash tell a handful of them apart. */
export function shortName(token: string): string {
  return createHash('sha256').update(token).digest('hex').slice(0, 4)
}
