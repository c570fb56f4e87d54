/** Partition progress in one SQLite file: the embedded default, shared safely by the processes of one machine. */
import { closeSync, fsyncSync, mkdirSync, openSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { DatabaseSync, type StatementSync } from 'node:sqlite'
import { type Clock, systemClock } from '../core/clock.ts'
import { ClosedError, ConfigError, describeThrown, StoreError, StreamError } from '../core/errors.ts'
import type { Checkpoint } from '../core/in-flight-tracker.ts'
import { knownKeys, nonEmptyString } from '../core/options.ts'
import type { Partition, PartitionState } from '../model/partition.ts'
import type { CheckpointWrite, NewPartition, Ownership, PartitionStore, PartitionTable } from './partition-store.ts'

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
      database ??= new Database(path, file)
      return new SqlitePartitionTable(pipeline, database, clock)
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

  async finish(token: string, ownership: Ownership, checkpoint: Checkpoint): Promise<boolean> {
    const row = { pipeline: this.#pipeline, token, owner: ownership.owner, epoch: ownership.epoch }
    const { watermark, boundaryIds } = checkpoint
    return this.#database.write((sql) => {
      sql.progress.run({ ...row, watermark, boundaryIds: JSON.stringify(boundaryIds) })
      return sql.finish.run(row).changes === 1
    })
  }

  async release(owner: string): Promise<void> {
    this.#database.write((sql) => sql.release.run({ pipeline: this.#pipeline, owner }))
  }

  #isHeld(sql: Statements, token: string, { owner, epoch }: Ownership): boolean {
    return sql.held.get({ pipeline: this.#pipeline, token, owner, epoch }) !== undefined
  }

  /** Undefined if the row exists already. */
  #insert(sql: Statements, partition: NewPartition, owner: string, leaseMs: number): Partition | undefined {
    const { token, start } = partition
    const parents = JSON.stringify(partition.parentTokens)
    const leaseUntilMs = this.#clock.now() + leaseMs
    return partitions(sql.insert.all({ pipeline: this.#pipeline, token, parents, start, owner, leaseUntilMs }))[0]
  }
}

/** One connection. Everything on it is synchronous, so the tables that share it cannot interleave. */
class Database {
  readonly #path: string
  readonly #connection: DatabaseSync
  readonly #statements: Statements

  constructor(path: string, file: string) {
    this.#path = path
    let connection: DatabaseSync | undefined
    try {
      makeFolder(dirname(file))
      connection = new DatabaseSync(file, { timeout: BUSY_TIMEOUT_MS })
      this.#connection = connection
      useWriteAheadLog(connection)
      connection.exec('PRAGMA synchronous = FULL')
      this.#ensureSchema()
      this.#statements = prepareAll(connection)
    } catch (error) {
      connection?.close()
      throw this.#failure('open', error)
    }
  }

  read<R>(work: (statements: Statements) => R): R {
    this.#assertOpen()
    try {
      return work(this.#statements)
    } catch (error) {
      throw this.#failure('read', error)
    }
  }

  /** One commit. The lock is taken before the first read, so nobody changes what was compared before it is set. */
  write<R>(work: (statements: Statements) => R): R {
    this.#assertOpen()
    try {
      return this.#transaction(() => work(this.#statements))
    } catch (error) {
      throw this.#failure('write', error)
    }
  }

  close(): void {
    if (this.#connection.isOpen) this.#connection.close()
  }

  #ensureSchema(): void {
    if (this.#schemaVersion() === SCHEMA_VERSION) return
    this.#transaction(() => {
      // Read again under the lock: another process may have been first.
      const version = this.#schemaVersion()
      if (version === SCHEMA_VERSION) return
      if (version > SCHEMA_VERSION) {
        throw new StoreError(
          `${OWNER}: ${this.#path} was written by a newer version (schema ${version}, this one knows ${SCHEMA_VERSION})`,
          { hint: 'Update millrace, or give this pipeline another path.' },
        )
      }
      this.#connection.exec(SCHEMA)
    })
  }

  #schemaVersion(): number {
    return Number(this.#connection.prepare('PRAGMA user_version').get()?.user_version)
  }

  #transaction<R>(work: () => R): R {
    this.#connection.exec('BEGIN IMMEDIATE')
    try {
      const result = work()
      this.#connection.exec('COMMIT')
      return result
    } catch (error) {
      // Some failures, such as a full disk, have rolled back already.
      if (this.#connection.isTransaction) this.#connection.exec('ROLLBACK')
      throw error
    }
  }

  #assertOpen(): void {
    if (!this.#connection.isOpen) throw new ClosedError(`${OWNER}: ${this.#path} is closed`)
  }

  #failure(doing: 'open' | 'read' | 'write', cause: unknown): StreamError {
    if (cause instanceof StreamError) return cause
    const { reason, hint, retryable } = explain(cause)
    return new StoreError(`${OWNER}: cannot ${doing} ${this.#path}: ${reason}`, { cause, retryable, hint })
  }
}

/** Messages of SQLite name tables at most; those of the file system are left out, the path is named anyway. */
function explain(cause: unknown): { reason: string; hint: string; retryable: boolean } {
  const { code, errcode, errstr } = cause as { code?: unknown; errcode?: unknown; errstr?: unknown }
  if (typeof errcode !== 'number') {
    const known = String(code)
    return { reason: describeThrown(cause), hint: FILE_HINTS[known] ?? NO_ACCESS, retryable: PASSING.has(known) }
  }
  // The low byte is the kind of the error; the rest tells more about it.
  const kind = errcode & 0xff
  return {
    reason: `${errstr} (SQLite ${errcode})`,
    hint: SQLITE_HINTS[kind] ?? NO_ACCESS,
    retryable: PASSING.has(kind),
  }
}

/** Syncs what it makes: a checkpoint in a folder that a loss of power takes away would be lost with it. */
function makeFolder(folder: string): void {
  const first = mkdirSync(folder, { recursive: true })
  if (first === undefined || process.platform === 'win32') return
  const outermost = dirname(first)
  for (let made = folder; made.startsWith(outermost); made = dirname(made)) {
    const descriptor = openSync(made, 'r')
    try {
      fsyncSync(descriptor)
    } finally {
      closeSync(descriptor)
    }
    if (made === outermost) return
  }
}

/**
 * The first process to come turns the file over to a write-ahead log; to others at that moment SQLite says "locked" at
 * once, without the wait that it grants elsewhere. So we wait, as it does: blocking, and for as long.
 */
function useWriteAheadLog(connection: DatabaseSync): void {
  const deadline = performance.now() + BUSY_TIMEOUT_MS
  for (;;) {
    try {
      connection.exec('PRAGMA journal_mode = WAL')
      return
    } catch (error) {
      if ((error as { errcode?: unknown }).errcode !== SQLITE.BUSY || performance.now() > deadline) throw error
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
    }
  }
}

function partitions(rows: readonly unknown[]): Partition[] {
  return (rows as readonly Row[]).map((row) => ({
    token: row.token,
    parentTokens: JSON.parse(row.parents) as string[],
    start: row.start,
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
  readonly state: PartitionState
  readonly watermark: string
  readonly boundary_ids: string
  readonly owner: string | null
  readonly epoch: number
  readonly lease_until_ms: number
}

function prepareAll(connection: DatabaseSync): Statements {
  const prepared = Object.entries(SQL).map(([name, sql]) => [name, connection.prepare(sql)])
  return Object.fromEntries(prepared) as Statements
}

type Statements = Readonly<Record<keyof typeof SQL, StatementSync>>

const OWNER = 'sqlitePartitionStore'
const BUSY_TIMEOUT_MS = 5000
const SCHEMA_VERSION = 1

// Finished rows pile up over the years and are left out of the index that claims and renewals use.
// Leases may be fractions of a millisecond on a replaced clock, hence REAL.
const SCHEMA = `
  CREATE TABLE partitions (
    pipeline TEXT NOT NULL,
    token TEXT NOT NULL,
    parents TEXT NOT NULL,
    start TEXT NOT NULL,
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
  claim: `UPDATE partitions SET epoch = epoch + (owner IS NOT :owner), owner = :owner, lease_until_ms = :leaseUntilMs
    WHERE pipeline = :pipeline AND state <> 'FINISHED'
    AND (owner IS NULL OR owner = :owner OR lease_until_ms <= :now)`,
  advance: `UPDATE partitions SET state = :to WHERE ${HELD} AND state = :from`,
  // An equal watermark counts as progress: the changes of one instant settle bit by bit.
  progress: `UPDATE partitions SET watermark = :watermark, boundary_ids = :boundaryIds
    WHERE ${HELD} AND state = 'RUNNING' AND watermark <= :watermark`,
  renew: `UPDATE partitions SET lease_until_ms = :leaseUntilMs
    WHERE pipeline = :pipeline AND owner = :owner AND state <> 'FINISHED'`,
  finish: `UPDATE partitions SET state = 'FINISHED', owner = NULL, lease_until_ms = 0
    WHERE ${HELD} AND state = 'RUNNING'`,
  release: 'UPDATE partitions SET owner = NULL, lease_until_ms = 0 WHERE pipeline = :pipeline AND owner = :owner',
} as const

const SQLITE = { BUSY: 5, LOCKED: 6, IOERR: 10, CORRUPT: 11, FULL: 13, CANTOPEN: 14, NOTADB: 26 } as const

/** What may be gone at the next try. */
const PASSING: ReadonlySet<number | string> = new Set([
  ...[SQLITE.BUSY, SQLITE.LOCKED, SQLITE.IOERR, SQLITE.FULL],
  ...['EIO', 'ENOSPC', 'EMFILE', 'ENFILE', 'EAGAIN'],
])

const NOT_OURS = 'Give this pipeline another path, or restore the file from a backup.'
const NO_ACCESS = 'Check that this user may write the file and its folder, and that the disk is not read-only.'
const HELD_LONG = 'Another process holds the file for long: look for a second run or an open SQLite shell.'
const DISK_FULL = 'The disk is full: make room.'

const SQLITE_HINTS: Readonly<Record<number, string>> = {
  [SQLITE.BUSY]: HELD_LONG,
  [SQLITE.LOCKED]: HELD_LONG,
  [SQLITE.IOERR]: 'Check the disk and the free space on it.',
  [SQLITE.CORRUPT]: `The file is damaged. ${NOT_OURS}`,
  [SQLITE.FULL]: DISK_FULL,
  [SQLITE.CANTOPEN]: `The path must be a file, not a folder. ${NO_ACCESS}`,
  [SQLITE.NOTADB]: `The file is not a SQLite database. ${NOT_OURS}`,
}

const FILE_HINTS: Readonly<Record<string, string>> = {
  EACCES: 'This user may not make the folder: change its rights, or give another path.',
  EROFS: 'The disk is read-only: give a path on another one.',
  ENOSPC: DISK_FULL,
  EEXIST: 'The folder of the path is a file: give another path.',
  ENOTDIR: 'A part of the path is a file, not a folder: give another path.',
}
