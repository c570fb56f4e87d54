/** What happened in a simulated or real run: the stream's own ledger, the recorded events, and facts drawn from both. */
import type { CommitTimestamp } from '../../src/model/commit-timestamp.ts'
import { type PartitionState, ROOT_TOKEN } from '../../src/model/partition.ts'

/** One row change as the stream committed it. */
export interface LedgerChange {
  readonly id: string
  readonly key: string
  readonly commitTimestamp: CommitTimestamp
  readonly partitionToken: string
}

/** One partition as the stream made it. */
export interface LedgerPartition {
  readonly token: string
  readonly parents: readonly string[]
  readonly start: CommitTimestamp
  /** When its children took over; null while it is open. */
  readonly end: CommitTimestamp | null
}

/** A key range that moved between two partitions that live on, or are made or end by it. */
export interface LedgerMove {
  readonly timestamp: CommitTimestamp
  readonly from: string
  readonly to: string
}

/** The truth that a run is judged by. The simulator's ledger is a superset. */
export interface Ledger {
  /** In commit order. */
  readonly changes: readonly LedgerChange[]
  readonly partitions: readonly LedgerPartition[]
  /** With mutable key ranges only. */
  readonly moves?: readonly LedgerMove[]
}

/** Partitions from the steps that made them, as the simulator's ledger lists them: parents end where children start. */
export function lineageOf(
  topology: readonly {
    readonly timestamp: CommitTimestamp
    readonly parents: readonly string[]
    readonly children: readonly string[]
  }[],
): LedgerPartition[] {
  const partitions = new Map<string, LedgerPartition>()
  for (const { timestamp, parents, children } of topology) {
    for (const token of parents) {
      const parent = partitions.get(token)
      if (parent === undefined) throw new Error(`lineageOf: partition ${token} ended before it began`)
      partitions.set(token, { ...parent, end: timestamp })
    }
    for (const token of children) partitions.set(token, { token, parents, start: timestamp, end: null })
  }
  return [...partitions.values()]
}

/** Moves from the steps that made them, as the simulator's ledger lists them. */
export function movesOf(
  topology: readonly {
    readonly kind: string
    readonly timestamp: CommitTimestamp
    readonly parents: readonly string[]
    readonly children: readonly string[]
  }[],
): LedgerMove[] {
  return topology.flatMap(({ kind, timestamp, parents, children }) =>
    parents.flatMap((from, index) =>
      (kind === 'rotateRanges' ? [children[index]!] : children).map((to) => ({ timestamp, from, to })),
    ),
  )
}

export type RunOutcome = 'drained' | 'finished' | 'failed'

/** What the client gave back: `end` is a query that ended without an error, nothing more; `last` is an end record. */
export type AnswerKind = 'data' | 'heartbeat' | 'children' | 'event' | 'last' | 'end' | 'error'

export type StoreOperation = 'createRoot' | 'claim' | 'addChildren' | 'advance' | 'checkpoint' | 'finish' | 'release'

/** One row written, or refused, by the partition store. A commit of many rows is many of these. */
export interface StoreWrite {
  readonly op: StoreOperation
  /** The row; for `addChildren` the parent's. */
  readonly token: string
  readonly owner: string
  readonly epoch: number
  /** Whether the row was changed. */
  readonly accepted: boolean
  readonly watermark?: CommitTimestamp
  readonly boundaryIds?: readonly string[]
  /** The state that the row has afterwards. */
  readonly state?: PartitionState
  /**
   * `history.position` when the store was asked: progress must be true then, not only when the store had answered.
   * @default the event's own number
   */
  readonly askedAt?: number
  /**
   * For a claim: how long another owner still held the row.
   * @default 0
   */
  readonly leaseLeftMs?: number
}

/** What a gap says: some changes of this partition, or of what came of it, are lost from `from` to just before `to`. */
export interface GapNote {
  readonly token: string
  readonly from: CommitTimestamp
  readonly to: CommitTimestamp
}

/** Every event carries its running number and the run that it belongs to; two workers at once are two runs. */
export type HistoryEvent = { readonly number: number; readonly run: number } & (
  | { readonly type: 'run-started' }
  | { readonly type: 'run-crashed' }
  | { readonly type: 'run-ended'; readonly outcome: RunOutcome }
  | {
      readonly type: 'query-started'
      readonly token: string
      readonly start: CommitTimestamp
      /** Continues an earlier query by its resume token, so what that one returned still counts. */
      readonly resumed: boolean
    }
  | {
      readonly type: 'query-returned'
      readonly token: string
      readonly kind: AnswerKind
      readonly timestamp?: CommitTimestamp
      readonly ids?: readonly string[]
    }
  | { readonly type: 'delivered'; readonly id: string; readonly key: string }
  | { readonly type: 'written'; readonly id: string; readonly key: string; readonly timestamp: CommitTimestamp }
  | { readonly type: 'skipped'; readonly id: string }
  /** A gap left the source, or its place at the sink is taken; `expiredBefore` is what the stream kept by then. */
  | ({ readonly type: 'gap-delivered' | 'gap-written'; readonly expiredBefore: CommitTimestamp } & GapNote)
  /** How many gaps the run says that it skipped. */
  | { readonly type: 'gap-count'; readonly count: number }
  | ({ readonly type: 'store-write' } & StoreWrite)
  | { readonly type: 'in-flight'; readonly count: number; readonly bytes: number }
  | { readonly type: 'low-watermark'; readonly value: CommitTimestamp }
)

export type EventOf<Type extends HistoryEvent['type']> = Extract<HistoryEvent, { readonly type: Type }>

/**
 * An append-only list of what was seen at the edges of Millrace. Record at the far side of injected faults: a write
 * that the target applied counts, also if its answer was lost on the way back.
 */
export class History {
  readonly events: HistoryEvent[] = []

  /** The number that the next event gets. */
  get position(): number {
    return this.events.length
  }

  runStarted(run: number): void {
    this.events.push({ number: this.position, type: 'run-started', run })
  }

  runCrashed(run: number): void {
    this.events.push({ number: this.position, type: 'run-crashed', run })
  }

  runEnded(run: number, outcome: RunOutcome): void {
    this.events.push({ number: this.position, type: 'run-ended', run, outcome })
  }

  /** A null token is the first query of a stream, noted under the root's token. */
  queryStarted(run: number, token: string | null, start: CommitTimestamp, resumed = false): void {
    this.events.push({ number: this.position, type: 'query-started', run, token: token ?? ROOT_TOKEN, start, resumed })
  }

  queryReturned(
    run: number,
    token: string | null,
    kind: AnswerKind,
    answer: { readonly timestamp?: CommitTimestamp; readonly ids?: readonly string[] } = {},
  ): void {
    this.events.push({
      number: this.position,
      type: 'query-returned',
      run,
      token: token ?? ROOT_TOKEN,
      kind,
      ...answer,
    })
  }

  /** A delivery left the source. */
  delivered(run: number, { id, key }: { readonly id: string; readonly key: string }): void {
    this.events.push({ number: this.position, type: 'delivered', run, id, key })
  }

  /** A change is durable at the sink. */
  written(
    run: number,
    { id, key, timestamp }: { readonly id: string; readonly key: string; readonly timestamp: CommitTimestamp },
  ): void {
    this.events.push({ number: this.position, type: 'written', run, id, key, timestamp })
  }

  /** A change was dropped because the pipeline says so: by a filter, or given up by the error policy. */
  skipped(run: number, id: string): void {
    this.events.push({ number: this.position, type: 'skipped', run, id })
  }

  gap(type: 'gap-delivered' | 'gap-written', run: number, gap: GapNote, expiredBefore: CommitTimestamp): void {
    this.events.push({ number: this.position, type, run, ...gap, expiredBefore })
  }

  gapCount(run: number, count: number): void {
    this.events.push({ number: this.position, type: 'gap-count', run, count })
  }

  storeWrite(run: number, write: StoreWrite): void {
    this.events.push({ number: this.position, type: 'store-write', run, ...write })
  }

  inFlight(run: number, count: number, bytes: number): void {
    this.events.push({ number: this.position, type: 'in-flight', run, count, bytes })
  }

  lowWatermark(run: number, value: CommitTimestamp): void {
    this.events.push({ number: this.position, type: 'low-watermark', run, value })
  }
}

/** What a pipeline was asked to read; both ends are inclusive. */
export interface ReadRange {
  readonly start: CommitTimestamp
  readonly end: CommitTimestamp | null
}

/** A change in range, with the number of the event that settled it first; Infinity if none did. */
export interface JudgedChange extends LedgerChange {
  readonly settledAt: number
}

/** The changes of a partition, or of all, in time order: answers "what was open at that moment" in O(log n). */
export class Timeline {
  readonly #changes: readonly JudgedChange[]
  /** Entry i: of the changes 0..i, the one that was settled last. */
  readonly #lastSettled: JudgedChange[] = []

  constructor(changes: readonly JudgedChange[]) {
    this.#changes = changes.toSorted((a, b) => compareText(a.commitTimestamp, b.commitTimestamp))
    let last: JudgedChange | undefined
    for (const change of this.#changes) {
      if (last === undefined || change.settledAt > last.settledAt) last = change
      this.#lastSettled.push(last)
    }
  }

  /** A change committed at or before `timestamp` that was not settled when event `number` came. */
  openUpTo(timestamp: CommitTimestamp, number: number): JudgedChange | undefined {
    // No time lies between this text and the time itself.
    return this.openBefore(`${timestamp}~`, number)
  }

  /** A change committed before `timestamp` (null: at any time) that was not settled when event `number` came. */
  openBefore(timestamp: CommitTimestamp | null, number: number): JudgedChange | undefined {
    const count = timestamp === null ? this.#changes.length : this.#countBefore(timestamp)
    const last = this.#lastSettled[count - 1]
    return last !== undefined && last.settledAt >= number ? last : undefined
  }

  #countBefore(timestamp: CommitTimestamp): number {
    let low = 0
    let high = this.#changes.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.#changes[middle]!.commitTimestamp < timestamp) low = middle + 1
      else high = middle
    }
    return low
  }
}

/** A stored checkpoint. */
export interface Progress {
  readonly watermark: CommitTimestamp
  readonly boundaryIds: readonly string[]
}

/** Which changes of a partition a stored checkpoint covers: what a restart from it must not bring again. */
export class Coverage {
  readonly #watermark: CommitTimestamp
  readonly #boundaryIds: ReadonlySet<string>

  constructor(progress: Progress | undefined) {
    this.#watermark = progress?.watermark ?? ''
    this.#boundaryIds = new Set(progress?.boundaryIds)
  }

  has({ id, commitTimestamp }: LedgerChange): boolean {
    return commitTimestamp < this.#watermark || (commitTimestamp === this.#watermark && this.#boundaryIds.has(id))
  }
}

/** What one run has delivered and not settled, by partition. */
export class OpenDeliveries {
  readonly #byToken = new Map<string, Map<string, CommitTimestamp>>()
  count = 0

  /** How many partitions are being read. */
  get partitions(): number {
    return this.#byToken.size
  }

  read(token: string, from: CommitTimestamp | null): void {
    const open = this.#byToken.get(token)
    if (open === undefined) this.#byToken.set(token, new Map())
    else if (from !== null) {
      for (const [id, timestamp] of open) if (timestamp >= from) this.#remove(open, id)
    }
  }

  add({ id, partitionToken, commitTimestamp }: LedgerChange): void {
    const open = this.#byToken.get(partitionToken) ?? new Map<string, CommitTimestamp>()
    this.#byToken.set(partitionToken, open)
    if (!open.has(id)) this.count++
    open.set(id, commitTimestamp)
  }

  settle(change: LedgerChange | undefined): void {
    const open = change && this.#byToken.get(change.partitionToken)
    if (open) this.#remove(open, change.id)
  }

  /** The partition is read no more; what is open stays open, whatever the store says. */
  finish(token: string): void {
    if (this.#byToken.get(token)?.size === 0) this.#byToken.delete(token)
  }

  giveUp(token: string): void {
    this.count -= this.#byToken.get(token)?.size ?? 0
    this.#byToken.delete(token)
  }

  #remove(open: Map<string, CommitTimestamp>, id: string): void {
    if (open.delete(id)) this.count--
  }
}

/** Everything that several checks need, gathered once. */
export interface Facts {
  readonly range: ReadRange
  readonly events: readonly HistoryEvent[]
  /** Whether a gap at the sink says that a change may be lost. */
  readonly isLost: (change: LedgerChange) => boolean
  /** All changes of the ledger, in range or not. */
  readonly changes: ReadonlyMap<string, LedgerChange>
  /** Changes in range, in commit order. */
  readonly inRange: readonly JudgedChange[]
  readonly judged: ReadonlyMap<string, JudgedChange>
  readonly partitions: ReadonlyMap<string, LedgerPartition>
  readonly moves: readonly LedgerMove[]
  /** Timelines of single partitions, and of all together. */
  readonly timelines: ReadonlyMap<string, Timeline>
  readonly timeline: Timeline
}

/** Sorts and indexes once, so that each check is one pass over the events. */
export function gatherFacts(ledger: Ledger, events: readonly HistoryEvent[], range: ReadRange): Facts {
  const settledAt = firstSettlements(events)
  const partitions = new Map(ledger.partitions.map((partition) => [partition.token, partition]))
  const gaps = events.filter((event): event is EventOf<'gap-written'> => event.type === 'gap-written')
  const isLost = (change: LedgerChange): boolean => gaps.some((gap) => covers(gap, change, partitions))
  const inRange = ledger.changes
    .filter(({ commitTimestamp }) => isInRange(commitTimestamp, range))
    .map((change) => ({ ...change, settledAt: settledAt.get(change.id) ?? Number.POSITIVE_INFINITY }))
    // What a gap at the sink says is lost need not come; what came of it is judged like everything else.
    .filter((change) => change.settledAt < Number.POSITIVE_INFINITY || !isLost(change))
  const byPartition = Map.groupBy(inRange, (change) => change.partitionToken)
  return {
    range,
    events,
    isLost,
    changes: new Map(ledger.changes.map((change) => [change.id, change])),
    inRange,
    judged: new Map(inRange.map((change) => [change.id, change])),
    partitions,
    moves: ledger.moves ?? [],
    timelines: new Map([...byPartition].map(([token, changes]) => [token, new Timeline(changes)])),
    timeline: new Timeline(inRange),
  }
}

/** Whether a change may be lost in a gap: in its time, and in its partition or one that began later in its range. */
function covers(
  { token, from, to }: GapNote,
  { commitTimestamp, partitionToken }: LedgerChange,
  partitions: ReadonlyMap<string, LedgerPartition>,
): boolean {
  if (commitTimestamp < from || commitTimestamp >= to) return false
  if (token === partitionToken || token === ROOT_TOKEN) return true
  const partition = partitions.get(partitionToken)
  // Partitions without parents are those to begin with, or any that came up while ranges moved.
  if (partition === undefined || partition.start < from) return false
  return partition.parents.length === 0 || descendsFrom(partition, token, partitions)
}

function descendsFrom(
  { parents }: LedgerPartition,
  ancestor: string,
  partitions: ReadonlyMap<string, LedgerPartition>,
): boolean {
  return parents.some((token) => {
    const parent = partitions.get(token)
    return token === ancestor || (parent !== undefined && descendsFrom(parent, ancestor, partitions))
  })
}

export function isInRange(timestamp: CommitTimestamp, { start, end }: ReadRange): boolean {
  return timestamp >= start && (end === null || timestamp <= end)
}

/** A row was stored as FINISHED. */
export function isFinish(event: HistoryEvent): event is EventOf<'store-write'> {
  return event.type === 'store-write' && event.accepted && (event.op === 'finish' || event.state === 'FINISHED')
}

/** The progress that a checkpoint or a finish stored; other writes move no watermark. */
export function progressOf({ op, accepted, watermark, boundaryIds = [] }: StoreWrite): Progress | undefined {
  if (!accepted || watermark === undefined || (op !== 'checkpoint' && op !== 'finish')) return undefined
  return { watermark, boundaryIds }
}

/** The first and the last time that each written change came; giving it up later counts as its last. */
export function writesById(events: readonly HistoryEvent[]): Map<string, { first: HistoryEvent; last: HistoryEvent }> {
  const writes = new Map<string, { first: HistoryEvent; last: HistoryEvent }>()
  for (const event of events) {
    if (event.type !== 'written' && event.type !== 'skipped') continue
    const before = writes.get(event.id)
    if (before) before.last = event
    else if (event.type === 'written') writes.set(event.id, { first: event, last: event })
  }
  return writes
}

function firstSettlements(events: readonly HistoryEvent[]): Map<string, number> {
  const settledAt = new Map<string, number>()
  for (const event of events) {
    if (event.type !== 'written' && event.type !== 'skipped') continue
    if (!settledAt.has(event.id)) settledAt.set(event.id, event.number)
  }
  return settledAt
}

// Code units, not a locale: timestamps are plain ASCII and sort as text.
function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
