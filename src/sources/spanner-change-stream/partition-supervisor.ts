/** Starts partitions when their parents are finished, stores their children, marks them finished, ends when all are. */
import PQueue from 'p-queue'
import { type Clock, sleep } from '../../core/clock.ts'
import { backoffMs } from '../../core/error-policy.ts'
import { ConfigError, EnvironmentError, isRetryable, StoreError } from '../../core/errors.ts'
import type { Logger } from '../../core/types.ts'
import type { CommitTimestamp } from '../../model/commit-timestamp.ts'
import type { ChildPartitionsRecord } from '../../model/data-change-record.ts'
import { type Partition, ROOT_TOKEN } from '../../model/partition.ts'
import type { NewPartition, PartitionTable } from '../../stores/partition-store.ts'
import { LivePartition } from './live-partition.ts'
import { lostParents } from './lost-parents.ts'
import { MoveInBarriers } from './move-in-barriers.ts'
import type { InPlace } from './partition-reader.ts'

export interface SupervisorContext {
  readonly table: PartitionTable
  readonly owner: string
  readonly leaseMs: number
  readonly onHeld: 'wait' | 'exit'
  /** Where a stream without stored progress begins. */
  readonly start: CommitTimestamp
  /** The user's end. */
  readonly end: CommitTimestamp | undefined
  readonly maxPartitions: number
  readonly clock: Clock
  readonly random: () => number
  readonly logger: Logger
  /**
   * Resolves when the partition has ended, with evidence, and everything that it handed out is settled: with the user's
   * end if that is why, with null if the partition ended by itself.
   */
  read(partition: LivePartition, inPlace: InPlace, signal: AbortSignal): Promise<CommitTimestamp | null>
}

/**
 * Owns the unfinished partitions of one run. Event-driven: a child starts the moment its last parent is stored as
 * finished. Holds nothing of finished partitions but their number.
 */
export class PartitionSupervisor {
  readonly #context: SupervisorContext
  /** Places for reading, given in the order of asking. */
  readonly #places: PQueue
  readonly #live = new Map<string, LivePartition>()
  /** Tokens of the partitions that are being read or wait for a place. */
  readonly #started = new Map<string, Promise<void>>()
  readonly #stop = new AbortController()
  readonly #giveUp = new AbortController()
  readonly #ended = Promise.withResolvers<void>()
  readonly barriers: MoveInBarriers
  #finishedCount = 0
  #finalWatermark: CommitTimestamp | undefined
  #standbyFor: string | undefined
  #hasWarned = false

  constructor(context: SupervisorContext) {
    this.#context = context
    this.#places = new PQueue({ concurrency: context.maxPartitions })
    this.barriers = new MoveInBarriers(this.#live, (token) => this.#isFinished(context.table, token))
    // Whoever awaits run() hears of a failure; this keeps a failure before that from being an unhandled one.
    this.#ended.promise.catch(() => undefined)
  }

  /** Partitions that are not finished, announced ones included. */
  get live(): ReadonlyMap<string, LivePartition> {
    return this.#live
  }

  /** In this run. */
  get finishedCount(): number {
    return this.#finishedCount
  }

  /** The latest end of a finished partition. */
  get finalWatermark(): CommitTimestamp | undefined {
    return this.#finalWatermark
  }

  get standbyFor(): string | undefined {
    return this.#standbyFor
  }

  /** Resolves when all partitions are finished; rejects with the first error, or with the reason given to `stop`. */
  async run(): Promise<void> {
    try {
      await this.#takeOver()
      if (this.#live.size === 0) return
      for (const partition of this.#live.values()) this.#startIfReady(partition)
      await this.#ended.promise
    } finally {
      this.drain(new Error('the run has ended'))
      await Promise.all(this.#started.values())
    }
  }

  /** Stops all reading; what is handed out stays open, and writes to the store that are under way come to their end. */
  drain(reason: unknown): void {
    this.#stop.abort(reason)
    this.#ended.reject(reason)
  }

  /** Stops all reading, and trying again to write to the store. */
  stop(reason: unknown): void {
    this.#giveUp.abort(reason)
    this.drain(reason)
  }

  /** Stores what a child record announces and begins to wait for its parents. */
  async announce(parent: LivePartition, { startTimestamp, children }: ChildPartitionsRecord): Promise<void> {
    const rows = children.map(({ token, parentTokens }): NewPartition => {
      const parents = parentTokens.filter((parentToken) => parentToken !== '')
      // What came before the start is not ours to read: for the first partitions only the root counts.
      const isFirst = (parent.token === ROOT_TOKEN && !parents.includes(ROOT_TOKEN)) || parents.length === 0
      return { token, parentTokens: isFirst ? [ROOT_TOKEN] : parents, start: startTimestamp }
    })
    const { table, leaseMs } = this.#context
    const inserted = await this.#stored(() => table.addChildren(parent.token, parent.ownership, rows, leaseMs))
    if (inserted === undefined) throw this.#lost(parent.token)
    // What another parent has announced, or an insert whose answer got lost, is not among the inserted: look it up.
    for (const { token } of rows) {
      if (this.#live.has(token)) continue
      const row = inserted.find((child) => child.token === token) ?? (await this.#stored(() => table.get(token)))
      if (row !== undefined && row.state !== 'FINISHED' && !this.#live.has(token)) await this.#adopt(row)
    }
  }

  /**
   * When the announced children of a partition start: they wait for it, so they are not finished before it. What was
   * found behind a gap waits for it as well, and starts later.
   */
  childrenStart({ token }: LivePartition): CommitTimestamp | undefined {
    let first: CommitTimestamp | undefined
    for (const { parentTokens, start } of this.#live.values()) {
      if (parentTokens.includes(token) && (first === undefined || start < first)) first = start
    }
    return first
  }

  /** To be called now and then: starts who waits for parents of which nothing will be heard. */
  releaseOrphans(): void {
    for (const partition of [...this.#live.values()]) {
      const lost = lostParents(partition, this.#live)
      if (lost.length === 0) continue
      for (const parent of lost) partition.waitingFor.delete(parent)
      this.#startIfReady(partition)
    }
  }

  /** Looks whether tokens that a checkpoint could not write are really lost to another owner. */
  assertHeld(lostTokens: readonly string[]): void {
    for (const token of lostTokens) {
      const partition = this.#live.get(token)
      if (partition !== undefined && !partition.isFinishing) throw this.#lost(token)
    }
  }

  /** Claims everything that is unfinished; waits, or gives up, while another process holds some of it. */
  async #takeOver(): Promise<void> {
    const { table, owner, leaseMs, onHeld, clock, logger, end } = this.#context
    await this.#createRoot()
    await this.#stored(() => table.reopen(end ?? null))
    for (;;) {
      const unfinished = await this.#stored(() => table.claim(owner, leaseMs))
      const held = unfinished.find((partition) => partition.owner !== owner)
      if (held === undefined) {
        this.#standbyFor = undefined
        await this.#load(unfinished)
        return
      }
      const waitsMs = Math.max(0, held.leaseUntilMs - clock.now())
      if (onHeld === 'exit') {
        await this.#stored(() => table.release(owner))
        throw new EnvironmentError(`this pipeline is already run by ${held.owner}, its lease ends in ${waitsMs} ms`, {
          hint: "Stop that process first, or run with onHeld: 'wait' to stand by and take over when it ends.",
        })
      }
      if (this.#standbyFor !== held.owner) {
        this.#standbyFor = held.owner ?? undefined
        logger.info(`standing by: this pipeline is run by ${held.owner}; takes over when it ends`, {
          holder: held.owner,
          leaseEndsInMs: waitsMs,
        })
      }
      await sleep(clock, Math.min(leaseMs / 3, 1000), this.#stop.signal)
    }
  }

  async #createRoot(): Promise<void> {
    const { table, owner, leaseMs, start, end } = this.#context
    if (end !== undefined && start > end && !(await this.#hasProgress())) {
      throw new ConfigError(`spannerChangeStream: end lies before the start, got start ${start} and end ${end}`, {
        hint: 'Without stored progress and without the option start, reading begins now. Give a start before the end.',
      })
    }
    await this.#stored(() => table.createRoot({ token: ROOT_TOKEN, parentTokens: [], start }, owner, leaseMs))
  }

  async #hasProgress(): Promise<boolean> {
    const { table } = this.#context
    if ((await this.#stored(() => table.get(ROOT_TOKEN))) !== undefined) return true
    return (await this.#stored(() => table.list())).length > 0
  }

  /** Asks for single parents only: over the years a store collects many that are finished. */
  async #load(unfinished: readonly Partition[]): Promise<void> {
    const { table, owner } = this.#context
    for (const row of unfinished) this.#live.set(row.token, new LivePartition(row, owner))
    const finished = new Map<string, boolean>([[ROOT_TOKEN, true]])
    for (const { state, waitingFor } of this.#live.values()) {
      for (const parent of waitingFor) {
        if (this.#live.has(parent)) continue
        // What was started before had all its parents behind it.
        const isBehind = finished.get(parent) ?? (state !== 'CREATED' || (await this.#isFinished(table, parent)))
        if (state === 'CREATED') finished.set(parent, isBehind)
        if (isBehind) waitingFor.delete(parent)
      }
    }
  }

  async #isFinished(table: PartitionTable, token: string): Promise<boolean> {
    const row = await this.#stored(() => table.get(token))
    return row?.state === 'FINISHED'
  }

  async #adopt(row: Partition): Promise<void> {
    const partition = new LivePartition(row, this.#context.owner)
    // Enter it first, then look at its parents: one that finishes in between finds it waiting.
    this.#live.set(row.token, partition)
    for (const parent of row.parentTokens) {
      if (this.#live.has(parent)) continue
      // The root is stored before everything else, so if it is not live it is finished, whether or not its row is kept.
      if (parent === ROOT_TOKEN) {
        partition.waitingFor.delete(parent)
        continue
      }
      const parentRow = await this.#stored(() => this.#context.table.get(parent))
      // A parent that is not stored yet has not been announced: it is waited for like any other.
      if (parentRow?.state === 'FINISHED') partition.waitingFor.delete(parent)
    }
    this.#startIfReady(partition)
  }

  #startIfReady(partition: LivePartition): void {
    const { token, waitingFor } = partition
    if (waitingFor.size > 0 || this.#started.has(token) || this.#stop.signal.aborted) return
    // While its parents were looked up, it may have been started, read and finished.
    if (this.#live.get(token) !== partition) return
    this.#started.set(token, this.#runPartition(partition))
    this.barriers.progressed(token)
  }

  async #runPartition(partition: LivePartition): Promise<void> {
    const { read, table } = this.#context
    try {
      await this.#advance(partition, 'CREATED', 'SCHEDULED')
      const endedAt = await read(partition, (work) => this.#inPlace(partition, work), this.#stop.signal)
      partition.isFinishing = true
      const { checkpoint, ownership, token } = partition
      if (!(await this.#stored(() => table.finish(token, ownership, checkpoint, endedAt))))
        await this.#assertState(partition, 'FINISHED')
      if (this.#finalWatermark === undefined || checkpoint.watermark > this.#finalWatermark) {
        this.#finalWatermark = checkpoint.watermark
      }
      partition.endReading()
      this.#finished(partition)
    } catch (error) {
      if (!this.#stop.signal.aborted) this.stop(error)
    }
  }

  /** Fair: whoever has read for a while goes to the end of the queue if others wait, and goes on from there. */
  async #inPlace<R>(partition: LivePartition, work: (isTurnOver: () => boolean) => Promise<R>): Promise<R> {
    const { clock } = this.#context
    this.#warnOfWaiting()
    return this.#places.add(async () => {
      this.#stop.signal.throwIfAborted()
      await this.#advance(partition, 'SCHEDULED', 'RUNNING')
      let isLong = false
      const turn = clock.after(TURN_MS, () => {
        isLong = true
      })
      try {
        return await work(() => isLong && this.#places.size > 0)
      } finally {
        turn.cancel()
      }
    })
  }

  #warnOfWaiting(): void {
    const { maxPartitions, logger } = this.#context
    if (this.#hasWarned || this.#places.pending < maxPartitions) return
    this.#hasWarned = true
    logger.warn('more partitions than places: they are read in turns; raise maxPartitions', { maxPartitions })
  }

  #finished({ token }: LivePartition): void {
    this.#live.delete(token)
    this.#started.delete(token)
    this.#finishedCount++
    for (const partition of this.#live.values()) {
      if (partition.waitingFor.delete(token)) this.#startIfReady(partition)
    }
    this.barriers.finished(token)
    if (this.#live.size === 0) this.#ended.resolve()
  }

  async #advance(partition: LivePartition, from: 'CREATED' | 'SCHEDULED', to: 'SCHEDULED' | 'RUNNING'): Promise<void> {
    if (partition.state !== from) return
    const { table } = this.#context
    const { token, ownership } = partition
    if (!(await this.#stored(() => table.advance(token, ownership, from, to)))) await this.#assertState(partition, to)
    partition.state = to
  }

  /** After a refused write: fine if an earlier try whose answer got lost has made it; lost to another owner if not. */
  async #assertState({ token, ownership }: LivePartition, state: Partition['state']): Promise<void> {
    const row = await this.#stored(() => this.#context.table.get(token))
    if (row?.state !== state || row.epoch !== ownership.epoch) throw this.#lost(token)
  }

  #lost(token: string): StoreError {
    return new StoreError(`partition ${token} is no longer held by this process (${this.#context.owner})`, {
      code: 'STORE_CONFLICT',
      hint: 'Another process took over after this one gave no sign of life for leaseMs. Nothing is lost: it goes on from the last checkpoint.',
    })
  }

  /** Tries a store call again for as long as a retry can help and nobody has given up. */
  async #stored<R>(call: () => Promise<R>): Promise<R> {
    const { clock, random, logger } = this.#context
    for (let attempt = 1; ; attempt++) {
      try {
        return await call()
      } catch (error) {
        if (!isRetryable(error) || this.#giveUp.signal.aborted) throw error
        logger.warn('the partition store failed and is tried again', { attempt })
        await sleep(clock, backoffMs(attempt, 50, 5_000, random), this.#giveUp.signal)
      }
    }
  }
}

/** How long a partition keeps its place while others wait for one. */
const TURN_MS = 5_000
