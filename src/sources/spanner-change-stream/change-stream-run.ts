/** One run of the Spanner source: readers, supervisor and budget behind one stream, with checkpoints and marks. */

import { BoundedQueue } from '../../core/bounded-queue.ts'
import type { Timer } from '../../core/clock.ts'
import type { Failure } from '../../core/delivery.ts'
import { ClosedError, describeThrown, EnvironmentError, type StreamError } from '../../core/errors.ts'
import { reportForgotten } from '../../core/forgotten-deliveries.ts'
import { InFlightBudget } from '../../core/in-flight-budget.ts'
import { abortable, settlesWithin } from '../../core/signals.ts'
import { type Chunk, mark, Stage } from '../../core/stage.ts'
import type { CommitTimestamp, Decision } from '../../core/types.ts'
import type { ChangeStreamClient } from '../../model/change-stream.ts'
import { timestampFromMs } from '../../model/commit-timestamp.ts'
import type { Gap } from '../../model/data-change-record.ts'
import type { SourceContext, SourceRun, SourceStatus } from '../source.ts'
import { Checkpointer } from './checkpointer.ts'
import type { DeliverableRows } from './deliverable-rows.ts'
import { DescribedStream } from './described-stream.ts'
import type { LivePartition, Reading, SettlementDesk } from './live-partition.ts'
import { type InPlace, readPartition } from './partition-reader.ts'
import { PartitionSupervisor } from './partition-supervisor.ts'
import { isJudgedByTimes } from './read-failure.ts'
import { RetentionGuard } from './retention-guard.ts'

export interface ChangeStreamRunOptions<T> {
  readonly client: ChangeStreamClient
  /** Whether the client was made for this run, and so ends with it. */
  readonly ownsClient: boolean
  readonly rowsOf: DeliverableRows<T>
  readonly onGap: 'stop' | 'skip'
  readonly gapValue: (gap: Gap) => T
  readonly start: CommitTimestamp | undefined
  readonly end: CommitTimestamp | undefined
  readonly heartbeatMs: number
  readonly maxPartitions: number
}

interface QueuedChunk<T> {
  readonly chunk: Chunk<T>
  /** Undefined for marks. */
  readonly reading: Reading | undefined
}

export class ChangeStreamRun<T> implements SourceRun<T>, SettlementDesk {
  readonly stream: Stage<T>
  readonly #options: ChangeStreamRunOptions<T>
  readonly #context: SourceContext
  readonly #budget: InFlightBudget
  // Deliveries wait here for the consumer; the budget bounds them, so the queue need not.
  readonly #queue = new BoundedQueue<QueuedChunk<T>>(Number.POSITIVE_INFINITY)
  readonly #opening = new AbortController()
  readonly #failed = new AbortController()

  #supervisor: PartitionSupervisor | undefined
  #reading: Promise<void> = Promise.resolve()
  #closing: Promise<void> | undefined
  #hasBegun = false

  #checkpointer: Checkpointer | undefined
  #markTimer: Timer | undefined
  #lastMark: CommitTimestamp | undefined

  #delivered = 0
  #settled = 0
  #skipped = 0
  #rereads = 0
  #gaps = 0
  #described: DescribedStream | undefined
  #retention: RetentionGuard | undefined

  constructor(options: ChangeStreamRunOptions<T>, context: SourceContext) {
    this.#options = options
    this.#context = context
    this.#budget = new InFlightBudget(context.limits)
    this.stream = new Stage((signal) => this.#chunks(signal))
  }

  get failed(): AbortSignal {
    return this.#failed.signal
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
      lowWatermark: this.#lowWatermark,
      retentionUsed: this.#retention?.share(this.#lowWatermark),
      gaps: this.#gaps,
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

  /** Over running and announced partitions; when all are finished, the end of the last one. */
  get #lowWatermark(): CommitTimestamp | undefined {
    const live = [...(this.#supervisor?.live.values() ?? [])]
    return minimum(live, (partition) => partition.watermark) ?? this.#supervisor?.finalWatermark
  }

  acked(partition: string): void {
    this.#settled++
    this.#supervisor?.barriers.progressed(partition)
  }

  nacked(partition: string, { id, value, error, attempt, ...failure }: Failure): boolean {
    const decision = failure.decision ?? this.decide(error, value, partition, attempt)
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
    if (this.#hasBegun) throw new ClosedError('spannerChangeStream: a run is read once')
    this.#hasBegun = true
    const stop = (): void => this.#halt(signal.reason)
    signal.throwIfAborted()
    signal.addEventListener('abort', stop, { once: true })
    try {
      this.#reading = this.#read()
      for (;;) {
        const chunks = await this.#queue.takeAll()
        if (chunks === undefined) return
        for (const { chunk } of chunks) yield chunk
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
      else if (this.#closing === undefined) this.#fail(error)
    }
  }

  async #open(): Promise<void> {
    const { client, start, end, maxPartitions } = this.#options
    const { store, pipeline, owner, leaseMs, onHeld, clock, random, logger, checkpointIntervalMs } = this.#context
    const opening = this.#opening.signal
    this.#described = await DescribedStream.open(client, { clock, random, logger }, opening)
    this.#retention = new RetentionGuard(this.#described, clock, logger)
    // A drain or close meanwhile finds no supervisor to stop.
    const table = await abortable(store.open(pipeline).catch(cannotBegin), opening)
    this.#supervisor = new PartitionSupervisor({
      table,
      owner,
      leaseMs,
      onHeld,
      start: start ?? timestampFromMs(clock.now()),
      end,
      maxPartitions,
      clock,
      random,
      logger,
      read: (partition, inPlace, signal) => this.#readPartition(partition, inPlace, signal),
    })
    this.#checkpointer = new Checkpointer({
      table,
      supervisor: this.#supervisor,
      owner,
      leaseMs,
      intervalMs: checkpointIntervalMs,
      clock,
      random,
      logger,
      beforeTick: () => {
        this.#reportForgotten()
        this.#supervisor?.releaseOrphans()
        this.#described?.refresh()
        this.#retention?.check(this.#lowWatermark)
      },
      onFailure: (error) => this.#fail(error),
    })
    this.#scheduleMark()
  }

  async #readPartition(
    partition: LivePartition,
    inPlace: InPlace,
    signal: AbortSignal,
  ): Promise<CommitTimestamp | null> {
    const { client, rowsOf, end, heartbeatMs, onGap, gapValue } = this.#options
    const { limits, clock, random, logger } = this.#context
    const described = this.#described!
    const { mode } = described
    const supervisor = this.#supervisor!
    const endedAt = await readPartition(
      partition,
      {
        client,
        mode,
        retentionMs: (forFailure, partitionSignal) =>
          isJudgedByTimes(forFailure)
            ? described.askRetentionMs(partitionSignal)
            : Promise.resolve(described.retentionMs),
        onGap,
        rowsOf,
        gapValue,
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
          this.#queue.offer({ chunk, reading: partition.reading })
        },
        announce: (parent, record) => supervisor.announce(parent, record),
        childrenStart: (parent) => supervisor.childrenStart(parent),
        live: supervisor.live,
        barriers: supervisor.barriers,
        reread: () => this.#rereads++,
        skipped: (gap) => {
          this.#gaps++
          logger.error('history expired: changes are lost, reading goes on behind the gap', { ...gap })
        },
      },
      inPlace,
      signal,
    )
    // What moved in here came after its past was settled elsewhere. That is stored before this one is finished: else a
    // crash would bring the past again, and not what followed it.
    if (mode === 'mutable') await this.#checkpointer!.store(signal)
    return endedAt
  }

  /** The run is lost: whoever carries its deliveries hears of it at once, also if it no longer reads the stream. */
  #fail(error: unknown): void {
    this.#failed.abort(error)
    this.#halt(error)
  }

  #halt(error: unknown): void {
    this.#queue.fail(error)
    this.#opening.abort(error)
    this.#supervisor?.stop(error)
  }

  #reportForgotten(): void {
    for (const partition of this.#supervisor?.live.values() ?? []) {
      const { reading, token } = partition
      if (reading === undefined) continue
      const reported = reportForgotten(reading.tracker, token, partition.reportedId, this.#context)
      if (reported === undefined) continue
      partition.reportedId = reported
      if (this.#context.onSettleTimeout === 'retry') this.#rewind(reading)
    }
  }

  /** What still waits in the queue comes again with the rest: held twice, it would not be bounded. */
  #rewind(reading: Reading): void {
    reading.rewind()
    this.#queue.drop((queued) => queued.reading === reading)
  }

  // --- marks: up to where everything has entered the stream ---

  #scheduleMark(): void {
    this.#markTimer = this.#context.clock.after(MARK_INTERVAL_MS, () => {
      const entered = minimum([...(this.#supervisor?.live.values() ?? [])], (partition) => partition.enteredUpTo)
      if (entered !== undefined && (this.#lastMark === undefined || entered > this.#lastMark)) {
        this.#lastMark = entered
        // A consumer that stands still finds one mark behind what it has not taken, not one for each tick.
        this.#queue.offerInPlaceOf(isMarkOnly, { chunk: [mark(entered)], reading: undefined })
      }
      this.#scheduleMark()
    })
  }

  async #close(keepLeases: boolean): Promise<void> {
    this.#markTimer?.cancel()
    this.#halt(new ClosedError('spannerChangeStream: this run is closed'))
    // Whatever does not heed its signal is left behind.
    await settlesWithin(this.#context.clock, GRACE_MS, this.#reading)
    try {
      await this.#checkpointer?.close(keepLeases)
    } finally {
      for (const partition of this.#supervisor?.live.values() ?? []) partition.endReading()
      if (this.#options.ownsClient) await this.#options.client.close()
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

function isMarkOnly({ reading }: QueuedChunk<unknown>): boolean {
  return reading === undefined
}

/** A store that cannot be had at the start is a matter of the machine, not of the run. By code: it may be of another copy. */
function cannotBegin(error: unknown): never {
  const { code, message, retryable = false, hint } = Object(error) as Partial<StreamError>
  if (code !== 'STORE_FAILED' || message === undefined) throw error
  throw new EnvironmentError(message, { cause: error, retryable, ...(hint !== undefined && { hint }) })
}

const DRAINED = new Error('reading was drained')
const GRACE_MS = 2_000
const MARK_INTERVAL_MS = 250
const MIN_WINDOW = 1024
