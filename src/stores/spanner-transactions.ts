/** Read-write transactions one after the other: what waits is gathered into one, what is aborted is run again. */
import { type Clock, sleep, systemClock } from '../core/clock.ts'
import { backoffMs } from '../core/error-policy.ts'
import { ClosedError } from '../core/errors.ts'
import type { Partition } from '../model/partition.ts'
import { PartitionRows } from './partition-rows.ts'
import { MAX_GROUP_ROWS } from './spanner-commit-sizes.ts'
import type { ReadResult, SpannerConnection, SpannerSession } from './spanner-connection.ts'
import { type PartitionSql, partitionOf, type RowWork, writesOf } from './spanner-partition-sql.ts'
import { callFailure, grpcCode, OWNER } from './spanner-store-errors.ts'

interface Waiting {
  readonly work: RowWork<unknown>
  resolve(result: unknown): void
  reject(error: unknown): void
}

/**
 * Concurrent transactions on the same rows abort each other, many times slower than one after the other. So there is
 * one at a time, and whatever came in the meantime goes into the next one: a thousand small writes cost a few commits.
 */
export class SpannerTransactions {
  readonly #connection: SpannerConnection
  readonly #sql: PartitionSql
  readonly #database: string
  readonly #timeoutMs: number
  readonly #clock: Clock
  #waiting: Waiting[] = []
  #working: Promise<void> | undefined
  #session: SpannerSession | undefined
  #isClosed = false

  constructor(connection: SpannerConnection, sql: PartitionSql, database: string, timeoutMs: number, clock: Clock) {
    this.#connection = connection
    this.#sql = sql
    this.#database = database
    this.#timeoutMs = timeoutMs
    this.#clock = clock
  }

  /** Resolves when what the work changed is committed. */
  run<R>(work: RowWork<R>): Promise<R> {
    return new Promise<unknown>((resolve, reject) => {
      if (this.#isClosed) return reject(new ClosedError(`${OWNER}: ${this.#database} is closed`))
      this.#waiting.push({ work, resolve, reject })
      this.#working ??= this.#workOff()
    }) as Promise<R>
  }

  /** Lets the transaction that is under way come to its end; what waits behind it is refused. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const { reject } of this.#waiting.splice(0)) reject(new ClosedError(`${OWNER}: ${this.#database} is closed`))
    await this.#working
    if (this.#session !== undefined) await this.#connection.deleteSession(this.#session, GOODBYE_MS)
  }

  async #workOff(): Promise<void> {
    // What is asked for in the same turn of the event loop travels together.
    await Promise.resolve()
    while (this.#waiting.length > 0) {
      const group = this.#nextGroup()
      try {
        const results = await this.#transact(group.map(({ work }) => work))
        for (const [index, { resolve }] of group.entries()) resolve(results[index])
      } catch (error) {
        const failure = callFailure(error, 'write', this.#sql.table, this.#database)
        for (const { reject } of group) reject(failure)
      }
    }
    this.#working = undefined
  }

  #nextGroup(): Waiting[] {
    const first = this.#waiting[0]!
    let rows = 0
    const end = this.#waiting.findIndex(({ work }) => {
      rows += work.tokens?.length ?? 0
      return work !== first.work && (work.pipeline !== first.work.pipeline || work.open || rows > MAX_GROUP_ROWS)
    })
    return this.#waiting.splice(0, first.work.open ? 1 : end === -1 ? this.#waiting.length : end)
  }

  async #transact(works: readonly RowWork<unknown>[]): Promise<unknown[]> {
    const deadline = performance.now() + this.#timeoutMs
    for (let attempt = 1; ; attempt++) {
      const session = this.#openSession(deadline)
      try {
        return await this.#attempt(session, works, deadline)
      } catch (error) {
        const code = grpcCode(error)
        const isForgotten = code === 'NOT_FOUND' && session.hasAnswered && attempt === 1
        // An aborted transaction keeps its place in the queue of locks only if it comes back in the same session.
        if (code !== 'ABORTED') this.#forget(session)
        if (code !== 'ABORTED' && !isForgotten) throw error
        const waitMs = isForgotten ? 0 : backoffMs(attempt, 10, 500)
        if (performance.now() + waitMs > deadline) throw error
        await sleep(systemClock, waitMs)
      }
    }
  }

  async #attempt(session: SpannerSession, works: readonly RowWork<unknown>[], deadline: number): Promise<unknown[]> {
    const leftMs = (): number => remainingMs(deadline)
    let id: Uint8Array | undefined
    const rows = new Map<string, Partition>()
    for (const read of this.#sql.readsOf(works)) {
      const transaction = id === undefined ? BEGIN : { id }
      const result: ReadResult =
        'sql' in read
          ? await this.#connection.query(session, read, transaction, leftMs())
          : await this.#connection.read(session, read, transaction, leftMs())
      id ??= result.transactionId
      for (const cells of result.rows) {
        const row = partitionOf(cells, read.columns)
        rows.set(row.token, row)
      }
    }
    if (id === undefined) throw new Error('Spanner has begun no transaction')
    const view = new PartitionRows(this.#clock, [...rows.values()])
    const results = works.map((work) => work.run(view))
    const writes = writesOf(this.#sql.table, works[0]!.pipeline, view.changes())
    // A transaction that is left open would hold its locks.
    if (writes.length === 0) await this.#connection.rollback(session, id, leftMs())
    else await this.#connection.commit(session, id, writes, leftMs())
    return results
  }

  #openSession(deadline: number): SpannerSession {
    this.#session ??= this.#connection.openSession(remainingMs(deadline))
    return this.#session
  }

  /** With the session goes whatever it still holds. */
  #forget(session: SpannerSession): void {
    if (this.#session === session) this.#session = undefined
    void this.#connection.deleteSession(session, GOODBYE_MS)
  }
}

function remainingMs(deadline: number): number {
  return Math.max(1, Math.ceil(deadline - performance.now()))
}

const BEGIN = { begin: { readWrite: {} } }
const GOODBYE_MS = 2_000
