/** A change stream that lives in this process: deterministic from its seed, with splits, merges and faults on demand. */
import { type Clock, systemClock } from '../core/clock.ts'
import { ConfigError } from '../core/errors.ts'
import { durationMs, nonEmptyString, positiveInteger } from '../core/options.ts'
import type { ChangeStreamClient, PartitionQuery } from '../model/change-stream.ts'
import { type CommitTimestamp, timestampFromMs } from '../model/commit-timestamp.ts'
import {
  type ChildPartition,
  type ChildPartitionsRecord,
  changesOf,
  type DataChangeRecord,
  type Row,
  recordId,
  type ValueCaptureType,
} from '../model/data-change-record.ts'
import { CommitClock, timestampFromMicros, timestampToMicros } from './commit-clock.ts'
import { FaultInjector, type FaultPlan } from './faults.ts'
import { InProcessClient } from './in-process-client.ts'
import { type Ledger, LedgerBook, type LedgerTopologyEvent } from './ledger.ts'
import { type LogEntry, PartitionLog } from './partition-log.ts'
import { announced, PartitionTree, type SimulatedPartition, snapshot, type TreeNode } from './partition-tree.ts'
import { SeededRandom } from './seeded-random.ts'
import { ServerQuery } from './server-query.ts'
import { type RowWrite, type TableDefinition, TableRows } from './table-rows.ts'
import { type PlacedWrite, recordSequence, transactionRecords } from './transaction-records.ts'

export interface SimulatedStreamOptions {
  /** Everything that is left to chance follows from it. */
  readonly seed: number
  /** @default the machine's clock */
  readonly clock?: Clock
  /** @default 'ShopChanges' */
  readonly stream?: string
  /** @default 2 */
  readonly initialPartitions?: number
  /** @default now */
  readonly createdAt?: CommitTimestamp
  /** @default 7 days */
  readonly retentionMs?: number
  /** @default 'OLD_AND_NEW_VALUES' */
  readonly valueCaptureType?: ValueCaptureType
  /**
   * How long a commit takes to reach the queries, and a query to answer first: least and most milliseconds.
   * @default [1, 20]
   */
  readonly latencyMs?: readonly [min: number, max: number]
  /**
   * Most records in one message.
   * @default 8
   */
  readonly maxPartRecords?: number
  /**
   * How often a message carries a resume token.
   * @default 0.8
   */
  readonly resumeTokenChance?: number
  /**
   * How often a commit shares the timestamp of the one before it, if their keys differ and nobody has seen either.
   * @default 0.1
   */
  readonly tieChance?: number
  /**
   * For streams that run forever: keeps about this many row changes, and nothing that is older than the retention.
   * @default everything is kept
   */
  readonly maxHistoryChanges?: number
}

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

/**
 * A Spanner change stream without Spanner. Rows are committed by `commit`, partitions change by `split`, `move` and
 * `merge`; it is read through `client()` in this process or through `serveStream` over gRPC. Each row key is in exactly
 * one partition at a time, by range. `ledger` holds what every reader must deliver.
 * @example
 * const stream = new SimulatedStream({ seed: 1 })
 * stream.defineTable({ name: 'Orders', columns: [{ name: 'Id', type: 'INT64', isPrimaryKey: true }] })
 * stream.commit([{ table: 'Orders', op: 'insert', keys: { Id: '1' } }])
 */
export class SimulatedStream {
  readonly name: string
  readonly seed: number
  readonly clock: Clock
  readonly createdAt: CommitTimestamp
  readonly retentionMs: number
  readonly resumeTokenChance: number

  readonly #random: SeededRandom
  readonly #commitRandom: SeededRandom
  readonly #latencyMs: readonly [min: number, max: number]
  readonly #maxPartRecords: number
  readonly #tieChance: number
  readonly #maxHistoryChanges: number

  readonly #time: CommitClock
  readonly #rows: TableRows
  readonly #tree: PartitionTree
  readonly #ledger = new LedgerBook()
  #lastCommitMicros = -1
  #keysAtLastCommit = new Set<string>()
  #forgottenBefore: CommitTimestamp

  readonly #faults = new FaultInjector()
  readonly #openQueries = new Set<ServerQuery>()
  readonly #killListeners = new Set<() => void>()
  #queries = 0
  readonly #queriesOfToken = new Map<string | null, number>()

  constructor(options: SimulatedStreamOptions) {
    const { seed, clock = systemClock, stream = 'ShopChanges', initialPartitions = 2 } = options
    const { createdAt = timestampFromMs(clock.now()), retentionMs = 7 * 86_400_000 } = options
    const { latencyMs = [1, 20], maxPartRecords = 8, maxHistoryChanges = Number.POSITIVE_INFINITY } = options
    const owner = 'SimulatedStream'
    this.name = nonEmptyString(owner, 'stream', stream)
    this.seed = seed
    this.clock = clock
    this.createdAt = createdAt
    this.retentionMs = durationMs(owner, 'retentionMs', retentionMs)
    this.resumeTokenChance = options.resumeTokenChance ?? 0.8
    this.#random = new SeededRandom(seed)
    this.#commitRandom = this.#random.fork('commits')
    this.#latencyMs = latencyMs
    this.#maxPartRecords = positiveInteger(owner, 'maxPartRecords', maxPartRecords)
    this.#tieChance = options.tieChance ?? 0.1
    this.#maxHistoryChanges = maxHistoryChanges
    this.#time = new CommitClock(clock)
    this.#time.closeBefore(timestampToMicros(createdAt))
    this.#rows = new TableRows(options.valueCaptureType ?? 'OLD_AND_NEW_VALUES')
    const partitions = positiveInteger(owner, 'initialPartitions', initialPartitions)
    this.#tree = new PartitionTree(this.#random.fork('partitions'), partitions, createdAt)
    this.#forgottenBefore = createdAt
    this.#noteTopology('create', createdAt, [], this.#tree.live)
  }

  /** The truth for tests. Readable at any time. */
  get ledger(): Ledger {
    return this.#ledger
  }

  /** The present in the stream's time: everything at or before it is in the ledger, once a reader was told so. */
  now(): CommitTimestamp {
    return timestampFromMicros(this.#time.presentMicros)
  }

  defineTable(table: TableDefinition): void {
    this.#rows.define(table)
  }

  hasTable(name: string): boolean {
    return this.#rows.has(name)
  }

  /** The current values of a row that are not keys; undefined if there is no such row. */
  row(table: string, keys: Row): Row | undefined {
    return this.#rows.get(table, keys)
  }

  /** What later records capture, as after an ALTER CHANGE STREAM. */
  setValueCaptureType(type: ValueCaptureType): void {
    this.#rows.valueCaptureType = type
  }

  get valueCaptureType(): ValueCaptureType {
    return this.#rows.valueCaptureType
  }

  /**
   * Commits one transaction, all of it or, if a write is impossible, nothing of it. Timestamps never decrease; equal
   * ones belong to transactions without a common row.
   */
  commit(writes: readonly RowWrite[], { tag = '', tie, isSystem = false }: CommitOptions = {}): CommitTimestamp {
    if (writes.length === 0) throw new ConfigError('SimulatedStream: a commit needs at least one write')
    const keys = new Set(writes.map((write) => this.#rows.keyOf(write.table, write.keys)))
    const holders = new Set([...keys].map((key) => this.#tree.holderOf(key)))
    const serverTransactionId = this.#newTransactionId()
    const wantsTie = tie ?? this.#commitRandom.chance(this.#tieChance)
    const isTie = wantsTie && this.#mayTie(keys, holders, serverTransactionId)
    if (tie === true && !isTie) {
      throw new ConfigError('SimulatedStream: this commit cannot share the timestamp of the one before it')
    }
    const placed = this.#rows.apply(writes).map((write) => ({ write, partition: this.#tree.holderOf(write.key) }))
    const micros = isTie ? this.#lastCommitMicros : Math.max(this.#time.nextMicros, this.#lastCommitMicros + 1)
    if (!isTie) this.#keysAtLastCommit.clear()
    for (const key of keys) this.#keysAtLastCommit.add(key)
    this.#lastCommitMicros = micros
    this.#time.closeBefore(micros)
    const commitTimestamp = timestampFromMicros(micros)
    this.#record(placed, { commitTimestamp, serverTransactionId, tag, isSystem })
    this.#forgetOldHistory()
    return commitTimestamp
  }

  /** Ends a partition; `ways` new ones share its range. Returns their tokens. */
  split(token: string, ways = 2): string[] {
    const at = this.#topologyTime()
    const parent = this.#tree.assertLive(token)
    return this.#announce('split', at, [parent], this.#tree.split(token, positiveInteger('split', 'ways', ways), at))
  }

  /** Ends a partition; a new one takes its range. Returns its token. */
  move(token: string): string {
    const at = this.#topologyTime()
    const parent = this.#tree.assertLive(token)
    return this.#announce('move', at, [parent], this.#tree.split(token, 1, at))[0]!
  }

  /** Ends two partitions that lie side by side; a new one, announced by both, takes their ranges. Returns its token. */
  merge(tokenA: string, tokenB: string): string {
    const at = this.#topologyTime()
    const parents = [this.#tree.assertLive(tokenA), this.#tree.assertLive(tokenB)]
    return this.#announce('merge', at, parents, [this.#tree.merge(tokenA, tokenB, at)])[0]!
  }

  /** By key range. */
  livePartitions(): SimulatedPartition[] {
    return this.#tree.live.map(snapshot)
  }

  /** All partitions, parents before children. */
  lineage(): SimulatedPartition[] {
    return this.#tree.all.map(snapshot)
  }

  /** The token of the partition that holds a row now. */
  partitionOf(table: string, keys: Row): string {
    return this.#tree.holderOf(this.#rows.keyOf(table, keys)).token
  }

  /** Adds to the faults in force. */
  injectFaults(plan: FaultPlan): void {
    this.#faults.inject(plan)
  }

  /** No more faults. Queries that have stalled stay so until they are cancelled. */
  heal(): void {
    this.#faults.heal()
  }

  /** Ends all open queries with UNAVAILABLE; over gRPC the sockets are destroyed. */
  killConnections(): void {
    for (const query of [...this.#openQueries]) query.kill()
    for (const listener of [...this.#killListeners]) listener()
  }

  /** Calls back when connections are killed, until the returned function is called. */
  onKill(listener: () => void): () => void {
    this.#killListeners.add(listener)
    return () => {
      this.#killListeners.delete(listener)
    }
  }

  /** Queries that have begun and not ended. */
  get openQueries(): number {
    return this.#openQueries.size
  }

  /** The door for programs in this process. Another name than the stream's behaves like a stream that does not exist. */
  client({ stream = this.name }: { readonly stream?: string } = {}): ChangeStreamClient {
    return new InProcessClient(stream, this)
  }

  /** Starts one query on the server's side. Both doors use it; tests read through one of them. */
  openQuery(query: PartitionQuery): ServerQuery {
    const queryOfStream = ++this.#queries
    const queryOfToken = (this.#queriesOfToken.get(query.token) ?? 0) + 1
    this.#queriesOfToken.set(query.token, queryOfToken)
    const opened: ServerQuery = new ServerQuery(query, {
      clock: this.clock,
      time: this.#time,
      faults: this.#faults,
      random: this.#random.fork(`query ${queryOfStream}`),
      maxPartRecords: this.#maxPartRecords,
      latencyMs: this.#latencyMs,
      queryOfStream,
      queryOfToken,
      createdAt: this.createdAt,
      historyStart: () => this.#historyStart(),
      partition: (token) => this.#tree.get(token),
      rootLog: (start) => this.#rootLog(start),
      noteFault: (fault) => this.#ledger.addFault(fault),
      killConnections: () => this.killConnections(),
      ended: () => this.#openQueries.delete(opened),
    })
    this.#openQueries.add(opened)
    return opened
  }

  #newTransactionId(): string {
    const random = this.#commitRandom
    const digits = `${1 + random.int(9)}${String(random.int(1e9)).padStart(9, '0')}${String(random.int(1e9)).padStart(9, '0')}`
    return Buffer.from(digits).toString('base64')
  }

  #mayTie(keys: ReadonlySet<string>, holders: ReadonlySet<TreeNode>, serverTransactionId: string): boolean {
    const last = this.#lastCommitMicros
    if (last < this.#time.lowestMicros) return false
    for (const key of keys) if (this.#keysAtLastCommit.has(key)) return false
    const timestamp = timestampFromMicros(last)
    return [...holders].every((holder) => holder.log.placeFor(timestamp, serverTransactionId) !== undefined)
  }

  #record(placed: readonly PlacedWrite[], options: Parameters<typeof transactionRecords>[1]): void {
    const visibleAtMs = this.clock.now() + this.#latency()
    const entriesOf = new Map<TreeNode, LogEntry[]>()
    this.#ledger.transactions++
    for (const { partition, writes, record } of transactionRecords(placed, options)) {
      const entries = entriesOf.get(partition) ?? []
      entriesOf.set(partition, entries)
      const entry = { kind: 'data', record, bytes: bytesOf(record) } as const
      entries.push({ timestamp: options.commitTimestamp, record: entry, visibleAtMs })
      for (const change of changesOf(record)) {
        const { table, op, keys, newValues, oldValues, commitTimestamp, modIndex } = change
        const id = `${recordId(record)}/${modIndex}`
        const { key } = writes[modIndex]!
        const partitionToken = partition.token
        this.#ledger.changes.push({ id, key, table, op, keys, newValues, oldValues, commitTimestamp, partitionToken })
      }
    }
    for (const [{ log }, entries] of entriesOf) {
      log.insert(log.placeFor(options.commitTimestamp, options.serverTransactionId)!, entries)
    }
  }

  /** Later than all commits so far; what is committed from now on is at this time or later. */
  #topologyTime(): CommitTimestamp {
    const micros = Math.max(this.#time.nextMicros, this.#lastCommitMicros + 1)
    this.#time.closeBefore(micros)
    return timestampFromMicros(micros)
  }

  #announce(
    kind: LedgerTopologyEvent['kind'],
    at: CommitTimestamp,
    parents: readonly TreeNode[],
    children: readonly TreeNode[],
  ): string[] {
    const visibleAtMs = this.clock.now() + this.#latency()
    for (const parent of parents) {
      const records = childRecords(announced(children, true), at, this.#commitRandom)
      parent.log.insert(
        parent.log.end,
        records.map((record) => ({ timestamp: at, record: { kind: 'children', record }, visibleAtMs })),
      )
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
    this.#ledger.topology.push({ kind, timestamp, parents: tokens(parents), children: tokens(children) })
  }

  #rootLog(start: CommitTimestamp): PartitionLog {
    const log = new PartitionLog()
    // A continuation by resume token must find the same records again, so chance depends on the start only.
    const random = this.#random.fork(`first query ${start}`)
    const records = childRecords(announced(this.#tree.liveAt(start), false), start, random)
    log.insert(
      0,
      records.map((record) => ({ timestamp: start, record: { kind: 'children', record }, visibleAtMs: 0 })),
    )
    return log
  }

  #historyStart(): CommitTimestamp {
    const kept = timestampFromMs(this.clock.now() - this.retentionMs)
    return kept > this.#forgottenBefore ? kept : this.#forgottenBefore
  }

  #forgetOldHistory(): void {
    const { changes } = this.#ledger
    // A fifth more than asked for, so that the cost of moving the rest is spread over many commits.
    if (changes.length <= this.#maxHistoryChanges * 1.2) return
    const byCount = changes[changes.length - this.#maxHistoryChanges]!.commitTimestamp
    const byAge = this.#historyStart()
    const before = byCount > byAge ? byCount : byAge
    const kept = changes.findIndex((change) => change.commitTimestamp >= before)
    this.#forgottenBefore = before
    this.#ledger.forget(kept === -1 ? changes.length : kept, before, this.#maxHistoryChanges)
    this.#tree.forgetEndedBefore(before)
    for (const token of this.#queriesOfToken.keys()) {
      if (token !== null && this.#tree.get(token) === undefined) this.#queriesOfToken.delete(token)
    }
  }

  #latency(): number {
    const [min, max] = this.#latencyMs
    return min + this.#commitRandom.int(max - min + 1)
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

function bytesOf({ mods, columnTypes }: DataChangeRecord): number {
  return 300 + columnTypes.length * 60 + JSON.stringify(mods).length
}
