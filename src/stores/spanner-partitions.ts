/** The table of the Spanner store while it is open: reads at any time, writes one transaction after the other. */
import type { Clock } from '../core/clock.ts'
import { ClosedError } from '../core/errors.ts'
import type { Partition } from '../model/partition.ts'
import {
  type ReadResult,
  type RowQuery,
  type RowRead,
  SpannerConnection,
  type SpannerSession,
} from './spanner-connection.ts'
import { type PartitionSql, partitionOf, type RowWork } from './spanner-partition-sql.ts'
import { ensureTable, findTable, type TableOptions } from './spanner-schema.ts'
import { callFailure, grpcCode, OWNER } from './spanner-store-errors.ts'
import { SpannerTransactions } from './spanner-transactions.ts'

export interface SpannerPartitionsOptions extends TableOptions {
  readonly timeoutMs: number
  readonly emulatorHost: string | undefined
  readonly clock: Clock
}

export class SpannerPartitions {
  readonly #options: SpannerPartitionsOptions
  readonly #connection: SpannerConnection
  #sql: PartitionSql | undefined
  #transactions: SpannerTransactions | undefined
  #session: SpannerSession | undefined
  #isClosed = false

  private constructor(options: SpannerPartitionsOptions) {
    this.#options = options
    this.#connection = new SpannerConnection(options)
  }

  static async open(options: SpannerPartitionsOptions): Promise<SpannerPartitions> {
    const partitions = new SpannerPartitions(options)
    try {
      await partitions.#prepare()
      return partitions
    } catch (error) {
      await partitions.close()
      throw callFailure(error, 'open', options.table, options.database)
    }
  }

  /** The rows of a pipeline, undefined without a table. Makes nothing, and refuses what `open` refuses. */
  static async peek(options: SpannerPartitionsOptions, pipeline: string): Promise<Partition[] | undefined> {
    const partitions = new SpannerPartitions(options)
    try {
      const { sql, hasTable } = await findTable((statement) => partitions.#select(statement), options)
      return hasTable ? await partitions.#rows(sql.listOf(pipeline)) : undefined
    } finally {
      await partitions.close()
    }
  }

  async list(pipeline: string): Promise<Partition[]> {
    return this.#rows(this.#table.listOf(pipeline))
  }

  async get(pipeline: string, token: string): Promise<Partition | undefined> {
    const [row] = await this.#rows({ ...this.#table.listOf(pipeline), keys: [[pipeline, token]] })
    return row
  }

  /** The rows that were finished at a user's end. */
  async ended(pipeline: string): Promise<Partition[]> {
    return this.#queried(this.#table.endedRows(pipeline))
  }

  /** All unfinished rows, as they are at one moment. */
  async unfinished(pipeline: string): Promise<Partition[]> {
    return this.#queried(this.#table.openRows(pipeline, { columns: 'all', isPage: false }))
  }

  async write<R>(work: RowWork<R>): Promise<R> {
    if (this.#transactions === undefined) throw this.#closed()
    return this.#transactions.run(work)
  }

  async close(): Promise<void> {
    this.#isClosed = true
    await this.#transactions?.close()
    if (this.#session !== undefined) await this.#connection.deleteSession(this.#session, 2_000)
    await this.#connection.close()
  }

  async #prepare(): Promise<void> {
    const { database, timeoutMs, clock } = this.#options
    this.#sql = await ensureTable(this.#connection, (sql) => this.#select(sql), this.#options)
    this.#transactions = new SpannerTransactions(this.#connection, this.#sql, database, timeoutMs, clock)
  }

  async #select(sql: string): Promise<ReadResult['rows']> {
    return this.#query({ sql })
  }

  async #queried(query: RowQuery): Promise<Partition[]> {
    return (await this.#query(query)).map((cells) => partitionOf(cells))
  }

  async #query(query: RowQuery): Promise<ReadResult['rows']> {
    const { rows } = await this.#reading((session, timeoutMs) =>
      this.#connection.query(session, query, SINGLE_READ, timeoutMs),
    )
    return rows
  }

  get #table(): PartitionSql {
    if (this.#sql === undefined) throw this.#closed()
    return this.#sql
  }

  async #rows(read: RowRead): Promise<Partition[]> {
    const { rows } = await this.#reading((session, timeoutMs) =>
      this.#connection.read(session, read, SINGLE_READ, timeoutMs),
    )
    return rows.map((cells) => partitionOf(cells, read.columns))
  }

  /** All reads share a session. One that the server forgot is made anew, once. */
  async #reading(read: (session: SpannerSession, timeoutMs: number) => Promise<ReadResult>): Promise<ReadResult> {
    const { timeoutMs, table, database } = this.#options
    for (let attempt = 1; ; attempt++) {
      if (this.#isClosed) throw this.#closed()
      this.#session ??= this.#connection.openSession(timeoutMs, true)
      const session = this.#session
      try {
        return await read(session, timeoutMs)
      } catch (error) {
        const isForgotten = grpcCode(error) === 'NOT_FOUND' && session.hasAnswered && attempt === 1
        // One that could not be made, or does not answer, is not used again.
        if ((isForgotten || !session.hasAnswered) && this.#session === session) this.#session = undefined
        if (!isForgotten) throw callFailure(error, 'read', table, database)
      }
    }
  }

  #closed(): ClosedError {
    return new ClosedError(`${OWNER}: ${this.#options.database} is closed`)
  }
}

const SINGLE_READ = { singleUse: { readOnly: { strong: true } } }
