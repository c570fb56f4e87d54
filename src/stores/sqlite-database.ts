/** A SQLite file: opened safely by several processes, every write one synced commit, every failure explained. */
import { closeSync, fsyncSync, mkdirSync, openSync } from 'node:fs'
import { dirname } from 'node:path'
import { DatabaseSync, type StatementSync } from 'node:sqlite'
import { ClosedError, describeThrown, StoreError, StreamError } from '../core/errors.ts'
import { fileAccess } from '../core/file-access.ts'

export interface DatabaseLayout<Name extends string> {
  readonly version: number
  /** Makes the tables and sets `user_version`. */
  readonly schema: string
  readonly statements: Readonly<Record<Name, string>>
}

export type Statements<Name extends string> = Readonly<Record<Name, StatementSync>>

/** One connection. Everything on it is synchronous, so the tables that share it cannot interleave. */
export class SqliteDatabase<Name extends string> {
  readonly #owner: string
  readonly #path: string
  readonly #layout: DatabaseLayout<Name>
  readonly #connection: DatabaseSync
  readonly #statements: Statements<Name>

  constructor(owner: string, path: string, file: string, layout: DatabaseLayout<Name>) {
    this.#owner = owner
    this.#path = path
    this.#layout = layout
    let connection: DatabaseSync | undefined
    try {
      makeFolder(dirname(file))
      connection = new DatabaseSync(file, { timeout: BUSY_TIMEOUT_MS })
      this.#connection = connection
      useWriteAheadLog(connection)
      connection.exec('PRAGMA synchronous = FULL')
      this.#ensureSchema()
      this.#statements = prepareAll(connection, layout.statements)
    } catch (error) {
      connection?.close()
      throw this.#failure('open', error)
    }
  }

  read<R>(work: (statements: Statements<Name>) => R): R {
    this.#assertOpen()
    try {
      return work(this.#statements)
    } catch (error) {
      throw this.#failure('read', error)
    }
  }

  /** One commit. The lock is taken before the first read, so nobody changes what was compared before it is set. */
  write<R>(work: (statements: Statements<Name>) => R): R {
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
    const { version: known, schema } = this.#layout
    if (this.#schemaVersion() === known) return
    this.#transaction(() => {
      // Read again under the lock: another process may have been first.
      const version = this.#schemaVersion()
      if (version === known) return
      if (version > known) throw tooNew(this.#owner, this.#path, version, known)
      this.#connection.exec(schema)
    })
  }

  #schemaVersion(): number {
    return schemaVersion(this.#connection)
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
    if (!this.#connection.isOpen) throw new ClosedError(`${this.#owner}: ${this.#path} is closed`)
  }

  #failure(doing: Doing, cause: unknown): StreamError {
    return failure(this.#owner, this.#path, doing, cause)
  }
}

/**
 * Reads from a file that may not be there yet: then `work` is not called, and it is only found out whether the file
 * could be made. Neither makes nor changes anything.
 */
export async function peekSqlite<R>(
  owner: string,
  path: string,
  file: string,
  knownVersion: number,
  work: (connection: DatabaseSync) => R,
): Promise<R | undefined> {
  let connection: DatabaseSync | undefined
  try {
    if ((await fileAccess(file)) === 'can be made') return undefined
    // Not read-only: such a connection leaves the files of the write-ahead log behind.
    connection = new DatabaseSync(file, { timeout: BUSY_TIMEOUT_MS })
    const version = schemaVersion(connection)
    if (version > knownVersion) throw tooNew(owner, path, version, knownVersion)
    return version === 0 ? undefined : work(connection)
  } catch (error) {
    throw failure(owner, path, 'open', error)
  } finally {
    connection?.close()
  }
}

type Doing = 'open' | 'read' | 'write'

function failure(owner: string, path: string, doing: Doing, cause: unknown): StreamError {
  if (cause instanceof StreamError) return cause
  const { reason, hint, retryable } = explain(cause)
  return new StoreError(`${owner}: cannot ${doing} ${path}: ${reason}`, { cause, retryable, hint })
}

function tooNew(owner: string, path: string, version: number, known: number): StoreError {
  return new StoreError(
    `${owner}: ${path} was written by a newer version (schema ${version}, this one knows ${known})`,
    { hint: 'Update millrace, or give this pipeline another path.' },
  )
}

function schemaVersion(connection: DatabaseSync): number {
  return Number(connection.prepare('PRAGMA user_version').get()?.user_version)
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
      if ((Number((error as { errcode?: unknown }).errcode) & 0xff) !== SQLITE.BUSY || performance.now() > deadline)
        throw error
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
    }
  }
}

function prepareAll<Name extends string>(
  connection: DatabaseSync,
  statements: Readonly<Record<Name, string>>,
): Statements<Name> {
  const prepared = Object.entries<string>(statements).map(([name, sql]) => [name, connection.prepare(sql)])
  return Object.fromEntries(prepared) as Statements<Name>
}

const BUSY_TIMEOUT_MS = 5000

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
  EISDIR: 'The path is a folder: give the path of a file.',
  EEXIST: 'The folder of the path is a file: give another path.',
  ENOTDIR: 'A part of the path is a file, not a folder: give another path.',
}
