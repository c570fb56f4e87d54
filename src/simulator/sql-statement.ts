/** The few SQL statements that the simulated server understands. */
import type { Dialect, PartitionMode } from '../model/change-stream.ts'
import { type CommitTimestamp, parseTimestamp, timestampFromMs } from '../model/commit-timestamp.ts'
import { QueryStatusError } from './grpc-status.ts'
import type { WireType, WireValue } from './wire-value.ts'

export type Statement =
  | {
      readonly kind: 'read'
      /** As it stands in the statement, without its schema and quotes. */
      readonly functionName: string
      readonly start: CommitTimestamp
      readonly end: CommitTimestamp | null
      readonly token: string | null
      readonly heartbeatMs: number
    }
  | { readonly kind: 'rows'; readonly columns: readonly Column[]; readonly rows: readonly (readonly WireValue[])[] }

export interface Column {
  readonly name: string
  readonly type: WireType
}

/** A bound parameter; `type` is undefined if the request does not say. */
export interface Parameter {
  readonly value: WireValue
  readonly type: string | undefined
}

/** What the information schema tells. */
export interface SchemaFacts {
  readonly stream: string
  readonly dialect: Dialect
  readonly mode: PartitionMode
  readonly nowMs: number
  readonly retentionMs: number
  readonly valueCaptureType: string
  /** Undefined if the stream watches the whole database. */
  readonly tables: readonly string[] | undefined
}

type Parameters = ReadonlyMap<string, Parameter>
type Table = { readonly columns: readonly string[]; readonly rows: readonly (readonly (string | boolean)[])[] }

/** Throws a QueryStatusError for everything else. */
export function parseStatement(sql: string, parameters: Parameters, facts: SchemaFacts): Statement {
  const text = sql.trim().replace(/;$/, '')
  const read = (facts.dialect === 'googlesql' ? READ : READ_POSTGRESQL).exec(text)
  if (read !== null) return readStatement(read[1]!, read[2]!, parameters, facts.dialect)
  if (/^SELECT\s+CURRENT_TIMESTAMP(?:\(\))?$/i.test(text)) {
    const now = timestampFromMs(facts.nowMs)
    return { kind: 'rows', columns: [{ name: '', type: { code: 'TIMESTAMP' } }], rows: [[now]] }
  }
  if (/\bREAD_\w+`?\s*\(/i.test(text)) {
    throw new QueryStatusError(
      'UNIMPLEMENTED',
      'A change stream is read by SELECT ChangeRecord FROM READ_<stream>(...) only',
    )
  }
  if (/^SELECT\s+1$/i.test(text)) {
    return { kind: 'rows', columns: [{ name: '', type: { code: 'INT64' } }], rows: [['1']] }
  }
  const select = SELECT.exec(text)
  const table = select === null ? undefined : informationSchema(facts).get(select[2]!.toLowerCase())
  if (select === null || table === undefined) {
    throw new QueryStatusError('UNIMPLEMENTED', `The simulator does not understand this statement: ${text}`)
  }
  return selectStatement(select[1]!, table, select[3], parameters, facts.dialect)
}

function readStatement(functionName: string, list: string, parameters: Parameters, dialect: Dialect): Statement {
  const given = new Map<string, string>()
  const parts = splitAtCommas(list)
  for (const [index, part] of parts.entries()) {
    const named = /^(\w+)\s*=>\s*([\s\S]+)$/.exec(part)
    const name = named?.[1]?.toLowerCase() ?? ARGUMENTS[index]
    if (name === undefined || !ARGUMENTS.includes(name) || given.has(name)) {
      throw new QueryStatusError('INVALID_ARGUMENT', `${functionName}: there is no argument ${name ?? index + 1}`)
    }
    given.set(name, named?.[2] ?? part)
  }
  const argument = (name: string, type: string): string | null => {
    const expression = given.get(name)
    if (expression === undefined) throw new QueryStatusError('INVALID_ARGUMENT', `${functionName}: ${name} is missing`)
    return evaluate(expression, name, type, parameters, dialect)
  }
  const start = argument('start_timestamp', 'TIMESTAMP')
  const end = argument('end_timestamp', 'TIMESTAMP')
  const token = argument('partition_token', 'STRING')
  const heartbeat = argument('heartbeat_milliseconds', 'INT64')
  if (start === null) throw new QueryStatusError('INVALID_ARGUMENT', 'start_timestamp must not be NULL')
  if (heartbeat === null) throw new QueryStatusError('INVALID_ARGUMENT', 'heartbeat_milliseconds must not be NULL')
  if (!isNull(given.get('read_options') ?? 'NULL', parameters)) {
    throw new QueryStatusError('UNIMPLEMENTED', 'read_options must be NULL')
  }
  return {
    kind: 'read',
    functionName,
    start: readTimestamp(start),
    end: end === null ? null : readTimestamp(end),
    token,
    heartbeatMs: Number(heartbeat),
  }
}

function isNull(expression: string, parameters: Parameters): boolean {
  const name = parameterName(expression.trim())
  return /^NULL$/i.test(expression.trim()) || (name !== undefined && parameters.get(name)?.value === null)
}

/** A literal or a parameter, of the type that the argument needs: there are no implicit casts. */
function evaluate(
  expression: string,
  argument: string,
  type: string,
  parameters: Parameters,
  dialect: Dialect,
): string | null {
  const text = expression.trim()
  if (/^NULL$/i.test(text)) return null
  const name = parameterName(text)
  if (name !== undefined) {
    const parameter = parameters.get(name)
    if (parameter === undefined)
      throw new QueryStatusError('INVALID_ARGUMENT', `No parameter found for binding: ${name}`)
    if (parameter.type !== type) {
      const bound = parameter.type ?? 'without a type'
      // PostgreSQL looks for another function of that name, which takes such arguments.
      const isOther = dialect === 'postgresql' && parameter.type !== undefined
      const status = isOther ? 'NOT_FOUND' : 'INVALID_ARGUMENT'
      throw new QueryStatusError(status, `${argument} needs a ${type}, but @${name} is bound ${bound}`)
    }
    const { value } = parameter
    if (value !== null && typeof value !== 'string') {
      throw new QueryStatusError('INVALID_ARGUMENT', `@${name}: a ${type} is sent as a string`)
    }
    return value
  }
  const literal = /^(TIMESTAMP\s*)?(?:'([^']*)'|"([^"]*)")$/i.exec(text)
  const isTyped = literal?.[1] !== undefined
  // A plain text of PostgreSQL takes the type that is asked for.
  if (literal && (isTyped === (type === 'TIMESTAMP') || (dialect === 'postgresql' && !isTyped))) {
    return literal[2] ?? literal[3] ?? ''
  }
  if (type === 'INT64' && /^-?\d+$/.test(text)) return text
  throw new QueryStatusError('INVALID_ARGUMENT', `${argument} must be a literal or a parameter of type ${type}`)
}

/** `@name`, or `$2`, which is bound by the name `p2`. */
function parameterName(text: string): string | undefined {
  const number = /^\$(\d+)$/.exec(text)?.[1]
  return number === undefined ? /^@(\w+)$/.exec(text)?.[1] : `p${number}`
}

function readTimestamp(text: string): CommitTimestamp {
  try {
    return parseTimestamp(text)
  } catch {
    throw new QueryStatusError('INVALID_ARGUMENT', 'A timestamp must be RFC 3339')
  }
}

function selectStatement(
  list: string,
  table: Table,
  where: string | undefined,
  parameters: Parameters,
  dialect: Dialect,
): Statement {
  const columnIndex = (name: string): number => {
    const index = table.columns.indexOf(name.replaceAll(/[`"]/g, '').trim().toUpperCase())
    if (index === -1) throw new QueryStatusError('INVALID_ARGUMENT', `Unrecognized name: ${name.trim()}`)
    return index
  }
  const chosen = list.trim() === '*' ? table.columns.map((_, index) => index) : splitAtCommas(list).map(columnIndex)
  const filters = (where === undefined ? [] : where.split(/\s+AND\s+/i)).map((condition) => {
    const match = /^\s*([\w`]+)\s*=\s*([\s\S]+)$/.exec(condition)
    if (match === null) throw new QueryStatusError('UNIMPLEMENTED', `The simulator does not understand: ${condition}`)
    return { index: columnIndex(match[1]!), value: evaluate(match[2]!, match[1]!, 'STRING', parameters, dialect) }
  })
  const rows = table.rows.filter((row) => filters.every(({ index, value }) => row[index] === value))
  return {
    kind: 'rows',
    columns: chosen.map((index) => ({
      name: table.columns[index]!,
      type: { code: typeof table.rows[0]?.[index] === 'boolean' ? 'BOOL' : 'STRING' },
    })),
    rows: rows.map((row) => chosen.map((index) => row[index]!)),
  }
}

function informationSchema(facts: SchemaFacts): ReadonlyMap<string, Table> {
  const { stream, dialect, mode, retentionMs, valueCaptureType, tables } = facts
  const streamColumns = ['CHANGE_STREAM_CATALOG', 'CHANGE_STREAM_SCHEMA', 'CHANGE_STREAM_NAME']
  const isPostgres = dialect === 'postgresql'
  const schema = isPostgres ? 'public' : ''
  const isAll = isPostgres ? (tables === undefined ? 'YES' : 'NO') : tables === undefined
  const optionColumns = ['OPTION_NAME', 'OPTION_TYPE', 'OPTION_VALUE']
  return new Map([
    ['change_streams', { columns: [...streamColumns, 'ALL'], rows: [['', schema, stream, isAll]] }],
    [
      'change_stream_tables',
      {
        columns: [...streamColumns, 'TABLE_NAME'],
        rows: (tables ?? []).map((table) => ['', schema, stream, table]),
      },
    ],
    [
      'change_stream_options',
      {
        columns: [...streamColumns, ...optionColumns],
        rows: [
          ['', schema, stream, 'retention_period', 'STRING', shownDuration(retentionMs)],
          ['', schema, stream, 'value_capture_type', 'STRING', valueCaptureType],
          ['', schema, stream, 'partition_mode', 'STRING', `${mode.toUpperCase()}_KEY_RANGE`],
        ],
      },
    ],
    [
      'database_options',
      {
        columns: ['CATALOG_NAME', 'SCHEMA_NAME', ...optionColumns],
        rows: [['', schema, 'database_dialect', 'STRING', isPostgres ? 'POSTGRESQL' : 'GOOGLE_STANDARD_SQL']],
      },
    ],
  ])
}

/** `7d`, `36h`, `90m`, `45s`. */
function shownDuration(ms: number): string {
  if (ms % 86_400_000 === 0) return `${ms / 86_400_000}d`
  if (ms % 3_600_000 === 0) return `${ms / 3_600_000}h`
  return ms % 60_000 === 0 ? `${ms / 60_000}m` : `${Math.floor(ms / 1000)}s`
}

/** Commas inside quotes do not count. */
function splitAtCommas(list: string): string[] {
  const parts = list.match(/(?:'[^']*'|"[^"]*"|[^,'"])+/g) ?? []
  return parts.map((part) => part.trim())
}

const ARGUMENTS = ['start_timestamp', 'end_timestamp', 'partition_token', 'heartbeat_milliseconds', 'read_options']
const READ = /^SELECT\s+(?:ChangeRecord|\*)\s+FROM\s+`?(READ_\w+)`?\s*\(([^()]*)\)$/i
const READ_POSTGRESQL = /^SELECT\s+(?:\*|"?read_\w+"?)\s+FROM\s+"?spanner"?\."?(read_\w+)"?\s*\(([^()]*)\)$/i
const SELECT = /^SELECT\s+([\s\S]+?)\s+FROM\s+information_schema\.(\w+)(?:\s+WHERE\s+([\s\S]+))?$/i
