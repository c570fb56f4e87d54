/** Reads one partition to its end: queries, turns, resumes after failures, asks for evidence. */
import { sleep } from '../../core/clock.ts'
import { backoffMs } from '../../core/error-policy.ts'
import { describeThrown, type HistoryExpiredError } from '../../core/errors.ts'
import type { InFlightBudget } from '../../core/in-flight-budget.ts'
import { abortable, linkSignals } from '../../core/signals.ts'
import type { Logger } from '../../core/types.ts'
import type { ChangeStreamClient, PartitionMode, PartitionQuery } from '../../model/change-stream.ts'
import { type CommitTimestamp, timestampFromMs, timestampToMs } from '../../model/commit-timestamp.ts'
import type { Gap } from '../../model/data-change-record.ts'
import { ROOT_TOKEN } from '../../model/partition.ts'
import { type LivePartition, REWIND, type Reading, type SettlementDesk } from './live-partition.ts'
import { livePartitions } from './live-partitions.ts'
import { judgeFailure, type ReadVerdict } from './read-failure.ts'
import { type IntakeContext, RecordIntake } from './record-intake.ts'
import { StallWatchdog } from './stall-watchdog.ts'

export interface ReaderContext<T> extends IntakeContext<T> {
  readonly client: ChangeStreamClient
  readonly mode: PartitionMode
  readonly retentionMs: number
  readonly onGap: 'stop' | 'skip'
  readonly heartbeatMs: number
  readonly budget: InFlightBudget
  readonly desk: SettlementDesk
  readonly random: () => number
  readonly logger: Logger
  /** When the announced children of a partition start; undefined if none is known. */
  childrenStart(parent: LivePartition): CommitTimestamp | undefined
  /** Counts a query that has to be sent again. */
  reread(): void
  /** Counts a gap that is skipped. */
  skipped(gap: Gap): void
}

/** Runs work while the partition has one of the places for reading; the work is asked to end when others wait. */
export type InPlace = <R>(work: (isTurnOver: () => boolean) => Promise<R>) => Promise<R>

/**
 * Resolves when the partition has ended, with evidence, and everything that it handed out is settled: with the user's
 * end if that was reached, with null if the partition ended by itself.
 * Rejects with the signal's reason when stopped, or with the error that a retry cannot cure.
 */
export async function readPartition<T>(
  partition: LivePartition,
  context: ReaderContext<T>,
  inPlace: InPlace,
  signal: AbortSignal,
): Promise<CommitTimestamp | null> {
  for (;;) {
    const reading = partition.beginReading(context.budget, context.desk)
    const { signal: either, unlink } = linkSignals(signal, reading.signal)
    try {
      return await new PartitionReader(partition, reading, context, either).readToEnd(inPlace)
    } catch (error) {
      if (error !== REWIND || signal.aborted) throw error
      context.logger.warn('reading again from the last settled position', { partition: partition.token })
    } finally {
      unlink()
    }
  }
}

/** How one query went; it is left by us when what follows is not to be read now. */
type QueryOutcome =
  | { readonly kind: 'ended' | 'left' | 'stalled' }
  | { readonly kind: 'failed'; readonly error: unknown }

/** Why a turn is over: there is evidence of the end, others are to read, or other partitions have to be waited for. */
type TurnEnd = 'ended' | 'yielded' | 'held'

class PartitionReader<T> {
  readonly #partition: LivePartition
  readonly #reading: Reading
  readonly #context: ReaderContext<T>
  readonly #signal: AbortSignal
  readonly #intake: RecordIntake<T>

  #resumeToken: Uint8Array | undefined
  #stallLimitMs: number

  constructor(partition: LivePartition, reading: Reading, context: ReaderContext<T>, signal: AbortSignal) {
    this.#partition = partition
    this.#reading = reading
    this.#context = context
    this.#signal = signal
    this.#intake = new RecordIntake(partition, reading, context, signal)
    this.#stallLimitMs = firstStallLimitMs(context.heartbeatMs)
  }

  async readToEnd(inPlace: InPlace): Promise<CommitTimestamp | null> {
    for (;;) {
      const end = await inPlace((isTurnOver) => this.#readTurn(isTurnOver))
      if (end === 'ended') break
      // Outside of any place: the partitions that are waited for may need it.
      if (end === 'held') await this.#intake.passMoveIn()
    }
    // Only now does the watermark reach the end: everything before it is handed out and every child is stored.
    const { isPastEnd, endedAt, childrenStart } = this.#intake
    const end = isPastEnd ? this.#context.end : (endedAt ?? childrenStart)
    if (end !== undefined) this.#reading.tracker.pass(end)
    await abortable(this.#reading.tracker.idle(), this.#signal)
    return isPastEnd ? (this.#context.end ?? null) : null
  }

  async #readTurn(isTurnOver: () => boolean): Promise<TurnEnd> {
    const intake = this.#intake
    let query = this.#queryFromPosition()
    for (let failures = 1; ; failures++) {
      intake.hasProgressed = false
      const outcome = await this.#runQuery(query, isTurnOver)
      if (this.#signal.aborted) throw this.#signal.reason
      if (this.#hasEnded(outcome)) return 'ended'
      if (intake.moveIn !== undefined) return 'held'
      if (outcome.kind === 'left') return 'yielded'
      if (intake.hasProgressed) failures = 1

      let waitMs = backoffMs(failures, 50, 10_000, this.#context.random)
      if (outcome.kind === 'failed') {
        const verdict = this.#judge(outcome.error, query, failures)
        if (verdict.kind === 'stop') throw verdict.error
        if (verdict.kind === 'ended') intake.endedAt = verdict.at
        if (verdict.kind === 'expired') await this.#skipGap(verdict.error)
        if (verdict.kind === 'retry') waitMs = Math.max(verdict.minDelayMs, waitMs)
        if (intake.endedAt !== undefined) return 'ended'
      }
      const isBorder = this.#isBorder(outcome, query)
      this.#setStallLimit(outcome)
      if (!isBorder) this.#noteReread(outcome)
      const canResume = outcome.kind === 'failed' && intake.hasProgressed && this.#resumeToken !== undefined
      query = canResume ? { ...query, resumeToken: this.#resumeToken! } : this.#queryFromPosition()
      if (!isBorder) await sleep(this.#context.clock, waitMs, this.#signal)
    }
  }

  /** Evidence: the user's end, an end record, or children and a clean end behind them. */
  #hasEnded({ kind }: QueryOutcome): boolean {
    const { isPastEnd, endedAt, childrenStart } = this.#intake
    return isPastEnd || endedAt !== undefined || (kind === 'ended' && childrenStart !== undefined)
  }

  /** Mutable partitions are read in windows: the end of one is no end of the partition, and no failure either. */
  #isBorder({ kind }: QueryOutcome, { end }: PartitionQuery): boolean {
    return kind === 'ended' && end !== null && timestampFromMs(this.#context.clock.now()) > end
  }

  #judge(error: unknown, query: PartitionQuery, failures: number): ReadVerdict {
    const { clock, retentionMs, childrenStart, onGap } = this.#context
    const verdict = judgeFailure(error, {
      token: this.#partition.token,
      // A query that fell behind while it ran fails at what it would have read next.
      start: this.#intake.hasProgressed ? this.#reading.position.timestamp : query.start,
      childrenStart: childrenStart(this.#partition),
      failures,
      nowMs: clock.now(),
      retentionMs,
    })
    return verdict.kind === 'expired' && onGap === 'stop' ? { kind: 'stop', error: verdict.error } : verdict
  }

  #queryFromPosition(): PartitionQuery {
    const { token } = this.#partition
    this.#resumeToken = undefined
    // There may be several child records: those of a broken query do not prove that a later one saw them all.
    this.#intake.childrenStart = undefined
    return this.#query(token === ROOT_TOKEN ? null : token, this.#reading.position.timestamp)
  }

  #query(token: string | null, start: CommitTimestamp): PartitionQuery {
    const { mode, heartbeatMs, clock } = this.#context
    // No end for the server if it can be: a bounded query that ends early looks like one that ended. We read until
    // something past the user's end arrives, which is proof. For the same reason a window begins where something was
    // last seen, and not where the one before it ended.
    const end = mode === 'mutable' ? windowEnd(start, clock.now()) : null
    return { token, start, end, heartbeatMs }
  }

  async #runQuery(query: PartitionQuery, isTurnOver: () => boolean): Promise<QueryOutcome> {
    const { client, clock } = this.#context
    const intake = this.#intake
    const cut = new AbortController()
    const { signal, unlink } = linkSignals(this.#signal, cut.signal)
    const watchdog = new StallWatchdog(clock, this.#stallLimitMs, () => cut.abort(STALLED))
    try {
      watchdog.arm()
      for await (const part of client.query(query, signal)) {
        watchdog.disarm()
        await intake.take(part)
        this.#resumeToken = part.resumeToken ?? this.#resumeToken
        if (intake.isDone || isTurnOver()) return { kind: 'left' }
        watchdog.arm()
      }
      // A client may end its iteration when it is cut, instead of throwing: that is no end of the stream.
      return cut.signal.aborted ? { kind: 'stalled' } : { kind: 'ended' }
    } catch (error) {
      return cut.signal.aborted ? { kind: 'stalled' } : { kind: 'failed', error }
    } finally {
      watchdog.close()
      unlink()
      intake.flush()
    }
  }

  /** Goes on behind what is lost: says so to the consumer, and finds out which partitions there are by then. */
  async #skipGap({ gap: { from, to } }: HistoryExpiredError): Promise<void> {
    const { client, announce, skipped } = this.#context
    const { token } = this.#partition
    const gap: Gap = { op: 'gap', partitionToken: token, from, to }
    let isLive = token === ROOT_TOKEN
    if (!isLive) {
      const live = await livePartitions(client, this.#query(null, to), this.#signal)
      isLive = live.delete(token)
      // Partitions that are known already stay as they are; the others may descend from this one.
      const children = [...live].map((other) => ({ token: other, parentTokens: [token] }))
      await announce(this.#partition, { startTimestamp: to, recordSequence: '', children })
    }
    await this.#intake.takeGap(gap)
    skipped(gap)
    if (!isLive) this.#intake.endedAt = to
  }

  /** A server that is slow to its first message must not be cut again and again before it. */
  #setStallLimit({ kind }: QueryOutcome): void {
    if (this.#intake.hasProgressed) this.#stallLimitMs = firstStallLimitMs(this.#context.heartbeatMs)
    else if (kind === 'stalled') this.#stallLimitMs = Math.min(MAX_STALL_MS, this.#stallLimitMs * 2)
  }

  #noteReread(outcome: QueryOutcome): void {
    const { logger, reread } = this.#context
    reread()
    const fields = { partition: this.#partition.token, from: this.#reading.position.timestamp }
    if (outcome.kind === 'stalled') logger.warn('the stream went silent and is read again', fields)
    else if (outcome.kind === 'failed') {
      logger.info('the stream broke and is read again', { ...fields, error: describeThrown(outcome.error) })
    } else logger.info('the stream ended without evidence and is read again', fields)
  }
}

/** How far a window reaches: the service allows 30 minutes past now, or past a start that lies ahead. */
function windowEnd(start: CommitTimestamp, nowMs: number): CommitTimestamp {
  return timestampFromMs(Math.max(nowMs, timestampToMs(start)) + WINDOW_MS)
}

/** Three heartbeats without a sign of life. */
function firstStallLimitMs(heartbeatMs: number): number {
  return Math.max(3 * heartbeatMs, 3_000)
}

const MAX_STALL_MS = 300_000
const WINDOW_MS = 120_000
const STALLED = new Error('no sign of life')
