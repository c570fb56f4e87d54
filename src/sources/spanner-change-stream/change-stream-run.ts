/** One run of the Spanner source: readers, supervisor and budget behind one stream, with checkpoints and marks. */

import { BoundedQueue } from '../../core/bounded-queue.ts'
import { sleep, type Timer } from '../../core/clock.ts'
import type { Failure } from '../../core/delivery.ts'
import { backoffMs } from '../../core/error-policy.ts'
import { ClosedError, describeThrown, isRetryable, StoreError, StreamError } from '../../core/errors.ts'
import { InFlightBudget } from '../../core/in-flight-budget.ts'
import { type Chunk, mark, Stage } from '../../core/stage.ts'
import type { CommitTimestamp, Decision } from '../../core/types.ts'
import type { ChangeStreamClient } from '../../model/change-stream.ts'
import { timestampFromMs } from '../../model/commit-timestamp.ts'
import type { CheckpointWrite, PartitionTable } from '../../stores/partition-store.ts'
import type { SourceContext, SourceRun, SourceStatus } from '../source.ts'
import type { DeliverableRows } from './deliverable-rows.ts'
import type { LivePartition, SettlementDesk } from './live-partition.ts'
import { readPartition } from './partition-reader.ts'
import { PartitionSupervisor } from './partition-supervisor.ts'

export interface ChangeStreamRunOptions<T> {
  readonly client: ChangeStreamClient
  /** Whether the client was made for this run, and so ends with it. */
  readonly ownsClient: boolean
  readonly rowsOf: DeliverableRows<T>
  readonly start: CommitTimestamp | undefined
  readonly end: CommitTimestamp | undefined
  readonly heartbeatMs: number
  readonly maxPartitions: number
}

export class ChangeStreamRun<T> implements SourceRun<T>, SettlementDesk {
  readonly stream: Stage<T>
  readonly #options: ChangeStreamRunOptions<T>
  readonly #context: SourceContext
  readonly #budget: InFlightBudget
  // Deliveries wait here for the consumer; the budget bounds them, so the queue need not.
  readonly #queue = new BoundedQueue<Chunk<T>>(Number.POSITIVE_INFINITY)
  readonly #opening = new AbortController()

  #table: PartitionTable | undefined
  #supervisor: PartitionSupervisor | undefined
  #reading: Promise<void> = Promise.resolve()
  #closing: Promise<void> | undefined

  #tick: Timer | undefined
  #ticking: Promise<void> = Promise.resolve()
  #markTimer: Timer | undefined
  #lastMark: CommitTimestamp | undefined
  #renewedAtMs = 0

  #delivered = 0
  #settled = 0
  #skipped = 0
  #rereads = 0

  constructor(options: ChangeStreamRunOptions<T>, context: SourceContext) {
    this.#options = options
    this.#context = context
    this.#budget = new InFlightBudget(context.limits)
    this.stream = new Stage((signal) => this.#chunks(signal))
  }

  drain(): void {
    if (this.#supervisor === undefined) this.#opening.abort(DRAINED)
    else this.#supervisor.drain(DRAINED)
  }

  close({ keepLeases = false }: { readonly keepLeases?: boolean } = {}): Promise<void> {
    this.#closing ??= this.#close(keepLeases)
    return this.#closing
  }

  status(): SourceStatus {
    const live = [...(this.#supervisor?.live.values() ?? [])]
    return {
      standbyFor: this.#supervisor?.standbyFor,
      delivered: this.#delivered,
      settled: this.#settled,
      skipped: this.#skipped,
      inFlight: this.#budget.count,
      inFlightBytes: this.#budget.bytes,
      // When all are finished, the end of the last one.
      lowWatermark: minimum(live, (partition) => partition.watermark) ?? this.#supervisor?.finalWatermark,
      partitions: live.map(({ token, parentTokens, state, watermark, inFlight }) => ({
        token,
        parentTokens,
        state,
        watermark,
        inFlight,
      })),
      finishedPartitions: this.#supervisor?.finishedCount ?? 0,
      rereads: this.#rereads,
    }
  }

  acked(): void {
    this.#settled++
  }

  nacked(partition: string, { id, value, error, attempt }: Failure): boolean {
    const decision = this.decide(error, value, partition, attempt)
    if (decision === 'skip') {
      this.#skipped++
      this.#context.logger.warn('a change is skipped after it failed', { partition, id, error: describeThrown(error) })
      return true
    }
    this.#fail(error)
    return false
  }

  decide(error: unknown, value: unknown, partition: string, attempt: number): Decision {
    return this.#context.policy.decide(error, { value, partition, attempt })
  }

  async *#chunks(signal: AbortSignal): AsyncGenerator<Chunk<T>, void, undefined> {
    if (this.#closing !== undefined) throw new ClosedError('spannerChangeStream: this run is closed')
    const stop = (): void => this.#fail(signal.reason)
    if (signal.aborted) throw signal.reason
    signal.addEventListener('abort', stop, { once: true })
    try {
      this.#reading = this.#read()
      for (;;) {
        const chunks = await this.#queue.takeAll()
        if (chunks === undefined) return
        yield* chunks
      }
    } finally {
      signal.removeEventListener('abort', stop)
    }
  }

  /** Reads until all is finished, drained or failed; the queue hears how it ended. */
  async #read(): Promise<void> {
    try {
      await this.#open()
      await this.#supervisor!.run()
      this.#queue.close()
    } catch (error) {
      if (error === DRAINED) this.#queue.close()
      else this.#queue.fail(error)
    }
  }

  async #open(): Promise<void> {
    const { client, start, maxPartitions } = this.#options
    const { store, pipeline, owner, leaseMs, onHeld, clock, random, logger } = this.#context
    await client.describe(this.#opening.signal)
    this.#table = await store.open(pipeline)
    // A drain or close meanwhile found no supervisor to stop.
    this.#opening.signal.throwIfAborted()
    this.#renewedAtMs = clock.now()
    this.#supervisor = new PartitionSupervisor({
      table: this.#table,
      owner,
      leaseMs,
      onHeld,
      start: () => start ?? timestampFromMs(clock.now()),
      maxPartitions,
      clock,
      random,
      logger,
      read: (partition, signal) => this.#readPartition(partition, signal),
    })
    this.#scheduleTick()
    this.#scheduleMark()
  }

  #readPartition(partition: LivePartition, signal: AbortSignal): Promise<void> {
    const { client, rowsOf, end, heartbeatMs } = this.#options
    const { limits, clock, random, logger } = this.#context
    return readPartition(
      partition,
      {
        client,
        rowsOf,
        end,
        heartbeatMs,
        maxWindow: Math.max(MIN_WINDOW, limits.maxInFlight * 4),
        budget: this.#budget,
        desk: this,
        clock,
        random,
        logger,
        emit: (chunk) => {
          this.#delivered += chunk.length
          this.#queue.offer(chunk)
        },
        announce: (parent, record) => this.#supervisor!.announce(parent, record),
        reread: () => this.#rereads++,
      },
      signal,
    )
  }

  #fail(error: unknown): void {
    this.#queue.fail(error)
    this.#opening.abort(error)
    this.#supervisor?.stop(error)
  }

  // --- checkpoints: one commit for all partitions, a tick never overtakes another ---

  #scheduleTick(): void {
    const { clock, checkpointIntervalMs, leaseMs } = this.#context
    this.#tick = clock.after(Math.min(checkpointIntervalMs, leaseMs / 3), () => {
      this.#ticking = this.#runTick()
    })
  }

  async #runTick(): Promise<void> {
    try {
      this.#reportForgotten()
      await this.#checkpoint()
    } catch (error) {
      if (!isRetryable(error)) this.#fail(error)
      else this.#checkLease()
    } finally {
      if (this.#closing === undefined) this.#scheduleTick()
    }
  }

  async #checkpoint(): Promise<void> {
    const supervisor = this.#supervisor
    if (supervisor === undefined || this.#table === undefined) return
    const { owner, leaseMs, clock } = this.#context
    const dirty = [...supervisor.live.values()].filter((p) => p.state === 'RUNNING' && p.isDirty && !p.isFinishing)
    const writes = dirty.map((partition): { readonly partition: LivePartition; readonly write: CheckpointWrite } => ({
      partition,
      write: { token: partition.token, epoch: partition.ownership.epoch, ...partition.checkpoint },
    }))
    const askedAtMs = clock.now()
    const lost = await this.#table.checkpoint(
      owner,
      writes.map(({ write }) => write),
      leaseMs,
    )
    supervisor.assertHeld(lost)
    this.#renewedAtMs = askedAtMs
    for (const { partition, write } of writes) partition.stored = write
  }

  /** A process that could not renew its leases in time must assume that another one reads by now. */
  #checkLease(): void {
    const { clock, leaseMs, logger } = this.#context
    logger.warn('progress could not be stored and is tried again')
    if (clock.now() - this.#renewedAtMs < leaseMs) return
    this.#fail(
      new StoreError(`progress could not be stored for ${leaseMs} ms, so another process may have taken over`, {
        code: 'STORE_CONFLICT',
        hint: 'Check that the partition store is reachable and writable, then start again: nothing is lost.',
      }),
    )
  }

  #reportForgotten(): void {
    const { settleTimeoutMs, onSettleTimeout, clock, logger } = this.#context
    if (settleTimeoutMs === 0) return
    for (const partition of this.#supervisor?.live.values() ?? []) {
      const oldest = partition.reading?.tracker.oldestOpen
      if (oldest === undefined || oldest.id === partition.reportedId) continue
      const openMs = clock.now() - oldest.sinceMs
      if (openMs < settleTimeoutMs) continue
      partition.reportedId = oldest.id
      const message = `change ${oldest.id} of partition ${partition.token} has not been settled for ${Math.round(openMs)} ms`
      const fields = { partition: partition.token, id: oldest.id, openMs }
      if (onSettleTimeout === 'stop') {
        throw new StreamError('SETTLE_TIMEOUT', message, {
          hint: 'Something takes deliveries and never settles them, or works longer than settleTimeoutMs.',
        })
      }
      logger.warn(message, fields)
      if (onSettleTimeout === 'retry') partition.reading?.rewind()
    }
  }

  // --- marks: up to where everything has entered the stream ---

  #scheduleMark(): void {
    this.#markTimer = this.#context.clock.after(MARK_INTERVAL_MS, () => {
      const entered = minimum([...(this.#supervisor?.live.values() ?? [])], (partition) => partition.enteredUpTo)
      if (entered !== undefined && (this.#lastMark === undefined || entered > this.#lastMark)) {
        this.#lastMark = entered
        this.#queue.offer([mark(entered)])
      }
      this.#scheduleMark()
    })
  }

  async #close(keepLeases: boolean): Promise<void> {
    this.#tick?.cancel()
    this.#markTimer?.cancel()
    this.#fail(new ClosedError('spannerChangeStream: this run is closed'))
    await this.#reading
    await this.#ticking
    this.#tick?.cancel()
    this.#markTimer?.cancel()
    try {
      await this.#persist(() => this.#checkpoint())
      if (!keepLeases) await this.#persist(async () => await this.#table?.release(this.#context.owner))
    } finally {
      for (const partition of this.#supervisor?.live.values() ?? []) partition.endReading()
      if (this.#options.ownsClient) await this.#options.client.close()
    }
  }

  /** The last writes of a run are worth a few tries: what they do not store comes again at the next start. */
  async #persist(write: () => Promise<void>): Promise<void> {
    const { clock, random } = this.#context
    for (let attempt = 1; ; attempt++) {
      try {
        await write()
        return
      } catch (error) {
        if (!isRetryable(error) || attempt === LAST_TRIES) throw error
        await sleep(clock, backoffMs(attempt, 50, 400, random))
      }
    }
  }
}

function minimum(
  partitions: readonly LivePartition[],
  timeOf: (partition: LivePartition) => CommitTimestamp,
): CommitTimestamp | undefined {
  let least: CommitTimestamp | undefined
  for (const partition of partitions) {
    const time = timeOf(partition)
    if (least === undefined || time < least) least = time
  }
  return least
}

const DRAINED = new Error('reading was drained')
const LAST_TRIES = 6
const MARK_INTERVAL_MS = 250
const MIN_WINDOW = 1024
