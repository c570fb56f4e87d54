/** Reads one partition to its end: queries, turns, resumes after failures, asks for evidence. */
import { sleep } from '../../core/clock.ts'
import { backoffMs } from '../../core/error-policy.ts'
import { describeThrown, type HistoryExpiredError, SourceError } from '../../core/errors.ts'
import type { InFlightBudget } from '../../core/in-flight-budget.ts'
import { abortable, linkSignals } from '../../core/signals.ts'
import type { Logger } from '../../core/types.ts'
import type { ChangeStreamClient, PartitionMode, PartitionQuery, QueryPart } from '../../model/change-stream.ts'
import { type CommitTimestamp, timestampFromMs, timestampToMs } from '../../model/commit-timestamp.ts'
import type { ChildPartition, Gap } from '../../model/data-change-record.ts'
import { ROOT_TOKEN } from '../../model/partition.ts'
import { type LivePartition, REWIND, type Reading, type SettlementDesk } from './live-partition.ts'
import { livePartitions } from './live-partitions.ts'
import { judgeFailure, type ReadVerdict } from './read-failure.ts'
import { type IntakeContext, RecordIntake } from './record-intake.ts'
import { type QueryOutcome, watchedQuery } from './watched-query.ts'

export interface ReaderContext<T> extends IntakeContext<T> {
  readonly client: ChangeStreamClient
  readonly mode: PartitionMode
  /** How long the stream keeps its history, asked anew if the failure may come from that. */
  retentionMs(failure: unknown, signal: AbortSignal): Promise<number>
  readonly onGap: 'stop' | 'skip'
  readonly heartbeatMs: number
  readonly budget: InFlightBudget
  readonly desk: SettlementDesk
  readonly random: () => number
  readonly logger: Logger
  /** When the announced children of a partition start; undefined if none is known. */
  childrenStart(parent: LivePartition): CommitTimestamp | undefined
  /** Partitions that are not finished, announced ones included. */
  readonly live: ReadonlyMap<string, LivePartition>
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

/** Why a turn is over: there is evidence of the end, others are to read, or other partitions have to be waited for. */
type TurnEnd = 'ended' | 'yielded' | 'held'

class PartitionReader<T> {
  readonly #partition: LivePartition
  readonly #reading: Reading
  readonly #context: ReaderContext<T>
  readonly #signal: AbortSignal
  readonly #intake: RecordIntake<T>

  #resumeToken: Uint8Array | undefined
  /** Where the last gap ends. */
  #gapEnd: CommitTimestamp | undefined
  #stallLimitMs: number
  /** Queries in a row that had to be sent again without anything new, and those of them that failed in the same way. */
  #failures = 0
  #sameFailures = 0
  #lastStatus: string | undefined

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
    // What is open may be held, downstream, until a mark passes it: nobody has to wait for more of this partition.
    this.#reading.hasEnded = true
    this.#context.barriers.progressed(this.#partition.token)
    await abortable(this.#reading.tracker.idle(), this.#signal)
    return isPastEnd ? (this.#context.end ?? null) : null
  }

  async #readTurn(isTurnOver: () => boolean): Promise<TurnEnd> {
    const intake = this.#intake
    let query = this.#queryFromPosition()
    for (;;) {
      intake.hasProgressed = false
      const outcome = await this.#runQuery(query, isTurnOver)
      if (this.#signal.aborted) throw this.#signal.reason
      if (this.#hasEnded(outcome)) return 'ended'
      if (intake.moveIn !== undefined) return 'held'
      if (outcome.kind === 'left') return 'yielded'
      this.#countFailure(outcome)

      let minDelayMs = 0
      if (await this.#isTokenRefused(outcome, query)) {
        // The token may have been of another session or too old: what it stood for is known without it.
        this.#resumeToken = undefined
        query = this.#queryFromPosition()
        continue
      }
      if (outcome.kind === 'failed') {
        let verdict = await this.#judge(outcome.error, query)
        if (verdict.kind === 'expired') verdict = await this.#skipGap(verdict.error)
        if (verdict.kind === 'stop') throw verdict.error
        if (verdict.kind === 'ended') intake.endedAt = verdict.at
        if (verdict.kind === 'retry') minDelayMs = verdict.minDelayMs
        if (intake.endedAt !== undefined || intake.isPastEnd) return 'ended'
      }
      const isBorder = this.#isBorder(outcome, query)
      this.#setStallLimit(outcome)
      if (!isBorder) this.#noteReread(outcome)
      // Who fails again and again must not keep a place that others wait for.
      if (isTurnOver()) return 'yielded'
      query = this.#canResume(outcome, query)
        ? { ...query, resumeToken: this.#resumeToken! }
        : this.#queryFromPosition()
      if (isBorder) continue
      const waitMs = backoffMs(this.#failures, 50, 10_000, this.#context.random)
      await sleep(this.#context.clock, Math.max(minDelayMs, waitMs), this.#signal)
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

  #countFailure(outcome: QueryOutcome): void {
    const error = outcome.kind === 'failed' ? outcome.error : undefined
    const status = error instanceof SourceError ? error.status : undefined
    const { hasProgressed } = this.#intake
    this.#failures = hasProgressed ? 1 : this.#failures + 1
    this.#sameFailures = hasProgressed || status !== this.#lastStatus ? 1 : this.#sameFailures + 1
    this.#lastStatus = status
  }

  /** A resumed query keeps its first start, which must not grow as old as the retention. */
  #canResume({ kind }: QueryOutcome, { start }: PartitionQuery): boolean {
    if (kind !== 'failed' || !this.#intake.hasProgressed || this.#resumeToken === undefined) return false
    return timestampToMs(this.#reading.position.timestamp) - timestampToMs(start) < MAX_RESUMED_MS
  }

  /** Whether a resumed query failed at once with something that a retry does not cure. */
  async #isTokenRefused(outcome: QueryOutcome, query: PartitionQuery): Promise<boolean> {
    if (outcome.kind !== 'failed' || query.resumeToken === undefined || this.#intake.hasProgressed) return false
    return (await this.#judge(outcome.error, query)).kind !== 'retry'
  }

  async #judge(error: unknown, query: PartitionQuery): Promise<ReadVerdict> {
    const { clock, childrenStart, onGap } = this.#context
    const retentionMs = await this.#context.retentionMs(error, this.#signal)
    // A query that fell behind while it ran fails at what it would have read next.
    const start = this.#intake.hasProgressed ? this.#reading.position.timestamp : query.start
    const verdict = judgeFailure(error, {
      token: query.token ?? ROOT_TOKEN,
      start,
      isBehindGap: start === this.#gapEnd,
      childrenStart: childrenStart(this.#partition),
      failures: this.#sameFailures,
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
    const end = mode === 'mutable' ? windowEnd(start, clock.now(), heartbeatMs) : null
    return { token, start, end, heartbeatMs }
  }

  async #runQuery(query: PartitionQuery, isTurnOver: () => boolean): Promise<QueryOutcome> {
    const { client, clock } = this.#context
    const intake = this.#intake
    const take = async (part: QueryPart): Promise<'go on' | 'leave'> => {
      await intake.take(part)
      this.#resumeToken = part.resumeToken ?? this.#resumeToken
      // A turn brings something new, however slow the server is: else it might never come to an end.
      return intake.isDone || (intake.hasProgressed && isTurnOver()) ? 'leave' : 'go on'
    }
    try {
      return await watchedQuery(query, { client, clock, stallLimitMs: this.#stallLimitMs }, take, this.#signal)
    } finally {
      intake.flush()
    }
  }

  /** Goes on behind what is lost: says so to the consumer, and finds out which partitions there are by then. */
  async #skipGap({ gap: { from, to } }: HistoryExpiredError): Promise<ReadVerdict> {
    const { client, clock, announce, skipped, end, childrenStart } = this.#context
    const { token } = this.#partition
    const gap: Gap = { op: 'gap', partitionToken: token, from, to }
    // Behind the user's end there is nothing to look for.
    const isPastEnd = end !== undefined && to > end
    // A first query that has brought nothing yet is simply asked later. Else some of its partitions are known already.
    const isUnread = token === ROOT_TOKEN && childrenStart(this.#partition) === undefined
    let isLive = isUnread || isPastEnd
    this.#gapEnd = to
    if (!isLive) {
      const query = this.#query(null, to)
      const watch = { client, clock, stallLimitMs: this.#stallLimitMs }
      const { outcome, tokens } = await livePartitions(query, watch, this.#signal)
      if (this.#signal.aborted) throw this.#signal.reason
      if (tokens === undefined) return this.#gapNotSkipped(outcome, query)
      isLive = tokens.delete(token)
      // Who starts behind the gap without waiting for the end of this one finds everything before it settled.
      if (isLive) await abortable(this.#reading.tracker.idle(), this.#signal)
      const children = this.#childrenBehindGap(tokens, isLive, to)
      await announce(this.#partition, { startTimestamp: to, recordSequence: '', children })
    }
    this.#resumeToken = undefined
    await this.#intake.takeGap(gap)
    skipped(gap)
    if (!isLive) this.#intake.endedAt = to
    return RETRY
  }

  /** The partition's own query will fail again, and lead here again. */
  async #gapNotSkipped(outcome: QueryOutcome, query: PartitionQuery): Promise<ReadVerdict> {
    if (outcome.kind === 'stalled') this.#widenStallLimit()
    if (outcome.kind !== 'failed') return RETRY
    const verdict = await this.#judge(outcome.error, query)
    return verdict.kind === 'stop' ? verdict : RETRY
  }

  /**
   * Partitions that are known already stay as they are. The others may descend from any known one that is gone by then,
   * and wait for all of these: each comes to its end, by its records or by a gap of its own.
   */
  #childrenBehindGap(tokens: ReadonlySet<string>, isLive: boolean, to: CommitTimestamp): ChildPartition[] {
    // Who keeps its range has no descendants yet: the others are found by those that they descend from.
    if (isLive && this.#context.mode === 'immutable') return []
    const isGone = (known: LivePartition): boolean =>
      known.token !== ROOT_TOKEN && known.start < to && !tokens.has(known.token) && known !== this.#partition
    const gone = [...this.#context.live.values()].filter(isGone).map((known) => known.token)
    const parentTokens = isLive ? gone : [this.#partition.token, ...gone]
    return [...tokens].map((token) => ({ token, parentTokens }))
  }

  /** A server that is slow to its first message must not be cut again and again before it. */
  #setStallLimit({ kind }: QueryOutcome): void {
    if (this.#intake.hasProgressed) this.#stallLimitMs = firstStallLimitMs(this.#context.heartbeatMs)
    else if (kind === 'stalled') this.#widenStallLimit()
  }

  #widenStallLimit(): void {
    const least = firstStallLimitMs(this.#context.heartbeatMs)
    this.#stallLimitMs = Math.max(least, Math.min(MAX_STALL_MS, this.#stallLimitMs * 2))
  }

  #noteReread(outcome: QueryOutcome): void {
    const { logger, reread } = this.#context
    reread()
    const fields = { partition: this.#partition.token, from: this.#reading.position.timestamp }
    if (outcome.kind === 'stalled') logger.warn('the stream went silent and is read again', fields)
    else if (outcome.kind === 'failed') {
      const { error } = outcome
      const status = error instanceof SourceError && error.status !== undefined ? { status: error.status } : {}
      const again = { ...fields, failures: this.#failures, ...status, error: describeThrown(error) }
      if (this.#failures < MANY_FAILURES) logger.info('the stream broke and is read again', again)
      else logger.warn('the stream cannot be read and is tried again', again)
    } else logger.info('the stream ended without evidence and is read again', fields)
  }
}

/**
 * How far a window reaches: the service allows 30 minutes past now, or past a start that lies ahead. Several heartbeats
 * come in each, or an idle partition would never be seen to get on.
 */
function windowEnd(start: CommitTimestamp, nowMs: number, heartbeatMs: number): CommitTimestamp {
  return timestampFromMs(Math.max(nowMs, timestampToMs(start)) + Math.max(WINDOW_MS, 3 * heartbeatMs))
}

/** Three heartbeats without a sign of life. */
function firstStallLimitMs(heartbeatMs: number): number {
  return Math.max(3 * heartbeatMs, 3_000)
}

const MAX_STALL_MS = 300_000
const MAX_RESUMED_MS = 600_000
const MANY_FAILURES = 5
const WINDOW_MS = 120_000
const RETRY: ReadVerdict = { kind: 'retry', minDelayMs: 0 }
