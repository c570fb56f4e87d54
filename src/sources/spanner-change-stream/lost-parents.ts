/** Which parents will never be heard of: partitions that came and went in a gap. */
import { ROOT_TOKEN } from '../../model/partition.ts'
import type { LivePartition } from './live-partition.ts'

/**
 * Parents that a partition waits for although nobody can announce them any more: whoever does so ended before they
 * began, so it lies before the start of their child, and everyone who is not finished lies behind it.
 */
export function lostParents(child: LivePartition, live: ReadonlyMap<string, LivePartition>): string[] {
  const unknown = [...child.waitingFor].filter((token) => token !== ROOT_TOKEN && !live.has(token))
  if (unknown.length === 0) return []
  for (const other of live.values()) {
    const mayAnnounce = other !== child && other.start < child.start && other.enteredUpTo < child.start
    if (mayAnnounce) return []
  }
  return unknown
}
