/** Partition progress in a PostgreSQL database: for pipelines whose workers share one. */
import { type Clock, systemClock } from '../core/clock.ts'
import { ConfigError } from '../core/errors.ts'
import type { Checkpoint } from '../core/in-flight-tracker.ts'
import { knownKeys, nonEmptyString, positiveInteger } from '../core/options.ts'
import { type CommitTimestamp, timestampFromMs } from '../model/commit-timestamp.ts'
import type { Partition, PartitionState } from '../model/partition.ts'
import type { CheckpointWrite, NewPartition, Ownership, PartitionStore, PartitionTable } from './partition-store.ts'
import { badConnectionString, OWNER, type PostgresDatabase, type PostgresPool } from './postgres-database.ts'
import { type PartitionRow, type PartitionSql, partitionOf, partitionSql } from './postgres-partition-sql.ts'
import { lockOf, openTable, peekTable } from './postgres-schema.ts'

export interface PostgresPartitionStoreOptions {
  /** `postgresql://user:password@host:5432/database`. Never shown in a message. */
  readonly connectionString?: string
  /** Connections made by the caller, a `Pool` of the package pg, who also ends them; instead of `connectionString`. */
  readonly pool?: PostgresPool
  /**
   * Made when the store is first opened; `schema.table` for another schema than the default one.
   * @default 'millrace_partitions'
   */
  readonly table?: string
  /**
   * How long finished partitions are kept, in days; at least 31, since a stream remembers up to 30 days. Older ones are
   * deleted when the store is opened, except the first one and those that a later run may read on. Without the right
   * to delete they stay.
   * @default 60
   */
  readonly keepFinishedDays?: number
  /**
   * How long a statement may take before it fails with an error that is worth a retry.
   * @default 10000
   */
  readonly timeoutMs?: number
  /**
   * What leases are measured with.
   * @default the machine's clock
   */
  readonly clock?: Clock
}

/**
 * Keeps progress in a table of a PostgreSQL database. A checkpoint is one statement, whatever the number of partitions.
 * Any number of processes may share the table. Connects again when the server was restarted; until then calls fail with
 * a StoreError that is worth a retry. Nothing is opened before `open`, and a closed store may be opened again.
 * @example postgresPartitionStore({ connectionString: process.env.DATABASE_URL })
 */
export function postgresPartitionStore(options: PostgresPartitionStoreOptions): PartitionStore {
  if (typeof options !== 'object' || options === null) throw new ConfigError(`${OWNER}: takes an options object`)
  knownKeys(OWNER, options, ['connectionString', 'pool', 'table', 'keepFinishedDays', 'timeoutMs', 'clock'])
  const { connectionString, pool, table = 'millrace_partitions', timeoutMs = 10_000, clock = systemClock } = options
  if ((connectionString === undefined) === (pool === undefined)) {
    throw new ConfigError(`${OWNER}: takes either connectionString or pool`)
  }
  positiveInteger(OWNER, 'timeoutMs', timeoutMs)
  const { keepFinishedDays = 60 } = options
  if (positiveInteger(OWNER, 'keepFinishedDays', keepFinishedDays) < 31) {
    throw new ConfigError(`${OWNER}: keepFinishedDays must be at least 31, got ${keepFinishedDays}`, {
      hint: 'A change stream keeps up to 30 days: a partition that is forgotten before could be read a second time.',
    })
  }
  const sql = partitionSql(checkedTable(table))
  const place = pool === undefined ? placeOf(connectionString) : table
  let opening: Promise<PostgresDatabase> | undefined
  let isOpen = false
  return {
    name: `${OWNER}(${place})`,
    async open(pipeline) {
      opening ??= openTable({ connectionString, pool, place, timeoutMs }, table, sql)
      const opened = opening
      try {
        const database = await opened
        isOpen ||= opening === opened
        const before = timestampFromMs(clock.now() - keepFinishedDays * DAY_MS)
        // No run hangs on it: what fails here is tried again the next time.
        await database.run('write', { text: sql.forget, values: [pipeline, before] }).catch(() => undefined)
        return new PostgresPartitionTable(pipeline, table, sql, database, clock)
      } catch (error) {
        // The next try begins anew.
        if (opening === opened) opening = undefined
        throw error
      }
    },
    peek: (pipeline) => peekTable({ connectionString, pool, place, timeoutMs }, sql, pipeline),
    async close() {
      const closed = opening?.then((database) => database.close()).catch(() => undefined)
      opening = undefined
      // One that is still being opened may take long, and goes when it comes.
      if (isOpen) await closed
      isOpen = false
    },
  }
}

class PostgresPartitionTable implements PartitionTable {
  readonly #pipeline: string
  readonly #lock: readonly [number, number]
  readonly #sql: PartitionSql
  readonly #database: PostgresDatabase
  readonly #clock: Clock

  constructor(pipeline: string, table: string, sql: PartitionSql, database: PostgresDatabase, clock: Clock) {
    this.#pipeline = pipeline
    this.#lock = lockOf(table, pipeline)
    this.#sql = sql
    this.#database = database
    this.#clock = clock
  }

  async list(): Promise<Partition[]> {
    return this.#read(this.#sql.list)
  }

  async get(token: string): Promise<Partition | undefined> {
    return (await this.#read(this.#sql.get, token))[0]
  }

  async createRoot({ token, start }: NewPartition, owner: string, leaseMs: number): Promise<boolean> {
    return (await this.#write(this.#sql.createRoot, token, start, owner, this.#clock.now() + leaseMs)).length === 1
  }

  async reopen(end: CommitTimestamp | null): Promise<void> {
    await this.#write(this.#sql.reopen, end)
  }

  async claim(owner: string, leaseMs: number): Promise<Partition[]> {
    const now = this.#clock.now()
    return this.#database.transact('write', this.#lock, async (query) => {
      await query({ text: this.#sql.claim, values: [this.#pipeline, owner, now, now + leaseMs] })
      return (await query<PartitionRow>({ text: this.#sql.unfinished, values: [this.#pipeline] })).map(partitionOf)
    })
  }

  async addChildren(
    parent: string,
    { owner, epoch }: Ownership,
    children: readonly NewPartition[],
    leaseMs: number,
  ): Promise<Partition[] | undefined> {
    const leaseUntilMs = this.#clock.now() + leaseMs
    return this.#database.transact('write', this.#lock, async (query) => {
      const held = { text: this.#sql.held, values: [this.#pipeline, parent, owner, epoch] }
      if ((await query(held)).length === 0) return undefined
      const tokens = children.map(({ token }) => token)
      const parents = children.map(({ parentTokens }) => JSON.stringify(parentTokens))
      const starts = children.map(({ start }) => start)
      const values = [this.#pipeline, tokens, parents, starts, owner, leaseUntilMs]
      const inserted = (await query<PartitionRow>({ text: this.#sql.insert, values })).map(partitionOf)
      return inserted.sort((a, b) => tokens.indexOf(a.token) - tokens.indexOf(b.token))
    })
  }

  // A single row is compared and set by one statement, so that it needs no lock of the pipeline.
  async advance(token: string, ownership: Ownership, from: PartitionState, to: PartitionState): Promise<boolean> {
    const { owner, epoch } = ownership
    const values = [this.#pipeline, token, owner, epoch, from, to]
    return (await this.#database.run('write', { text: this.#sql.advance, values })).length === 1
  }

  async checkpoint(owner: string, writes: readonly CheckpointWrite[], leaseMs: number): Promise<string[]> {
    const lost = await this.#write<{ token: string }>(
      this.#sql.checkpoint,
      owner,
      this.#clock.now() + leaseMs,
      writes.map(({ token }) => token),
      writes.map(({ epoch }) => epoch),
      writes.map(({ watermark }) => watermark),
      writes.map(({ boundaryIds }) => JSON.stringify(boundaryIds)),
    )
    return lost.map(({ token }) => token)
  }

  async finish(
    token: string,
    { owner, epoch }: Ownership,
    { watermark, boundaryIds }: Checkpoint,
    endedAt: CommitTimestamp | null,
  ): Promise<boolean> {
    const values = [this.#pipeline, token, owner, epoch, watermark, JSON.stringify(boundaryIds), endedAt]
    return (await this.#database.run('write', { text: this.#sql.finish, values })).length === 1
  }

  async release(owner: string): Promise<void> {
    await this.#write(this.#sql.release, owner)
  }

  async #read(text: string, ...values: unknown[]): Promise<Partition[]> {
    const rows = await this.#database.run<PartitionRow>('read', { text, values: [this.#pipeline, ...values] })
    return rows.map(partitionOf)
  }

  #write<R extends object = object>(text: string, ...values: unknown[]): Promise<R[]> {
    const statement = { text, values: [this.#pipeline, ...values] }
    return this.#database.transact('write', this.#lock, (query) => query<R & Record<string, unknown>>(statement))
  }
}

function checkedTable(name: unknown): string {
  if (typeof name === 'string' && /^([A-Za-z_]\w{0,62}\.)?[A-Za-z_]\w{0,50}$/.test(name)) return name
  throw new ConfigError(
    `${OWNER}: table must be a name, or schema.name, of letters, digits and _, got ${JSON.stringify(name)}`,
  )
}

/** Host and database only, and nothing if they cannot be told from the rest: that is secret. */
function placeOf(connectionString: unknown): string {
  nonEmptyString(
    OWNER,
    'connectionString',
    typeof connectionString === 'string' ? connectionString : typeof connectionString,
  )
  const text = connectionString as string
  // A path to a socket, as pg takes it too.
  if (text.startsWith('/')) return text.split(' ')[0] as string
  if (!URL.canParse(text)) {
    if (/^[a-z]+:\/\/[^/@]*@?\//.test(text)) return 'socket'
    throw badConnectionString()
  }
  const { host, username, pathname, search, hash } = new URL(text)
  // A password with /, ? or # in it ends the host too early: then what looks like host and path is a part of it.
  const isOdd = `${pathname}${search}${hash}`.includes('@') || (text.includes('@') && username === '')
  return isOdd || !/^\/[\w.%-]*$/.test(pathname || '/') ? 'connectionString' : `${host}${pathname}`
}

const DAY_MS = 86_400_000
