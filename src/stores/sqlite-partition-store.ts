/** Partition progress in one SQLite file: the embedded default, shared safely by the processes of one machine. */
import { resolve } from 'node:path'
import { type Clock, systemClock } from '../core/clock.ts'
import { ConfigError } from '../core/errors.ts'
import type { Checkpoint } from '../core/in-flight-tracker.ts'
import { knownKeys, nonEmptyString } from '../core/options.ts'
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import type { Partition, PartitionState } from '../model/partition.ts'
import type { CheckpointWrite, NewPartition, Ownership, PartitionStore, PartitionTable } from './partition-store.ts'
import { peekSqlite, SqliteDatabase, type Statements } from './sqlite-database.ts'

export interface SqlitePartitionStoreOptions {
  /** The file; it and its folder are made when the store is first opened. */
  readonly path: string
  /**
   * What leases are measured with.
   * @default the machine's clock
   */
  readonly clock?: Clock
}

/**
 * Keeps progress in a SQLite file. What resolved survives the loss of power: each commit is synced to the disk.
 * Any number of processes of one machine may share the file; network file systems are not safe for it.
 * Nothing is opened before `open`, and a closed store may be opened again. Fails with a StoreError that names the file.
 * @example definePipeline({ source, sink, store: sqlitePartitionStore({ path: '.millrace/state.db' }) })
 */
export function sqlitePartitionStore(options: SqlitePartitionStoreOptions): PartitionStore {
  if (typeof options !== 'object' || options === null) throw new ConfigError(`${OWNER}: takes an options object`)
  knownKeys(OWNER, options, ['path', 'clock'])
  const { clock = systemClock } = options
  const path = nonEmptyString(OWNER, 'path', options.path)
  if (path === ':memory:') {
    throw new ConfigError(`${OWNER}: path must be a file, got ":memory:"`, { hint: 'Use memoryPartitionStore().' })
  }
  // A later change of the working directory must not lead to another file.
  const file = resolve(path)
  let database: Database | undefined
  return {
    name: `${OWNER}(${path})`,
    async open(pipeline) {
      database ??= new SqliteDatabase(OWNER, path, file, { version: SCHEMA_VERSION, schema: SCHEMA, statements: SQL })
      return new SqlitePartitionTable(pipeline, database, clock)
    },
    async peek(pipeline) {
      const rows = await peekSqlite(OWNER, path, file, SCHEMA_VERSION, (connection) =>
        connection.prepare(SQL.list).all({ pipeline }),
      )
      return rows && partitions(rows)
    },
    async close() {
      const open = database
      database = undefined
      open?.close()
    },
  }
}

class SqlitePartitionTable implements PartitionTable {
  readonly #pipeline: string
  readonly #database: Database
  readonly #clock: Clock

  constructor(pipeline: string, database: Database, clock: Clock) {
    this.#pipeline = pipeline
    this.#database = database
    this.#clock = clock
  }

  async list(): Promise<Partition[]> {
    return this.#database.read((sql) => partitions(sql.list.all({ pipeline: this.#pipeline })))
  }

  async get(token: string): Promise<Partition | undefined> {
    return this.#database.read((sql) => partitions(sql.get.all({ pipeline: this.#pipeline, token }))[0])
  }

  async createRoot(root: NewPartition, owner: string, leaseMs: number): Promise<boolean> {
    return this.#database.write((sql) => {
      if (sql.any.get({ pipeline: this.#pipeline }) !== undefined) return false
      return this.#insert(sql, root, owner, leaseMs) !== undefined
    })
  }

  async reopen(end: CommitTimestamp | null): Promise<void> {
    this.#database.write((sql) => sql.reopen.run({ pipeline: this.#pipeline, end }))
  }

  async claim(owner: string, leaseMs: number): Promise<Partition[]> {
    const pipeline = this.#pipeline
    return this.#database.write((sql) => {
      const now = this.#clock.now()
      sql.claim.run({ pipeline, owner, now, leaseUntilMs: now + leaseMs })
      return partitions(sql.unfinished.all({ pipeline }))
    })
  }

  async addChildren(
    parent: string,
    ownership: Ownership,
    children: readonly NewPartition[],
    leaseMs: number,
  ): Promise<Partition[] | undefined> {
    return this.#database.write((sql) => {
      if (!this.#isHeld(sql, parent, ownership)) return undefined
      const inserted = children.map((child) => this.#insert(sql, child, ownership.owner, leaseMs))
      return inserted.filter((child) => child !== undefined)
    })
  }

  async advance(token: string, ownership: Ownership, from: PartitionState, to: PartitionState): Promise<boolean> {
    const { owner, epoch } = ownership
    const row = { pipeline: this.#pipeline, token, owner, epoch, from, to }
    return this.#database.write((sql) => sql.advance.run(row).changes === 1)
  }

  async checkpoint(owner: string, writes: readonly CheckpointWrite[], leaseMs: number): Promise<string[]> {
    const pipeline = this.#pipeline
    return this.#database.write((sql) => {
      const lost: string[] = []
      for (const { token, epoch, watermark, boundaryIds } of writes) {
        const row = { pipeline, token, owner, epoch, watermark, boundaryIds: JSON.stringify(boundaryIds) }
        if (sql.progress.run(row).changes === 1) continue
        if (!this.#isHeld(sql, token, { owner, epoch })) lost.push(token)
      }
      sql.renew.run({ pipeline, owner, leaseUntilMs: this.#clock.now() + leaseMs })
      return lost
    })
  }

  async finish(
    token: string,
    ownership: Ownership,
    checkpoint: Checkpoint,
    endedAt: CommitTimestamp | null,
  ): Promise<boolean> {
    const row = { pipeline: this.#pipeline, token, owner: ownership.owner, epoch: ownership.epoch }
    const { watermark, boundaryIds } = checkpoint
    return this.#database.write((sql) => {
      sql.progress.run({ ...row, watermark, boundaryIds: JSON.stringify(boundaryIds) })
      return sql.finish.run({ ...row, endedAt }).changes === 1
    })
  }

  async release(owner: string): Promise<void> {
    this.#database.write((sql) => sql.release.run({ pipeline: this.#pipeline, owner }))
  }

  #isHeld(sql: Sql, token: string, { owner, epoch }: Ownership): boolean {
    return sql.held.get({ pipeline: this.#pipeline, token, owner, epoch }) !== undefined
  }

  /** Undefined if the row exists already. */
  #insert(sql: Sql, partition: NewPartition, owner: string, leaseMs: number): Partition | undefined {
    const { token, start } = partition
    const parents = JSON.stringify(partition.parentTokens)
    const leaseUntilMs = this.#clock.now() + leaseMs
    return partitions(sql.insert.all({ pipeline: this.#pipeline, token, parents, start, owner, leaseUntilMs }))[0]
  }
}

function partitions(rows: readonly unknown[]): Partition[] {
  return (rows as readonly Row[]).map((row) => ({
    token: row.token,
    parentTokens: JSON.parse(row.parents) as string[],
    start: row.start,
    endedAt: row.ended_at,
    state: row.state,
    watermark: row.watermark,
    boundaryIds: JSON.parse(row.boundary_ids) as string[],
    owner: row.owner,
    epoch: row.epoch,
    leaseUntilMs: row.lease_until_ms,
  }))
}

interface Row {
  readonly token: string
  readonly parents: string
  readonly start: string
  readonly ended_at: string | null
  readonly state: PartitionState
  readonly watermark: string
  readonly boundary_ids: string
  readonly owner: string | null
  readonly epoch: number
  readonly lease_until_ms: number
}

type Sql = Statements<keyof typeof SQL>
type Database = SqliteDatabase<keyof typeof SQL>

const OWNER = 'sqlitePartitionStore'
const SCHEMA_VERSION = 1

// Finished rows pile up over the years and are left out of the index that claims and renewals use.
// Leases may be fractions of a millisecond on a replaced clock, hence REAL.
const SCHEMA = `
  CREATE TABLE partitions (
    pipeline TEXT NOT NULL,
    token TEXT NOT NULL,
    parents TEXT NOT NULL,
    start TEXT NOT NULL,
    ended_at TEXT,
    state TEXT NOT NULL,
    watermark TEXT NOT NULL,
    boundary_ids TEXT NOT NULL,
    owner TEXT,
    epoch INTEGER NOT NULL,
    lease_until_ms REAL NOT NULL,
    PRIMARY KEY (pipeline, token)
  ) STRICT;
  CREATE INDEX unfinished_partitions ON partitions (pipeline, owner) WHERE state <> 'FINISHED';
  PRAGMA user_version = ${SCHEMA_VERSION};
`

const HELD = 'pipeline = :pipeline AND token = :token AND owner = :owner AND epoch = :epoch'

const SQL = {
  list: 'SELECT * FROM partitions WHERE pipeline = :pipeline',
  unfinished: `SELECT * FROM partitions WHERE pipeline = :pipeline AND state <> 'FINISHED'`,
  get: 'SELECT * FROM partitions WHERE pipeline = :pipeline AND token = :token',
  any: 'SELECT 1 FROM partitions WHERE pipeline = :pipeline LIMIT 1',
  held: `SELECT 1 FROM partitions WHERE ${HELD}`,
  insert: `INSERT INTO partitions
    (pipeline, token, parents, start, state, watermark, boundary_ids, owner, epoch, lease_until_ms)
    VALUES (:pipeline, :token, :parents, :start, 'CREATED', :start, '[]', :owner, 1, :leaseUntilMs)
    ON CONFLICT DO NOTHING RETURNING *`,
  claim: `UPDATE partitions SET epoch = epoch + 1, owner = :owner, lease_until_ms = :leaseUntilMs
    WHERE pipeline = :pipeline AND state <> 'FINISHED'
    AND (owner IS NULL OR owner = :owner OR lease_until_ms <= :now)`,
  reopen: `UPDATE partitions SET state = 'RUNNING', ended_at = NULL
    WHERE pipeline = :pipeline AND state = 'FINISHED' AND ended_at IS NOT NULL AND (:end IS NULL OR ended_at < :end)`,
  advance: `UPDATE partitions SET state = :to WHERE ${HELD} AND state = :from`,
  // An equal watermark counts as progress: the changes of one instant settle bit by bit.
  progress: `UPDATE partitions SET watermark = :watermark, boundary_ids = :boundaryIds
    WHERE ${HELD} AND state = 'RUNNING' AND watermark <= :watermark`,
  renew: `UPDATE partitions SET lease_until_ms = :leaseUntilMs
    WHERE pipeline = :pipeline AND owner = :owner AND state <> 'FINISHED'`,
  finish: `UPDATE partitions SET state = 'FINISHED', ended_at = :endedAt, owner = NULL, lease_until_ms = 0
    WHERE ${HELD} AND state = 'RUNNING'`,
  release: 'UPDATE partitions SET owner = NULL, lease_until_ms = 0 WHERE pipeline = :pipeline AND owner = :owner',
} as const
