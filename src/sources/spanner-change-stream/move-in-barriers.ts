/** Keeps order per key when key ranges move between partitions that live on: what moves in waits for its past. */
import { abortable } from '../../core/signals.ts'
import type { CommitTimestamp } from '../../model/commit-timestamp.ts'
import type { PartitionEventRecord } from '../../model/data-change-record.ts'
import type { LivePartition } from './live-partition.ts'

/** A partition that stands at a move, and the partitions that it waits for. */
interface Waiting {
  readonly partition: LivePartition
  readonly at: CommitTimestamp
  readonly sources: Set<string>
  readonly resolve: () => void
}

/**
 * A partition into which a range moved at a time goes on when every partition that the range came from has processed
 * everything up to that time: it is past it, finished, or stands at an event of that time itself with nothing open.
 * The last covers ranges that are exchanged: each then waits for the other at the same time.
 */
export class MoveInBarriers {
  readonly #live: ReadonlyMap<string, LivePartition>
  readonly #isFinished: (token: string) => Promise<boolean>
  readonly #waiting = new Set<Waiting>()

  constructor(live: ReadonlyMap<string, LivePartition>, isFinished: (token: string) => Promise<boolean>) {
    this.#live = live
    this.#isFinished = isFinished
  }

  /** Whether the partition may go on at once. */
  isOpen(partition: LivePartition, { commitTimestamp, moveInFrom }: PartitionEventRecord): boolean {
    return moveInFrom.every((source) => this.#isPast(source, partition, commitTimestamp))
  }

  async wait(partition: LivePartition, event: PartitionEventRecord, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const sources = new Set(event.moveInFrom)
    const waiting: Waiting = { partition, at: event.commitTimestamp, sources, resolve }
    this.#waiting.add(waiting)
    try {
      for (const source of event.moveInFrom) {
        if (!this.#live.has(source) && (await this.#isFinished(source))) sources.delete(source)
      }
      this.progressed()
      await abortable(promise, signal)
    } finally {
      this.#waiting.delete(waiting)
    }
  }

  /** To be called when a partition is finished. */
  finished(token: string): void {
    for (const { sources } of this.#waiting) sources.delete(token)
    this.progressed()
  }

  /** To be called whenever a partition has read, settled or begun something. */
  progressed(): void {
    if (this.#waiting.size === 0) return
    for (const { partition, at, sources, resolve } of this.#waiting) {
      if ([...sources].every((source) => this.#isPast(source, partition, at))) resolve()
    }
  }

  #isPast(source: string, partition: LivePartition, at: CommitTimestamp): boolean {
    const live = this.#live.get(source)
    if (live !== undefined) return live === partition || hasProcessed(live, at)
    // Not known: finished, or not announced yet. Whoever announces it does so before it passes the time of the move.
    for (const other of this.#live.values()) {
      if (other !== partition && !hasAnnounced(other, at)) return false
    }
    return true
  }
}

function hasProcessed(partition: LivePartition, at: CommitTimestamp): boolean {
  const { reading, watermark } = partition
  if (watermark > at) return true
  return reading?.eventAt !== undefined && reading.eventAt >= at && reading.tracker.open === 0
}

function hasAnnounced({ enteredUpTo, reading }: LivePartition, at: CommitTimestamp): boolean {
  return enteredUpTo > at || (reading?.eventAt !== undefined && reading.eventAt >= at)
}
