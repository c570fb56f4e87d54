/** The partitions as the screen shows them: short names, where in the key space, how far, and where they came from. */
import { createHash } from 'node:crypto'
import { timestampToMs } from '../../model/commit-timestamp.ts'
import type { PartitionStatus } from '../../sources/source.ts'
import { NO_READER, type PartitionRow } from './screen.ts'

/** A partition as the database knows it. */
export interface KnownPartition {
  readonly token: string
  readonly parents: readonly string[]
  /** Half open, in points of the key space. */
  readonly range: { readonly lo: number; readonly hi: number }
  /** Null while it is live. */
  readonly end: string | null
}

/** What the worker says about its partitions, laid over what the database knows: live ones, and ended ones still read. */
export function partitionRows(
  known: readonly KnownPartition[],
  reported: readonly PartitionStatus[] | undefined,
  keySpace: number,
  nowMs: number,
): PartitionRow[] {
  const reports = new Map(reported?.map((status) => [status.token, status]))
  return known.flatMap(({ token, parents, range, end }) => {
    const report = reports.get(token)
    if (report === undefined && end !== null) return []
    return {
      name: shortName(token),
      from: range.lo / keySpace,
      to: range.hi / keySpace,
      state: report?.state ?? (reported === undefined ? NO_READER : 'UNSEEN'),
      behindMs: report?.state === 'RUNNING' ? Math.max(0, nowMs - timestampToMs(report.watermark)) : undefined,
      inFlight: report?.inFlight ?? 0,
      parents: parents.map(shortName),
    }
  })
}

/** Tokens are long and begin alike; four letters of a hash tell a handful of them apart. */
export function shortName(token: string): string {
  return createHash('sha256').update(token).digest('hex').slice(0, 4)
}
