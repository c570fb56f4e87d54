/** Reads one partition to its end: queries, resumes, drops repeats, hands out deliveries, asks for evidence. */
import { type Clock, sleep } from '../../core/clock.ts'
import { SourceDelivery } from '../../core/delivery.ts'
import { backoffMs } from '../../core/error-policy.ts'
import { describeThrown, StreamError } from '../../core/errors.ts'
import type { InFlightBudget } from '../../core/in-flight-budget.ts'
import { abortable, linkSignals } from '../../core/signals.ts'
import type { Chunk, Item } from '../../core/stage.ts'
import type { Logger } from '../../core/types.ts'
import type { ChangeStreamClient, PartitionQuery, QueryPart } from '../../model/change-stream.ts'
import type { CommitTimestamp } from '../../model/commit-timestamp.ts'
import type { ChildPartitionsRecord, DataChangeRecord } from '../../model/data-change-record.ts'
import { ROOT_TOKEN } from '../../model/partition.ts'
import type { DeliverableRows } from './deliverable-rows.ts'
import { type LivePartition, REWIND, type Reading, type SettlementDesk } from './live-partition.ts'
import { StallWatchdog } from './stall-watchdog.ts'

export interface ReaderContext<T> {
  readonly client: ChangeStreamClient
  readonly rowsOf: DeliverableRows<T>
  readonly end: CommitTimestamp | undefined
  readonly heartbeatMs: number
  /** Longest distance from the oldest open delivery to the newest one. */
  readonly maxWindow: number
  readonly budget: InFlightBudget
  readonly desk: SettlementDesk
  readonly clock: Clock
  readonly random: () => number
  readonly logger: Logger
  /** Takes deliveries; never waits, since the budget bounds them. */
  emit(chunk: Chunk<T>): void
  /** Resolves when the children are stored. */
  announce(parent: LivePartition, record: ChildPartitionsRecord): Promise<void>
  /** Counts a query that has to be sent again. */
  reread(): void
}

/**
 * Resolves when the partition has ended, with evidence, and everything that it handed out is settled: with the user's
 * end if that was reached, with null if the partition ended by itself.
 * Rejects with the signal's reason when stopped, or with the error that a retry cannot cure.
 */
export async function readPartition<T>(
  partition: LivePartition,
  context: ReaderContext<T>,
  signal: AbortSignal,
): Promise<CommitTimestamp | null> {
  for (;;) {
    const reading = partition.beginReading(context.budget, context.desk)
    const { signal: either, unlink } = linkSignals(signal, reading.signal)
    try {
      return await new PartitionReader(partition, reading, context, either).readToEnd()
    } catch (error) {
      if (error !== REWIND || signal.aborted) throw error
      context.logger.warn('reading again from the last settled position', { partition: partition.token })
    } finally {
      unlink()
    }
  }
}

/** How one query went. */
type QueryOutcome =
  | { readonly kind: 'ended' }
  | { readonly kind: 'stalled' }
  | { readonly kind: 'failed'; readonly error: unknown }

class PartitionReader<T> {
  readonly #partition: LivePartition
  readonly #reading: Reading
  readonly #context: ReaderContext<T>
  readonly #signal: AbortSignal

  #chunk: Item<T>[] = []
  /** When the children start: the end of this partition, once they are stored. Of this query and what it resumes. */
  #childrenStart: CommitTimestamp | undefined
  #isPastEnd = false
  #resumeToken: Uint8Array | undefined
  #stallLimitMs: number
  /** Whether the present query brought anything new: waits grow only while nothing does. */
  #hasProgressed = false

  constructor(partition: LivePartition, reading: Reading, context: ReaderContext<T>, signal: AbortSignal) {
    this.#partition = partition
    this.#reading = reading
    this.#context = context
    this.#signal = signal
    this.#stallLimitMs = firstStallLimitMs(context.heartbeatMs)
  }

  async readToEnd(): Promise<CommitTimestamp | null> {
    await this.#readUntilEvidence()
    // Only now does the watermark reach the end: everything before it is handed out and every child is stored.
    const endedAt = this.#isPastEnd ? this.#context.end : this.#childrenStart
    if (endedAt !== undefined) this.#reading.tracker.pass(endedAt)
    await abortable(this.#reading.tracker.idle(), this.#signal)
    return this.#isPastEnd ? (this.#context.end ?? null) : null
  }

  async #readUntilEvidence(): Promise<void> {
    let query = this.#queryFromPosition()
    for (let failures = 1; ; failures++) {
      this.#hasProgressed = false
      const outcome = await this.#runQuery(query)
      if (this.#signal.aborted) throw this.#signal.reason
      if (this.#isPastEnd || (outcome.kind === 'ended' && this.#childrenStart !== undefined)) return
      if (outcome.kind === 'failed' && !isPassing(outcome.error)) throw outcome.error

      if (this.#hasProgressed) failures = 1
      this.#setStallLimit(outcome)
      this.#noteReread(outcome)
      const canResume = outcome.kind === 'failed' && this.#hasProgressed && this.#resumeToken !== undefined
      query = canResume ? { ...query, resumeToken: this.#resumeToken! } : this.#queryFromPosition()
      await sleep(this.#context.clock, backoffMs(failures, 50, 10_000, this.#context.random), this.#signal)
    }
  }

  #queryFromPosition(): PartitionQuery {
    const { token } = this.#partition
    this.#resumeToken = undefined
    // There may be several child records: those of a broken query do not prove that a later one saw them all.
    this.#childrenStart = undefined
    return {
      token: token === ROOT_TOKEN ? null : token,
      start: this.#reading.position.timestamp,
      // No end for the server: a bounded query that ends early looks like one that ended. We read until something
      // past the user's end arrives, which is proof.
      end: null,
      heartbeatMs: this.#context.heartbeatMs,
    }
  }

  async #runQuery(query: PartitionQuery): Promise<QueryOutcome> {
    const { client, clock } = this.#context
    const cut = new AbortController()
    const { signal, unlink } = linkSignals(this.#signal, cut.signal)
    const watchdog = new StallWatchdog(clock, this.#stallLimitMs, () => cut.abort(STALLED))
    try {
      watchdog.arm()
      for await (const part of client.query(query, signal)) {
        watchdog.disarm()
        await this.#take(part)
        if (this.#isPastEnd) break
        watchdog.arm()
      }
      // A client may end its iteration when it is cut, instead of throwing: that is no end of the stream.
      return cut.signal.aborted ? { kind: 'stalled' } : { kind: 'ended' }
    } catch (error) {
      return cut.signal.aborted ? { kind: 'stalled' } : { kind: 'failed', error }
    } finally {
      watchdog.close()
      unlink()
      this.#flush()
    }
  }

  async #take({ records, resumeToken }: QueryPart): Promise<void> {
    for (const item of records) {
      if (item.kind === 'data') await this.#takeData(item.record, item.bytes)
      else if (item.kind === 'heartbeat') this.#takeTime(item.record.timestamp)
      else await this.#takeChildren(item.record)
      if (this.#isPastEnd) break
    }
    this.#flush()
    this.#resumeToken = resumeToken ?? this.#resumeToken
  }

  async #takeData(record: DataChangeRecord, bytes: number): Promise<void> {
    const { tracker, position, account } = this.#reading
    const { end, clock, rowsOf, maxWindow } = this.#context
    const timestamp = record.commitTimestamp
    if (end !== undefined && timestamp > end) {
      this.#isPastEnd = true
      return
    }
    const rows = rowsOf(record)
    const bytesEach = bytes / rows.length
    for (const { id, key, value } of rows) {
      if (!position.isNew(timestamp, id)) continue
      if (tracker.window >= maxWindow) {
        this.#flush()
        await abortable(tracker.windowBelow(maxWindow), this.#signal)
      }
      if (!account.tryTake(bytesEach)) {
        this.#flush()
        await account.take(bytesEach, this.#signal)
      }
      position.observe(timestamp, id)
      this.#hasProgressed = true
      const sequence = tracker.enter(timestamp, id, clock.now(), bytesEach)
      this.#chunk.push(new SourceDelivery(value, key, timestamp, id, this.#reading, sequence))
    }
  }

  #takeTime(timestamp: CommitTimestamp): void {
    const { end } = this.#context
    if (end !== undefined && timestamp > end) {
      this.#isPastEnd = true
      return
    }
    if (timestamp > this.#reading.position.timestamp) this.#hasProgressed = true
    this.#reading.position.observe(timestamp)
    this.#reading.tracker.pass(timestamp)
  }

  async #takeChildren(record: ChildPartitionsRecord): Promise<void> {
    const { end } = this.#context
    if (end !== undefined && record.startTimestamp > end) {
      this.#isPastEnd = true
      return
    }
    this.#flush()
    // Store the children first: an end that is noted before them would lose them.
    await this.#context.announce(this.#partition, record)
    this.#childrenStart = record.startTimestamp
  }

  /** A server that is slow to its first message must not be cut again and again before it. */
  #setStallLimit({ kind }: QueryOutcome): void {
    if (this.#hasProgressed) this.#stallLimitMs = firstStallLimitMs(this.#context.heartbeatMs)
    else if (kind === 'stalled') this.#stallLimitMs = Math.min(MAX_STALL_MS, this.#stallLimitMs * 2)
  }

  #flush(): void {
    if (this.#chunk.length === 0) return
    const chunk = this.#chunk
    this.#chunk = []
    this.#context.emit(chunk)
  }

  #noteReread(outcome: QueryOutcome): void {
    const { logger, reread } = this.#context
    reread()
    const fields = { partition: this.#partition.token, from: this.#reading.position.timestamp }
    if (outcome.kind === 'ended') logger.info('the stream ended without evidence and is read again', fields)
    else if (outcome.kind === 'stalled') logger.warn('the stream went silent and is read again', fields)
    else logger.info('the stream broke and is read again', { ...fields, error: describeThrown(outcome.error) })
  }
}

/** Only what says of itself that a retry can help: anything else may be a mistake of ours, and would repeat for ever. */
function isPassing(error: unknown): boolean {
  return error instanceof StreamError && error.retryable
}

/** Three heartbeats without a sign of life. */
function firstStallLimitMs(heartbeatMs: number): number {
  return Math.max(3 * heartbeatMs, 3_000)
}

const MAX_STALL_MS = 300_000
const STALLED = new Error('no sign of life')
