/** Makes the table of the Spanner store where it is missing, and refuses a place that a change stream watches. */
import { sleep, systemClock } from '../core/clock.ts'
import { backoffMs } from '../core/error-policy.ts'
import { ConfigError } from '../core/errors.ts'
import type { SpannerConnection } from './spanner-connection.ts'
import { ALL_COLUMNS, PartitionSql } from './spanner-partition-sql.ts'
import { grpcCode, isTimeout, OWNER } from './spanner-store-errors.ts'

export interface TableOptions {
  readonly database: string
  readonly table: string
  readonly keepFinishedDays: number
}

export interface FoundTable {
  readonly sql: PartitionSql
  readonly hasTable: boolean
  readonly hasIndex: boolean
}

type Select = (sql: string) => Promise<readonly (readonly unknown[])[]>

/** What there is of the table. Throws a ConfigError if it must not be used: watched by a stream, or not of this store. */
export async function findTable(select: Select, { database, table }: TableOptions): Promise<FoundTable> {
  const [dialect] = await select(
    `SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'`,
  )
  const sql = new PartitionSql(table, dialect?.[0] === 'POSTGRESQL' ? 'postgresql' : 'googlesql')
  const isOurs = (name: unknown): boolean =>
    sql.dialect === 'postgresql' ? name === table : String(name).toLowerCase() === table.toLowerCase()

  const all = sql.dialect === 'postgresql' ? '"all"' : '`all`'
  for (const [stream, watchesAll] of await select(
    `SELECT change_stream_name, ${all} FROM information_schema.change_streams`,
  )) {
    if (/^(true|yes)$/i.test(String(watchesAll))) throw watched(database, table, String(stream), 'the whole database')
  }
  for (const [stream, name] of await select(
    'SELECT change_stream_name, table_name FROM information_schema.change_stream_tables',
  )) {
    if (isOurs(name)) throw watched(database, table, String(stream), `table ${table}`)
  }

  // Without a schema of its own name it is the default one.
  const columns = await select(
    `SELECT table_name, column_name FROM information_schema.columns WHERE table_schema IN ('', 'public')`,
  )
  const found = columns.filter(([name]) => isOurs(name)).map(([, column]) => column)
  const missing = ALL_COLUMNS.filter((column) => !found.includes(column))
  if (found.length > 0 && missing.length > 0) throw foreign(database, table, missing)
  // One that another process just makes cannot be read yet.
  const indexes = await select(
    `SELECT index_name FROM information_schema.indexes WHERE table_schema IN ('', 'public') AND index_state = 'READ_WRITE'`,
  )
  const hasIndex = indexes.some(([name]) => String(name).toLowerCase() === sql.index.toLowerCase())
  return { sql, hasTable: found.length > 0, hasIndex }
}

/** Any number of processes may come at the same moment: each statement leaves what is there as it is. */
export async function ensureTable(
  connection: SpannerConnection,
  select: Select,
  options: TableOptions,
): Promise<PartitionSql> {
  const deadline = performance.now() + SCHEMA_TIMEOUT_MS
  for (let attempt = 1; ; attempt++) {
    const { sql, hasTable, hasIndex } = await findTable(select, options)
    if (hasTable && hasIndex) return sql
    const waitMs = backoffMs(attempt, 50, 2_000)
    try {
      const leftMs = Math.max(1, Math.ceil(deadline - performance.now()))
      await connection.changeSchema(sql.schema(options.keepFinishedDays), leftMs)
    } catch (error) {
      // Another process that makes it just now, or a transaction under way, is in the way of a change of the schema.
      const mayPass = isTimeout(error) || !LASTING.has(grpcCode(error) ?? 'INTERNAL')
      if (!mayPass || attempt === MAX_ATTEMPTS || performance.now() + waitMs >= deadline) throw error
    }
    await sleep(systemClock, waitMs)
  }
}

function watched(database: string, table: string, stream: string, what: string): ConfigError {
  return new ConfigError(
    `${OWNER}: change stream '${stream}' of '${database}' watches ${what}, so it would report every write of this store`,
    {
      hint: `Give a separate database in the option database, or let the stream watch named tables without ${table}: ALTER CHANGE STREAM ${stream} SET FOR <tables>.`,
    },
  )
}

function foreign(database: string, table: string, missing: readonly string[]): ConfigError {
  return new ConfigError(
    `${OWNER}: '${database}' has a table ${table} that is not of this store: it has no column ${missing.join(', ')}`,
    { hint: 'Give another name in the option table.' },
  )
}

const LASTING: ReadonlySet<string> = new Set(['PERMISSION_DENIED', 'UNAUTHENTICATED', 'INVALID_ARGUMENT', 'NOT_FOUND'])
/** All tries together. */
const SCHEMA_TIMEOUT_MS = 180_000
const MAX_ATTEMPTS = 12
