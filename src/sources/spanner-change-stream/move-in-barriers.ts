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
 * everything up to that time: it has read past it, or stands at an event of that time itself, with nothing of before
 * open; or it is finished.
 * Standing at an event covers ranges that are exchanged: each then waits for the other at the same time.
 *
 * Progress is heard of with every ack, so it must cost little: it is noted, and looked at once for all that happens
 * together, and only by those who wait for the partition that got on.
 */
export class MoveInBarriers {
  readonly #live: ReadonlyMap<string, LivePartition>
  readonly #isFinished: (token: string) => Promise<boolean>
  /** By the tokens of the partitions that are waited for. */
  readonly #waiting = new Map<string, Set<Waiting>>()
  /** Those with a source that is not known: they wait for whoever may announce it. */
  readonly #unknowing = new Set<Waiting>()
  /** Who of all had read least when that was last looked at: no one who waits for all can go on before it does. */
  #slowest: string | undefined
  /** Who has to be looked at: the tokens of those that got on, and whoever waits for something else by now. */
  readonly #changed = new Set<string>()
  readonly #affected = new Set<Waiting>()
  #willLook = false

  constructor(live: ReadonlyMap<string, LivePartition>, isFinished: (token: string) => Promise<boolean>) {
    this.#live = live
    this.#isFinished = isFinished
  }

  /** Whether the partition may go on at once. */
  isOpen(partition: LivePartition, { commitTimestamp, moveInFrom }: PartitionEventRecord): boolean {
    return this.#arePast(moveInFrom, partition, commitTimestamp, () => this.#findSlowest())
  }

  async wait(partition: LivePartition, event: PartitionEventRecord, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const waiting: Waiting = { partition, at: event.commitTimestamp, sources: new Set(event.moveInFrom), resolve }
    for (const source of waiting.sources) this.#enter(source, waiting)
    try {
      for (const source of event.moveInFrom) {
        if (!this.#live.has(source) && (await this.#isFinished(source))) this.#leave(source, waiting)
      }
      this.#lookSoon(waiting)
      await abortable(promise, signal)
    } finally {
      for (const source of waiting.sources) this.#leave(source, waiting)
      this.#unknowing.delete(waiting)
      this.#affected.delete(waiting)
    }
  }

  /** To be called when a partition is finished. */
  finished(token: string): void {
    for (const waiting of [...(this.#waiting.get(token) ?? [])]) {
      this.#leave(token, waiting)
      this.#lookSoon(waiting)
    }
    this.progressed(token)
  }

  /** To be called whenever a partition has read, settled or begun something. */
  progressed(token: string): void {
    if (this.#changed.has(token) || (token !== this.#slowest && !this.#waiting.has(token))) return
    this.#changed.add(token)
    this.#lookSoon()
  }

  #lookSoon(waiting?: Waiting): void {
    if (waiting !== undefined) this.#affected.add(waiting)
    if (this.#willLook) return
    this.#willLook = true
    queueMicrotask(() => this.#look())
  }

  /** Lets go on who may. Who has read least is found once for all of them. */
  #look(): void {
    const affected = new Set(this.#affected)
    for (const token of this.#changed) for (const waiting of this.#waiting.get(token) ?? []) affected.add(waiting)
    const hasSlowestMoved = this.#slowest !== undefined && this.#changed.has(this.#slowest)
    this.#affected.clear()
    this.#changed.clear()
    this.#willLook = false

    let found: LivePartition | undefined
    const findSlowest = (): LivePartition | undefined => {
      found ??= this.#findSlowest()
      return found
    }
    for (const waiting of affected) this.#lookAt(waiting, findSlowest)
    if (hasSlowestMoved || (found !== undefined && found.token !== this.#slowest)) {
      for (const waiting of [...this.#unknowing]) this.#lookAt(waiting, findSlowest)
    }
    this.#slowest = this.#unknowing.size > 0 ? findSlowest()?.token : undefined
  }

  #lookAt(waiting: Waiting, findSlowest: () => LivePartition | undefined): void {
    const { partition, at, sources, resolve } = waiting
    this.#unknowing.delete(waiting)
    if (this.#arePast(sources, partition, at, findSlowest)) resolve()
    else if ([...sources].some((source) => !this.#live.has(source))) this.#unknowing.add(waiting)
  }

  #arePast(
    sources: Iterable<string>,
    partition: LivePartition,
    at: CommitTimestamp,
    findSlowest: () => LivePartition | undefined,
  ): boolean {
    for (const source of sources) {
      const live = this.#live.get(source)
      if (live === partition) continue
      // Not known: finished, or not announced yet. Whoever announces it does so before it passes the time of the move.
      const slowest = live === undefined ? findSlowest() : undefined
      if (slowest !== undefined && !hasRead(slowest, at)) return false
      if (live !== undefined && !hasProcessed(live, at)) return false
    }
    return true
  }

  #findSlowest(): LivePartition | undefined {
    let slowest: LivePartition | undefined
    for (const partition of this.#live.values()) {
      if (slowest === undefined || isBehind(partition, slowest)) slowest = partition
    }
    return slowest
  }

  #enter(source: string, waiting: Waiting): void {
    const all = this.#waiting.get(source)
    if (all === undefined) this.#waiting.set(source, new Set([waiting]))
    else all.add(waiting)
  }

  #leave(source: string, waiting: Waiting): void {
    waiting.sources.delete(source)
    const all = this.#waiting.get(source)
    all?.delete(waiting)
    if (all?.size === 0) this.#waiting.delete(source)
  }
}

function hasProcessed(partition: LivePartition, at: CommitTimestamp): boolean {
  const oldest = partition.reading?.tracker.oldestOpen
  // What was handed out after the move may wait, downstream, for the very partition that waits here.
  return hasRead(partition, at) && (oldest === undefined || oldest.timestamp > at)
}

/** Whether everything up to a time has been handed out, and every partition that starts by then been announced. */
function hasRead(partition: LivePartition, at: CommitTimestamp): boolean {
  return partition.enteredUpTo > at || (partition.enteredUpTo === at && standsAtEvent(partition))
}

/** Whether there are times up to which the other has read and this one has not. */
function isBehind(partition: LivePartition, other: LivePartition): boolean {
  if (partition.enteredUpTo !== other.enteredUpTo) return partition.enteredUpTo < other.enteredUpTo
  return !standsAtEvent(partition) && standsAtEvent(other)
}

/** Everything before an event has been handed out, and what follows it at the same time belongs behind it. */
function standsAtEvent({ reading, enteredUpTo }: LivePartition): boolean {
  return reading?.eventAt === enteredUpTo
}
