/** A change stream that lives in this process: deterministic from its seed, with splits, merges and faults on demand. */
import { type Clock, systemClock } from '../core/clock.ts'
import { ConfigError } from '../core/errors.ts'
import { durationMs, nonEmptyString, oneOf, positiveInteger } from '../core/options.ts'
import type { ChangeStreamClient, Dialect, PartitionMode, PartitionQuery } from '../model/change-stream.ts'
import { type CommitTimestamp, timestampFromMs } from '../model/commit-timestamp.ts'
import type { Row, ValueCaptureType } from '../model/data-change-record.ts'
import { timestampFromMicros } from './commit-clock.ts'
import { FaultInjector, type FaultPlan } from './faults.ts'
import { InProcessClient } from './in-process-client.ts'
import type { Ledger } from './ledger.ts'
import { type SimulatedPartition, snapshot } from './partition-tree.ts'
import { SeededRandom } from './seeded-random.ts'
import { ServerQuery } from './server-query.ts'
import { type CommitOptions, StreamHistory } from './stream-history.ts'
import type { RowWrite, TableDefinition } from './table-rows.ts'

export interface SimulatedStreamOptions {
  /** Everything that is left to chance follows from it. */
  readonly seed: number
  /** @default the machine's clock */
  readonly clock?: Clock
  /** @default 'googlesql' */
  readonly dialect?: Dialect
  /**
   * Whether partitions keep their key ranges.
   * @default 'immutable'
   */
  readonly mode?: PartitionMode
  /** @default 'ShopChanges' */
  readonly stream?: string
  /**
   * Names of the tables that it watches; what is written to others is not captured.
   * @default the whole database
   */
  readonly tables?: readonly string[]
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
  readonly dialect: Dialect
  readonly mode: PartitionMode
  readonly clock: Clock
  readonly createdAt: CommitTimestamp
  readonly retentionMs: number
  /** Undefined if it watches the whole database. */
  readonly tables: readonly string[] | undefined
  readonly resumeTokenChance: number

  readonly #random: SeededRandom
  readonly #history: StreamHistory
  readonly #latencyMs: readonly [min: number, max: number]
  readonly #maxPartRecords: number

  readonly #faults = new FaultInjector()
  readonly #openQueries = new Set<ServerQuery>()
  readonly #killListeners = new Set<() => void>()
  #queries = 0
  #rootQueries = 0

  constructor(options: SimulatedStreamOptions) {
    const owner = 'SimulatedStream'
    const { seed, clock = systemClock, stream = 'ShopChanges', initialPartitions = 2, tieChance = 0.1 } = options
    const { retentionMs = 7 * 86_400_000, valueCaptureType = 'OLD_AND_NEW_VALUES', maxPartRecords = 8 } = options
    const { latencyMs = [1, 20], resumeTokenChance = 0.8, maxHistoryChanges = Number.POSITIVE_INFINITY } = options
    this.name = nonEmptyString(owner, 'stream', stream)
    this.seed = seed
    this.dialect = oneOf(owner, 'dialect', ['googlesql', 'postgresql'], options.dialect ?? 'googlesql')
    this.mode = oneOf(owner, 'mode', ['immutable', 'mutable'], options.mode ?? 'immutable')
    this.clock = clock
    this.createdAt = options.createdAt ?? timestampFromMs(clock.now())
    this.retentionMs = durationMs(owner, 'retentionMs', retentionMs)
    this.tables = options.tables
    this.resumeTokenChance = resumeTokenChance
    this.#random = new SeededRandom(seed)
    this.#latencyMs = latencyMs
    const [minMs, maxMs] = latencyMs
    if (!(minMs >= 0 && minMs <= maxMs))
      throw new ConfigError(`${owner}: latencyMs must be [min, max], got [${latencyMs}]`)
    this.#maxPartRecords = positiveInteger(owner, 'maxPartRecords', maxPartRecords)
    this.#history = new StreamHistory({
      clock,
      mode: this.mode,
      random: this.#random,
      tables: this.tables,
      initialPartitions: positiveInteger(owner, 'initialPartitions', initialPartitions),
      createdAt: this.createdAt,
      retentionMs,
      valueCaptureType,
      latencyMs,
      tieChance,
      maxHistoryChanges,
    })
  }

  /** The truth for tests. Readable at any time. */
  get ledger(): Ledger {
    return this.#history.ledger
  }

  /** The present in the stream's time: a start or an end for queries. */
  now(): CommitTimestamp {
    return timestampFromMicros(this.#history.time.presentMicros)
  }

  defineTable(table: TableDefinition): void {
    this.#history.rows.define(table)
  }

  hasTable(name: string): boolean {
    return this.#history.rows.has(name)
  }

  /** The current values of a row that are not keys; undefined if there is no such row. */
  row(table: string, keys: Row): Row | undefined {
    return this.#history.rows.get(table, keys)
  }

  /** What later records capture, as after an ALTER CHANGE STREAM. */
  setValueCaptureType(type: ValueCaptureType): void {
    this.#history.rows.valueCaptureType = type
  }

  get valueCaptureType(): ValueCaptureType {
    return this.#history.rows.valueCaptureType
  }

  /**
   * Commits one transaction, all of it or, if a write is impossible, nothing of it. Timestamps never decrease; equal
   * ones belong to transactions without a common row.
   */
  commit(writes: readonly RowWrite[], options: CommitOptions = {}): CommitTimestamp {
    return this.#history.commit(writes, options)
  }

  /**
   * Ends a partition; `ways` new ones share its range. With mutable key ranges it lives on and gives parts of its range
   * to one less new ones. Returns the tokens of the new ones.
   */
  split(token: string, ways = 2): string[] {
    return this.#history.split(token, positiveInteger('split', 'ways', ways))
  }

  /** Ends a partition; a new one takes its range. Returns its token. */
  move(token: string): string {
    return this.#history.move(token)
  }

  /**
   * Ends two partitions that lie side by side; a new one, announced by both, takes their ranges. With mutable key ranges
   * the first of any two takes the ranges of the second, which ends. Returns the token of the one that has them then.
   */
  merge(tokenA: string, tokenB: string): string {
    return this.#history.merge(tokenA, tokenB)
  }

  /** Mutable key ranges only: a part of what one partition has goes to another one. */
  moveRange(from: string, to: string): void {
    this.#history.moveRange(from, to)
  }

  /** Mutable key ranges only: two partitions exchange parts of what they have, at one time. */
  swapRanges(tokenA: string, tokenB: string): void {
    this.#history.rotateRanges([tokenA, tokenB])
  }

  /** Mutable key ranges only: each of several partitions gives a part of what it has to the next, all at one time. */
  rotateRanges(tokens: readonly string[]): void {
    this.#history.rotateRanges(tokens)
  }

  /** By key range. */
  livePartitions(): SimulatedPartition[] {
    return this.#history.tree.live.map(snapshot)
  }

  /** All partitions, parents before children. */
  lineage(): SimulatedPartition[] {
    return this.#history.tree.all.map(snapshot)
  }

  /** The token of the partition that holds a row now. */
  partitionOf(table: string, keys: Row): string {
    return this.#history.tree.holderOf(this.#history.rows.keyOf(table, keys)).token
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
    const node = query.token === null ? undefined : this.#history.tree.get(query.token)
    if (node !== undefined) node.queries++
    else if (query.token === null) this.#rootQueries++
    const opened: ServerQuery = new ServerQuery(query, {
      mode: this.mode,
      clock: this.clock,
      time: this.#history.time,
      faults: this.#faults,
      random: this.#random.fork(`query ${queryOfStream}`),
      maxPartRecords: this.#maxPartRecords,
      latencyMs: this.#latencyMs,
      queryOfStream,
      queryOfToken: node?.queries ?? this.#rootQueries,
      createdAt: this.createdAt,
      historyStart: () => this.#history.historyStart(),
      partition: (token) => this.#history.tree.get(token),
      rootLog: (start) => this.#history.rootLog(start),
      noteFault: (fault) => this.#history.ledger.addFault(fault),
      killConnections: () => this.killConnections(),
      ended: () => this.#openQueries.delete(opened),
    })
    this.#openQueries.add(opened)
    return opened
  }
}
