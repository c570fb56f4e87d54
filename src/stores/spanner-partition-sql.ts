/** The table of the Spanner store: its columns and statements in both dialects, rows to cells and back. */
import { deflateRawSync, inflateRawSync } from 'node:zlib'
import type { Partition, PartitionState } from '../model/partition.ts'
import type { PartitionRows, RowChange } from './partition-rows.ts'
import { PAGE_ROWS } from './spanner-commit-sizes.ts'
import type { Cell, RowQuery, RowRead, RowWrite } from './spanner-connection.ts'

export type SqlDialect = 'googlesql' | 'postgresql'

/** The unfinished rows, in the order of their tokens. */
export interface OpenRows {
  /** A checkpoint neither needs nor reads parents and boundary ids. */
  readonly columns: 'all' | 'progress'
  /** The last token of the page before. */
  readonly after?: string | undefined
  /** So many as may change in one commit, or all of them. */
  readonly isPage: boolean
}

/** A piece of work on the rows of one pipeline. It may be run more than once: only the last run counts. */
export interface RowWork<R> {
  readonly pipeline: string
  /** The rows that it looks at; together with the work of others in one transaction. */
  readonly tokens?: readonly string[]
  /** Also any one row, to see whether there are rows at all. */
  readonly looksForAny?: boolean
  /** Unfinished rows instead, in a transaction of its own. */
  readonly open?: OpenRows
  run(rows: PartitionRows): R
}

/** The statements of one table. */
export class PartitionSql {
  readonly table: string
  readonly dialect: SqlDialect
  readonly index: string

  constructor(table: string, dialect: SqlDialect) {
    this.table = table
    this.dialect = dialect
    this.index = `${table}_by_end`
  }

  /** What a transaction reads before it changes anything. Later reads of a row replace earlier ones. */
  readsOf(works: readonly RowWork<unknown>[]): (RowRead | (RowQuery & { readonly columns: readonly string[] }))[] {
    const [{ pipeline, open }] = works as readonly [RowWork<unknown>]
    if (open !== undefined) return [this.openRows(pipeline, open)]
    const tokens = new Set(works.flatMap((work) => work.tokens ?? []))
    const { table } = this
    const byKey = { table, columns: COLUMNS, keys: [...tokens].map((token) => [pipeline, token]) }
    if (!works.some(({ looksForAny }) => looksForAny)) return [byKey]
    return [{ table, columns: COLUMNS, keys: { prefix: [pipeline] }, limit: 1 }, byKey]
  }

  listOf(pipeline: string): RowRead {
    return { table: this.table, columns: COLUMNS, keys: { prefix: [pipeline] } }
  }

  /** Rows that were finished at a user's end. */
  endedRows(pipeline: string): RowQuery {
    const where = `pipeline = ${this.#parameter(1)} AND finished_at IS NULL AND ended_at IS NOT NULL`
    return { sql: `SELECT ${COLUMNS.join(', ')} FROM ${this.#keptRows()} WHERE ${where}`, parameters: [pipeline] }
  }

  openRows(pipeline: string, { columns, after, isPage }: OpenRows): RowQuery & { readonly columns: readonly string[] } {
    const chosen = columns === 'all' ? COLUMNS : PROGRESS_COLUMNS
    const behind = after === undefined ? '' : ` AND token > ${this.#parameter(2)}`
    return {
      sql:
        `SELECT ${chosen.join(', ')} FROM ${this.#keptRows()} ` +
        `WHERE pipeline = ${this.#parameter(1)} AND finished_at IS NULL AND state <> 'FINISHED'${behind} ` +
        `ORDER BY token${isPage ? ` LIMIT ${PAGE_ROWS}` : ''}`,
      parameters: after === undefined ? [pipeline] : [pipeline, after],
      columns: chosen,
    }
  }

  /** Only rows with a time of finishing grow old: one that is unfinished, or kept, has none. */
  schema(keepFinishedDays: number): string[] {
    const [table, index] = [this.#quoted(this.table), this.#quoted(this.index)]
    const columns = COLUMN_TYPES.map(([name, googlesql, postgresql]) =>
      this.dialect === 'googlesql' ? `${name} ${googlesql}` : `${name} ${postgresql}`,
    ).join(', ')
    const key = 'PRIMARY KEY (pipeline, token)'
    const makeIndex = `CREATE INDEX IF NOT EXISTS ${index} ON ${table} (pipeline, finished_at, token)`
    if (this.dialect === 'postgresql') {
      const ttl = `TTL INTERVAL '${keepFinishedDays} days' ON finished_at`
      return [`CREATE TABLE IF NOT EXISTS ${table} (${columns}, ${key}) ${ttl}`, makeIndex]
    }
    const ttl = `ROW DELETION POLICY (OLDER_THAN(finished_at, INTERVAL ${keepFinishedDays} DAY))`
    return [`CREATE TABLE IF NOT EXISTS ${table} (${columns}) ${key}, ${ttl}`, makeIndex]
  }

  /** By an index that checkpoints do not touch: of the finished rows, which are many, only those kept have no time in it. */
  #keptRows(): string {
    const index = this.#quoted(this.index)
    const hint = this.dialect === 'googlesql' ? `@{FORCE_INDEX=${index}}` : ` /*@ FORCE_INDEX=${index} */`
    return `${this.#quoted(this.table)}${hint}`
  }

  #quoted(name: string): string {
    return this.dialect === 'googlesql' ? `\`${name}\`` : `"${name}"`
  }

  #parameter(number: number): string {
    return this.dialect === 'googlesql' ? `@p${number}` : `$${number}`
  }
}

/** The columns that were not read are empty; as long as nobody replaces them, they are not written either. */
export function partitionOf(cells: readonly Cell[], columns: readonly string[] = COLUMNS): Partition {
  const cell = (name: Column): Cell => cells[columns.indexOf(name)] ?? null
  const text = (name: Column): string => String(cell(name) ?? '')
  return {
    token: text('token'),
    parentTokens: columns.includes('parents') ? idsOf(text('parents')) : [],
    start: text('start_time'),
    endedAt: cell('ended_at') as string | null,
    state: text('state') as PartitionState,
    watermark: text('watermark'),
    boundaryIds: columns.includes('boundary_ids') ? idsOf(text('boundary_ids')) : [],
    owner: cell('owner') as string | null,
    epoch: Number(cell('epoch')),
    leaseUntilMs: Number(cell('lease_until_ms')),
  }
}

/** Writes only what is different, rows with the same columns together. */
export function writesOf(table: string, pipeline: string, changes: readonly RowChange[]): RowWrite[] {
  const writes = new Map<string, { readonly columns: readonly string[]; readonly rows: Cell[][] }>()
  for (const { before, after } of changes) {
    const cells = before === undefined ? cellsOf(after) : differences(before, after)
    if (before !== undefined && cells.length === 0) continue
    const columns = ['pipeline', 'token', ...cells.map(([column]) => column)]
    const kind = before === undefined ? 'insert' : 'update'
    const name = `${kind} ${columns.join()}`
    const write = writes.get(name) ?? { columns, rows: [] }
    write.rows.push([pipeline, after.token, ...cells.map(([, cell]) => cell)])
    writes.set(name, write)
  }
  return [...writes].map(([name, write]) => ({
    kind: name.startsWith('insert') ? 'insert' : 'update',
    table,
    ...write,
  }))
}

type CellOf = readonly [column: Column, cell: Cell]

function differences(before: Partition, after: Partition): CellOf[] {
  const changed = cellsOf(after).filter(([column]) => {
    const field = FIELDS[column]
    return field !== undefined && before[field] !== after[field]
  })
  if (before.state === after.state) return changed
  if (after.state === 'FINISHED') return isKept(after) ? changed : [...changed, ['finished_at', COMMIT_TIME]]
  return before.state === 'FINISHED' ? [...changed, ['finished_at', null]] : changed
}

/** Without the root a pipeline would begin anew; what ended at a user's end is read on by a run with a later one. */
function isKept({ parentTokens, endedAt }: Partition): boolean {
  return parentTokens.length === 0 || endedAt !== null
}

function cellsOf(row: Partition): CellOf[] {
  return [
    ['parents', textOf(row.parentTokens)],
    ['start_time', row.start],
    ['ended_at', row.endedAt],
    ['state', row.state],
    ['watermark', row.watermark],
    ['boundary_ids', textOf(row.boundaryIds)],
    ['owner', row.owner],
    ['epoch', String(row.epoch)],
    ['lease_until_ms', row.leaseUntilMs],
  ]
}

/** A column holds 2.5 million characters. Ids of one instant may be more, but are so alike that they shrink to little. */
function textOf(ids: readonly string[]): string {
  const text = JSON.stringify(ids)
  return text.length > MAX_PLAIN_CHARS ? `${PACKED}${deflateRawSync(text).toString('base64')}` : text
}

function idsOf(text: string): string[] {
  if (!text.startsWith(PACKED)) return JSON.parse(text) as string[]
  return JSON.parse(inflateRawSync(Buffer.from(text.slice(PACKED.length), 'base64')).toString()) as string[]
}

const COLUMN_TYPES = [
  ['pipeline', 'STRING(MAX) NOT NULL', 'varchar NOT NULL'],
  ['token', 'STRING(MAX) NOT NULL', 'varchar NOT NULL'],
  ['parents', 'STRING(MAX) NOT NULL', 'varchar NOT NULL'],
  ['start_time', 'STRING(MAX) NOT NULL', 'varchar NOT NULL'],
  ['ended_at', 'STRING(MAX)', 'varchar'],
  ['state', 'STRING(MAX) NOT NULL', 'varchar NOT NULL'],
  ['watermark', 'STRING(MAX) NOT NULL', 'varchar NOT NULL'],
  ['boundary_ids', 'STRING(MAX) NOT NULL', 'varchar NOT NULL'],
  ['owner', 'STRING(MAX)', 'varchar'],
  ['epoch', 'INT64 NOT NULL', 'bigint NOT NULL'],
  // Leases may be fractions of a millisecond on a replaced clock.
  ['lease_until_ms', 'FLOAT64 NOT NULL', 'double precision NOT NULL'],
  // Set by Spanner itself: the age of a row must not hang on the clock of a worker.
  ['finished_at', 'TIMESTAMP OPTIONS (allow_commit_timestamp = true)', 'spanner.commit_timestamp'],
] as const

type Column = (typeof COLUMN_TYPES)[number][0]

export const ALL_COLUMNS: readonly string[] = COLUMN_TYPES.map(([name]) => name)

const PROGRESS_COLUMNS: readonly string[] = ['token', 'state', 'watermark', 'owner', 'epoch', 'lease_until_ms']
const COLUMNS: readonly string[] = ALL_COLUMNS.filter((name) => name !== 'pipeline' && name !== 'finished_at')

const FIELDS: Readonly<Partial<Record<Column, keyof Partition>>> = {
  ended_at: 'endedAt',
  state: 'state',
  watermark: 'watermark',
  boundary_ids: 'boundaryIds',
  owner: 'owner',
  epoch: 'epoch',
  lease_until_ms: 'leaseUntilMs',
}

const COMMIT_TIME = 'spanner.commit_timestamp()'
const MAX_PLAIN_CHARS = 1_000_000
const PACKED = 'deflate:'
