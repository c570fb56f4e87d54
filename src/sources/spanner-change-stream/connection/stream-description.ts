/** What a database says about one of its change streams. */
import { ConfigError } from '../../../core/errors.ts'
import { nearestName } from '../../../core/options.ts'
import type { Dialect, StreamDescription } from '../../../model/change-stream.ts'
import type { ValueCaptureType } from '../../../model/data-change-record.ts'

/** Runs a statement and returns its rows, all values as texts. */
export type Select = (sql: string) => Promise<readonly (readonly (string | undefined)[])[]>

/** Throws a ConfigError if there is no such stream. */
export async function describeStream(database: string, stream: string, select: Select): Promise<StreamDescription> {
  const [dialectRow] = await select(
    "SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'",
  )
  const dialect = dialectOf(dialectRow?.[0])
  // The name of the column is a reserved word, which the other dialect's quotes would turn into a text.
  const all = dialect === 'postgresql' ? '"all"' : '`ALL`'
  const [streams, tables, options] = await Promise.all([
    select(`SELECT change_stream_name, ${all} FROM information_schema.change_streams`),
    select('SELECT change_stream_name, table_name FROM information_schema.change_stream_tables'),
    select('SELECT change_stream_name, option_name, option_value FROM information_schema.change_stream_options'),
  ])
  const found = streams.find(([name]) => name === stream)
  if (found === undefined) {
    throw missingStream(
      database,
      stream,
      streams.map(([name]) => name ?? ''),
    )
  }
  const option = (wanted: string): string | undefined =>
    options.find(([name, option]) => name === stream && option?.toLowerCase() === wanted)?.[2]
  const watchesAll = /^(true|yes)$/i.test(found[1] ?? '')
  return {
    dialect,
    mode: option('partition_mode')?.toUpperCase() === 'MUTABLE_KEY_RANGE' ? 'mutable' : 'immutable',
    valueCaptureType: (option('value_capture_type') ?? 'OLD_AND_NEW_VALUES') as ValueCaptureType,
    retentionMs: parseRetention(option('retention_period')),
    tables: watchesAll ? undefined : tables.filter(([name]) => name === stream).map(([, table]) => table ?? ''),
  }
}

function dialectOf(option: string | undefined): Dialect {
  return option?.toUpperCase() === 'POSTGRESQL' ? 'postgresql' : 'googlesql'
}

function missingStream(database: string, stream: string, names: readonly string[]): ConfigError {
  const nearest = nearestName(stream, names)
  const known = names.length === 0 ? 'It has no change streams.' : `It has ${names.join(', ')}.`
  return new ConfigError(`spannerChangeStream: there is no change stream '${stream}' in '${database}'`, {
    hint: nearest ? `Did you mean '${nearest}'?` : `${known} Create one: CREATE CHANGE STREAM ${stream} FOR ALL`,
  })
}

/** `7d`, `36h`, `90m`, `60s`; seven days if the stream does not say. */
export function parseRetention(text: string | undefined): number {
  const match = /^(\d+)([dhms])$/.exec(text ?? '')
  if (!match) return 7 * UNIT_MS.d
  return Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS]
}

const UNIT_MS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000 } as const
