/** One query as the server runs it: both doors of the simulator read from here. */
import type { PartitionQuery } from '../model/change-stream.ts'
import { type CommitTimestamp, MIN_TIMESTAMP, timestampToMs } from '../model/commit-timestamp.ts'
import type { ChangeStreamRecord } from '../model/data-change-record.ts'
import { type CommitClock, timestampFromMicros, timestampToMicros } from './commit-clock.ts'
import type { Fault, FaultInjector, FaultPlace } from './faults.ts'
import { QueryStatusError } from './grpc-status.ts'
import type { LedgerFault } from './ledger.ts'
import type { PartitionLog } from './partition-log.ts'
import { assertArguments, assertReadable, type KnownHistory } from './query-arguments.ts'
import { decodePosition, type QueryPosition } from './query-position.ts'
import type { SeededRandom } from './seeded-random.ts'

/** What a query needs of its stream. */
export interface QueryContext extends KnownHistory {
  readonly time: CommitClock
  readonly faults: FaultInjector
  readonly random: SeededRandom
  readonly maxPartRecords: number
  readonly latencyMs: readonly [min: number, max: number]
  readonly queryOfStream: number
  readonly queryOfToken: number
  /** The child records of the first query: the partitions live at `start`. */
  rootLog(start: CommitTimestamp): PartitionLog
  noteFault(fault: LedgerFault): void
  killConnections(): void
  ended(): void
}

export interface ServerPart {
  readonly records: readonly ChangeStreamRecord[]
  /** Where the query stands before and after these records. */
  readonly before: QueryPosition
  readonly after: QueryPosition
}

type Step =
  | { readonly kind: 'entries'; readonly count: number }
  | { readonly kind: 'heartbeat' }
  | { readonly kind: 'end' }

/** Pull-based: nothing is worked out before it is asked for. */
export class ServerQuery {
  readonly #query: PartitionQuery
  readonly #context: QueryContext
  #log: PartitionLog | undefined
  #isEnded = false
  #isKilled = false
  #wake: (() => void) | undefined

  // Where it stands.
  #entry = 0
  #piece = 0
  #progress: CommitTimestamp = MIN_TIMESTAMP
  #lastMessageMs = 0
  #messages = 0
  /** Whether the record was sent behind which a partition has nothing more. There may be several child records. */
  #hasSentLast = false

  constructor(query: PartitionQuery, context: QueryContext) {
    this.#query = query
    this.#context = context
  }

  /** The next records; undefined after a clean end or a cancel. Throws a QueryStatusError. One call at a time. */
  async next(): Promise<ServerPart | undefined> {
    try {
      const part = this.#isEnded ? undefined : await this.#next()
      if (part === undefined) this.cancel()
      return part
    } catch (error) {
      this.cancel()
      throw error
    }
  }

  /**
   * For doors that send a value in pieces: to be called between them. False if the query ended there; throws like
   * `next`.
   */
  async betweenPieces(): Promise<boolean> {
    try {
      this.#assertConnected()
      const fault = this.#drawFault({ ...this.#place('piece'), mayEndEarly: false })
      if (fault !== undefined) {
        await this.#suffer(fault)
        this.cancel()
      }
      return !this.#isEnded
    } catch (error) {
      this.cancel()
      throw error
    }
  }

  /** Ends the query; a waiting `next` resolves. Safe to call twice. */
  cancel(): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#context.ended()
    this.#wake?.()
  }

  /** The connection is lost: a waiting `next`, or the next one, throws UNAVAILABLE. */
  kill(): void {
    this.#isKilled = true
    this.#wake?.()
  }

  async #next(): Promise<ServerPart | undefined> {
    this.#assertConnected()
    const log = this.#log ?? (await this.#begin())
    if (log === undefined) return undefined
    const step = await this.#nextStep(log)
    if (step === undefined) return undefined
    const fault = this.#drawFault(this.#placeOf(step, log))
    if (fault !== undefined) return this.#suffer(fault)
    if (step.kind === 'end') return undefined
    this.#messages++
    this.#lastMessageMs = this.#context.clock.now()
    return step.kind === 'heartbeat' ? this.#heartbeat(log) : this.#take(log, step.count)
  }

  /** Checks the arguments, waits for a start in the future, and finds the first entry. */
  async #begin(): Promise<PartitionLog | undefined> {
    const { clock, time, random, latencyMs } = this.#context
    const { token, start, resumeToken } = this.#query
    assertArguments(this.#query, this.#context)
    if (!(await this.#waitUntil(clock.now() + between(latencyMs, random)))) return undefined
    if (!(await this.#waitUntil(timestampToMs(start)))) return undefined
    // The partitions of this time are fixed from here on: the next split comes after it.
    time.close(timestampToMicros(start))
    const log = token === null ? this.#context.rootLog(start) : assertReadable(token, start, this.#context).log
    const first = log.positionOf(start)
    this.#entry = first
    this.#progress = start
    this.#lastMessageMs = clock.now()
    if (resumeToken !== undefined) this.#continueAt(decodePosition(resumeToken, this.#query), log)
    const fault = this.#drawFault(this.#place('start', resumeToken !== undefined && this.#piece === 0))
    if (fault?.kind === 'duplicate-tail') this.#stepBack(log, first, fault.records ?? DUPLICATE_RECORDS)
    if (fault?.kind === 'slow-start') {
      if (!(await this.#waitUntil(clock.now() + (fault.delayMs ?? SLOW_START_MS)))) return undefined
    }
    log.observe(this.#entry)
    this.#log = log
    return log
  }

  #continueAt({ entry, piece, progress }: QueryPosition, log: PartitionLog): void {
    if (entry > log.end) throw new QueryStatusError('INVALID_ARGUMENT', 'The resume token points behind the end')
    this.#entry = Math.max(this.#entry, entry)
    this.#piece = piece
    this.#progress = progress
    // One child record may have been sent and another not: a clean end between them would be a lie.
    this.#hasSentLast = this.#isLast(log.at(this.#entry - 1)?.record.kind)
  }

  #stepBack(log: PartitionLog, first: number, records: number): void {
    for (let left = records; left > 0 && this.#entry > first; left--) {
      if (log.at(this.#entry - 1)?.record.kind !== 'data') return
      this.#entry--
    }
  }

  /** Waits until there is something to send. Undefined after a cancel. */
  async #nextStep(log: PartitionLog): Promise<Step | undefined> {
    for (;;) {
      const step = this.#stepNow(log)
      if (typeof step === 'object') return step
      if (!(await this.#wait(step, log))) return undefined
    }
  }

  /** What can be sent now, or the time to look again. */
  #stepNow(log: PartitionLog): Step | number {
    const { clock } = this.#context
    const { end, heartbeatMs } = this.#query
    if (this.#entry < log.first) {
      throw new QueryStatusError('OUT_OF_RANGE', 'The stream no longer keeps what this query has yet to return')
    }
    const pending = log.at(this.#entry)
    const nowMs = clock.now()
    if (pending === undefined && this.#hasSentLast) return { kind: 'end' }
    if (end !== null && (pending === undefined ? this.#isPast(end) : pending.timestamp > end)) return { kind: 'end' }
    if (pending !== undefined && pending.visibleAtMs <= nowMs) {
      return { kind: 'entries', count: this.#visibleEntries(log, nowMs) }
    }
    const endMs = end === null ? Number.POSITIVE_INFINITY : timestampToMs(end) + 1
    const nextMs = pending === undefined ? endMs : pending.visibleAtMs
    const heartbeatAtMs = this.#lastMessageMs + heartbeatMs
    if (heartbeatAtMs > nowMs) return Math.min(nextMs, heartbeatAtMs)
    if (this.#heartbeatTime(log) > this.#progress) return { kind: 'heartbeat' }
    // Commits that run ahead of the clock, or records on their way, leave nothing new to say for a moment.
    return Math.max(nowMs + 1, Math.min(nextMs, timestampToMs(this.#progress) + 1))
  }

  /** The first query ends behind the partitions to begin with, whatever kind of record names them. */
  #isLast(kind: ChangeStreamRecord['kind'] | undefined): boolean {
    return kind === 'children' || kind === 'end' || (kind === 'start' && this.#query.token === null)
  }

  #isPast(end: CommitTimestamp): boolean {
    const { time } = this.#context
    if (timestampFromMicros(time.presentMicros) <= end) return false
    time.close(timestampToMicros(end))
    return true
  }

  #visibleEntries(log: PartitionLog, nowMs: number): number {
    const { random, maxPartRecords, faults } = this.#context
    const { end } = this.#query
    const most = 1 + random.int(maxPartRecords)
    const first = log.at(this.#entry)!
    // Data and child records may come in one message, unless a fault is to come between them.
    const mayMix = random.chance(0.5) && !faults.awaitsChildren(this.#place('children'))
    let count = 0
    while (count < most) {
      const entry = log.at(this.#entry + count)
      if (entry === undefined || entry.visibleAtMs > nowMs || (end !== null && entry.timestamp > end)) break
      if (!mayMix && entry.record.kind !== first.record.kind) break
      count++
    }
    return count
  }

  /** The latest time of which it is true that everything in this partition up to it has been returned. */
  #heartbeatTime(log: PartitionLog): CommitTimestamp {
    const { end } = this.#query
    const pending = log.at(this.#entry)
    const present = this.#context.time.presentMicros
    const micros = pending === undefined ? present : Math.min(present, timestampToMicros(pending.timestamp) - 1)
    const timestamp = timestampFromMicros(micros)
    return end !== null && timestamp > end ? end : timestamp
  }

  #heartbeat(log: PartitionLog): ServerPart {
    const before = this.#position()
    const timestamp = this.#heartbeatTime(log)
    this.#progress = timestamp
    this.#context.time.close(timestampToMicros(timestamp))
    return { records: [{ kind: 'heartbeat', record: { timestamp } }], before, after: this.#position() }
  }

  #take(log: PartitionLog, count: number): ServerPart {
    const before = this.#position()
    const records: ChangeStreamRecord[] = []
    for (let i = 0; i < count; i++) {
      const { record, timestamp } = log.at(this.#entry++)!
      records.push(record)
      if (timestamp > this.#progress) this.#progress = timestamp
      if (this.#isLast(record.kind)) this.#hasSentLast = true
    }
    this.#piece = 0
    log.observe(this.#entry)
    return { records, before, after: this.#position() }
  }

  #position(): QueryPosition {
    return { entry: this.#entry, piece: this.#piece, progress: this.#progress }
  }

  #placeOf(step: Step, log: PartitionLog): FaultPlace {
    if (step.kind === 'end') return this.#place('end')
    const isChildren = step.kind === 'entries' && this.#isLast(log.at(this.#entry)?.record.kind)
    return this.#place(isChildren ? 'children' : 'message')
  }

  #place(next: FaultPlace['next'], isResumed = false): FaultPlace {
    const { queryOfStream, queryOfToken } = this.#context
    const { token, end } = this.#query
    const mayEndEarly = !this.#hasSentLast && (end === null || !this.#isBeforePresent(end))
    return { token, queryOfToken, queryOfStream, message: this.#messages + 1, next, isResumed, mayEndEarly }
  }

  #isBeforePresent(timestamp: CommitTimestamp): boolean {
    return timestamp <= timestampFromMicros(this.#context.time.presentMicros)
  }

  #drawFault(place: FaultPlace): Fault | undefined {
    const { faults, random, clock } = this.#context
    const fault = faults.draw(place, random)
    if (fault === undefined) return undefined
    const code = fault.kind === 'error' ? { code: fault.code } : {}
    const { token, queryOfStream: query, message } = place
    this.#context.noteFault({ kind: fault.kind, ...code, token, query, message, atMs: clock.now() })
    return fault
  }

  async #suffer(fault: Fault): Promise<undefined> {
    if (fault.kind === 'error') throw new QueryStatusError(fault.code, 'Injected by the simulator')
    if (fault.kind === 'kill-connection') {
      this.#context.killConnections()
      this.#assertConnected()
    }
    if (fault.kind === 'stall') while (await this.#wait(Number.POSITIVE_INFINITY)) {}
  }

  async #waitUntil(ms: number): Promise<boolean> {
    while (this.#context.clock.now() < ms) {
      if (!(await this.#wait(ms))) return false
    }
    return true
  }

  /** Waits for a time, for new entries, or to be ended; false if it was cancelled. */
  async #wait(untilMs: number, log?: PartitionLog): Promise<boolean> {
    const { clock } = this.#context
    this.#assertConnected()
    if (this.#isEnded) return false
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        timer?.cancel()
        unsubscribe?.()
        this.#wake = undefined
        resolve()
      }
      this.#wake = wake
      const timer = untilMs === Number.POSITIVE_INFINITY ? undefined : clock.after(untilMs - clock.now(), wake)
      const unsubscribe = log?.subscribe(wake)
    })
    this.#assertConnected()
    return !this.#isEnded
  }

  #assertConnected(): void {
    if (this.#isKilled) throw new QueryStatusError('UNAVAILABLE', 'The connection was closed')
  }
}

function between([min, max]: readonly [min: number, max: number], random: SeededRandom): number {
  return min + random.int(max - min + 1)
}

const DUPLICATE_RECORDS = 3
const SLOW_START_MS = 60_000
