/** What was committed and how the partitions changed: the server's memory, without queries. */
import type { Clock } from '../core/clock.ts'
import { ConfigError } from '../core/errors.ts'
import type { PartitionMode } from '../model/change-stream.ts'
import { type CommitTimestamp, timestampFromMs } from '../model/commit-timestamp.ts'
import {
  type ChildPartition,
  type ChildPartitionsRecord,
  changesOf,
  type DataChangeRecord,
  recordId,
  type ValueCaptureType,
} from '../model/data-change-record.ts'
import { CommitClock, timestampFromMicros, timestampToMicros } from './commit-clock.ts'
import { LedgerBook, type LedgerTopologyEvent } from './ledger.ts'
import { type LogEntry, PartitionLog } from './partition-log.ts'
import { PartitionTree, type TreeNode } from './partition-tree.ts'
import { type MoveTime, RangeMoves, startEntries } from './range-moves.ts'
import type { SeededRandom } from './seeded-random.ts'
import { type RowWrite, TableRows } from './table-rows.ts'
import { type PlacedWrite, recordSequence, type TransactionOptions, transactionRecords } from './transaction-records.ts'

export interface CommitOptions {
  /** @default '' */
  readonly tag?: string
  /**
   * Shares the timestamp of the commit before it; refused if their keys meet or a query knows that time already.
   * @default by the stream's `tieChance`
   */
  readonly tie?: boolean
  /**
   * As the service's own deletes by age are marked.
   * @default false
   */
  readonly isSystem?: boolean
}

export interface HistoryOptions {
  readonly clock: Clock
  readonly mode: PartitionMode
  readonly random: SeededRandom
  readonly tables: readonly string[] | undefined
  readonly initialPartitions: number
  readonly createdAt: CommitTimestamp
  readonly retentionMs: number
  readonly valueCaptureType: ValueCaptureType
  readonly latencyMs: readonly [min: number, max: number]
  readonly tieChance: number
  readonly maxHistoryChanges: number
}

export class StreamHistory {
  readonly time: CommitClock
  readonly rows: TableRows
  readonly tree: PartitionTree
  readonly ledger: LedgerBook = new LedgerBook()
  readonly #options: HistoryOptions
  readonly #random: SeededRandom
  readonly #moves: RangeMoves
  #lastCommitMicros = -1
  /** Records at that time so far: with mutable key ranges their numbers go on across transactions. */
  #recordsAtLastCommit = 0
  #keysAtLastCommit = new Set<string>()
  #forgottenBefore: CommitTimestamp

  constructor(options: HistoryOptions) {
    const { clock, random, initialPartitions, createdAt, valueCaptureType } = options
    this.#options = options
    this.#random = random.fork('commits')
    this.time = new CommitClock(clock)
    this.time.closeBefore(timestampToMicros(createdAt))
    this.rows = new TableRows(valueCaptureType)
    this.tree = new PartitionTree(random.fork('partitions'), initialPartitions, createdAt)
    this.#forgottenBefore = createdAt
    this.#noteTopology('create', createdAt, [], this.tree.live)
    this.#moves = new RangeMoves({
      mode: options.mode,
      tree: this.tree,
      random: this.#random,
      nextTime: () => this.#moveTime(),
      visibleAtMs: () => this.#visibleAtMs(),
      note: (kind, at, from, to) => this.#noteTopology(kind, at, from, to),
    })
  }

  commit(writes: readonly RowWrite[], { tag = '', tie, isSystem = false }: CommitOptions): CommitTimestamp {
    if (writes.length === 0) throw new ConfigError('SimulatedStream: a commit needs at least one write')
    const keys = new Set(writes.map((write) => this.rows.keyOf(write.table, write.keys)))
    const serverTransactionId = this.#newTransactionId()
    const wantsTie = tie ?? this.#random.chance(this.#options.tieChance)
    const isTie = wantsTie && this.#mayTie(keys, serverTransactionId)
    if (tie === true && !isTie) {
      throw new ConfigError('SimulatedStream: this commit cannot share the timestamp of the one before it')
    }
    const watched = this.rows.apply(writes).filter(({ table }) => this.#options.tables?.includes(table) ?? true)
    const placed = watched.map((write) => ({ write, partition: this.tree.holderOf(write.key) }))
    const micros = isTie ? this.#lastCommitMicros : this.#nextMicros()
    if (!isTie) {
      this.#keysAtLastCommit.clear()
      this.#recordsAtLastCommit = 0
    }
    for (const key of keys) this.#keysAtLastCommit.add(key)
    this.#lastCommitMicros = micros
    this.time.closeBefore(micros)
    const commitTimestamp = timestampFromMicros(micros)
    const firstSequence = this.#options.mode === 'mutable' ? this.#recordsAtLastCommit : 0
    this.#record(placed, { commitTimestamp, serverTransactionId, tag, isSystem, firstSequence })
    this.#forgetOldHistory()
    return commitTimestamp
  }

  split(token: string, ways: number): string[] {
    if (this.#options.mode === 'mutable') return this.#moves.split(token, ways)
    const parent = this.tree.assertLive(token)
    const at = this.#topologyTime()
    return this.#announce('split', at, [parent], this.tree.split(token, ways, at))
  }

  move(token: string): string {
    if (this.#options.mode === 'mutable') return this.#moves.move(token)
    const parent = this.tree.assertLive(token)
    const at = this.#topologyTime()
    return this.#announce('move', at, [parent], this.tree.split(token, 1, at))[0]!
  }

  merge(tokenA: string, tokenB: string): string {
    if (this.#options.mode === 'mutable') return this.#moves.merge(tokenA, tokenB)
    const parents = [this.tree.assertLive(tokenA), this.tree.assertLive(tokenB)]
    const at = this.#topologyTime()
    return this.#announce('merge', at, parents, [this.tree.merge(tokenA, tokenB, at)])[0]!
  }

  moveRange(from: string, to: string): void {
    this.#moves.moveRange(from, to)
  }

  rotateRanges(tokens: readonly string[]): void {
    this.#moves.rotateRanges(tokens)
  }

  /** What the first query of a stream returns: the partitions that were live at its start, as if without parents. */
  rootLog(start: CommitTimestamp): PartitionLog {
    const log = new PartitionLog()
    if (this.#options.mode === 'mutable') {
      const tokens = this.tree.liveAt(start, true).map(({ token }) => token)
      const entries = startEntries(
        tokens,
        { at: start, sequence: 0 },
        this.#options.random.fork(`first query ${start}`),
        0,
      )
      log.insert(0, entries)
      return log
    }
    const children = this.tree.liveAt(start, false).map(({ token }) => ({ token, parentTokens: [] }))
    // A continuation by resume token must find the same records again, so chance depends on the start only.
    const records = childRecords(children, start, this.#options.random.fork(`first query ${start}`))
    log.insert(0, childEntries(records, 0))
    return log
  }

  /** What was committed before this time is no longer kept. */
  historyStart(): CommitTimestamp {
    const { clock, retentionMs } = this.#options
    const kept = timestampFromMs(clock.now() - retentionMs)
    return kept > this.#forgottenBefore ? kept : this.#forgottenBefore
  }

  #newTransactionId(): string {
    const digits = (): string => String(this.#random.int(1e9)).padStart(9, '0')
    return Buffer.from(`${1 + this.#random.int(9)}${digits()}${digits()}`).toString('base64')
  }

  #mayTie(keys: ReadonlySet<string>, serverTransactionId: string): boolean {
    const last = this.#lastCommitMicros
    if (last < this.time.lowestMicros) return false
    const timestamp = timestampFromMicros(last)
    for (const key of keys) {
      if (this.#keysAtLastCommit.has(key)) return false
      if (this.#placeIn(this.tree.holderOf(key).log, timestamp, serverTransactionId) === undefined) return false
    }
    return true
  }

  #record(placed: readonly PlacedWrite[], options: TransactionOptions): void {
    const { commitTimestamp, serverTransactionId } = options
    const visibleAtMs = this.#visibleAtMs()
    const entriesOf = new Map<TreeNode, LogEntry[]>()
    this.ledger.transactions++
    for (const { partition, writes, record } of transactionRecords(placed, options)) {
      this.#recordsAtLastCommit++
      const entries = entriesOf.get(partition) ?? []
      entriesOf.set(partition, entries)
      const entry = { kind: 'data', record, bytes: bytesOf(record) } as const
      entries.push({ timestamp: commitTimestamp, record: entry, visibleAtMs })
      for (const { table, op, keys, newValues, oldValues, modIndex } of changesOf(record)) {
        const id = `${recordId(record)}/${modIndex}`
        const { key } = writes[modIndex]!
        const partitionToken = partition.token
        this.ledger.changes.push({ id, key, table, op, keys, newValues, oldValues, commitTimestamp, partitionToken })
      }
    }
    for (const [{ log }, entries] of entriesOf) {
      log.insert(this.#placeIn(log, commitTimestamp, serverTransactionId)!, entries)
    }
  }

  /** At one time, records are in the order of their transactions; with mutable key ranges, of their numbers. */
  #placeIn(log: PartitionLog, timestamp: CommitTimestamp, serverTransactionId: string): number | undefined {
    return this.#options.mode === 'mutable' ? log.end : log.placeFor(timestamp, serverTransactionId)
  }

  /** Later than all commits so far; what is committed from now on is at this time or later. */
  #topologyTime(): CommitTimestamp {
    const micros = this.#nextMicros()
    this.time.closeBefore(micros)
    return timestampFromMicros(micros)
  }

  /** As above, or the time of the last commit if that is still open; what is committed from now on is later. */
  #moveTime(): MoveTime {
    const last = this.#lastCommitMicros
    const isShared = last >= this.time.lowestMicros && this.#random.chance(this.#options.tieChance)
    const micros = isShared ? last : this.#nextMicros()
    this.time.closeBefore(micros + 1)
    return { at: timestampFromMicros(micros), sequence: isShared ? this.#recordsAtLastCommit : 0 }
  }

  #announce(
    kind: LedgerTopologyEvent['kind'],
    at: CommitTimestamp,
    parents: readonly TreeNode[],
    children: readonly TreeNode[],
  ): string[] {
    const visibleAtMs = this.#visibleAtMs()
    const announced = children.map(({ token, parents }) => ({ token, parentTokens: parents }))
    for (const { log } of parents) {
      log.insert(log.end, childEntries(childRecords(announced, at, this.#random), visibleAtMs))
    }
    this.#noteTopology(kind, at, parents, children)
    return children.map((child) => child.token)
  }

  #noteTopology(
    kind: LedgerTopologyEvent['kind'],
    timestamp: CommitTimestamp,
    parents: readonly TreeNode[],
    children: readonly TreeNode[],
  ): void {
    const tokens = (nodes: readonly TreeNode[]): string[] => nodes.map((node) => node.token)
    this.ledger.topology.push({ kind, timestamp, parents: tokens(parents), children: tokens(children) })
  }

  #forgetOldHistory(): void {
    const { changes } = this.ledger
    const { maxHistoryChanges } = this.#options
    // A fifth more than asked for, so that the cost of moving the rest is spread over many commits.
    if (changes.length <= maxHistoryChanges * 1.2) return
    const byCount = changes[changes.length - maxHistoryChanges]!.commitTimestamp
    const byAge = this.historyStart()
    const before = byCount > byAge ? byCount : byAge
    const kept = changes.findIndex((change) => change.commitTimestamp >= before)
    this.#forgottenBefore = before
    this.ledger.forget(kept === -1 ? changes.length : kept, before, maxHistoryChanges)
    this.tree.forgetBefore(before)
  }

  #nextMicros(): number {
    return Math.max(this.time.nextMicros, this.#lastCommitMicros + 1)
  }

  #visibleAtMs(): number {
    const { clock, latencyMs } = this.#options
    const [min, max] = latencyMs
    return clock.now() + min + this.#random.int(max - min + 1)
  }
}

/** One or several records that announce the children, all with the same start. */
function childRecords(
  children: readonly ChildPartition[],
  startTimestamp: CommitTimestamp,
  random: SeededRandom,
): ChildPartitionsRecord[] {
  const records: ChildPartitionsRecord[] = []
  let from = 0
  while (from < children.length) {
    const to = from + 1 + random.int(children.length - from)
    const sequence = recordSequence(records.length)
    records.push({ startTimestamp, recordSequence: sequence, children: children.slice(from, to) })
    from = to
  }
  return records
}

function childEntries(records: readonly ChildPartitionsRecord[], visibleAtMs: number): LogEntry[] {
  return records.map((record) => ({
    timestamp: record.startTimestamp,
    record: { kind: 'children', record },
    visibleAtMs,
  }))
}

function bytesOf({ mods, columnTypes }: DataChangeRecord): number {
  return 300 + columnTypes.length * 60 + JSON.stringify(mods).length
}
