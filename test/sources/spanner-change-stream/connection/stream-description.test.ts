import { describe, expect, test } from 'vitest'
import { ConfigError } from '../../../../src/core/errors.ts'
import type { StreamDescription } from '../../../../src/model/change-stream.ts'
import {
  describeStream,
  parseRetention,
} from '../../../../src/sources/spanner-change-stream/connection/stream-description.ts'

type Rows = readonly (readonly (string | undefined)[])[]

interface Schema {
  readonly dialect?: string | undefined
  readonly streams?: Rows
  readonly tables?: Rows
  readonly options?: Rows
}

const STREAMS: Rows = [
  ['Other', 'true'],
  ['Orders', 'false'],
]

function describing(
  { dialect, streams = STREAMS, tables = [], options = [] }: Schema,
  asked: string[] = [],
): Promise<StreamDescription> {
  return describeStream('db', 'Orders', (sql) => {
    asked.push(sql)
    if (sql.includes('database_options')) return Promise.resolve(dialect === undefined ? [] : [[dialect]])
    if (sql.includes('change_stream_tables')) return Promise.resolve(tables)
    return Promise.resolve(sql.includes('change_stream_options') ? options : streams)
  })
}

describe('describeStream', () => {
  test.each([
    ['POSTGRESQL', 'postgresql', '"all"'],
    ['GOOGLE_STANDARD_SQL', 'googlesql', '`ALL`'],
    [undefined, 'googlesql', '`ALL`'],
  ])('the option %s means the dialect %s', async (option, dialect, column) => {
    const asked: string[] = []
    expect(await describing({ dialect: option }, asked)).toMatchObject({ dialect })
    expect(asked.find((sql) => sql.endsWith('change_streams'))).toContain(`change_stream_name, ${column} FROM`)
  })

  test('without options it is an immutable stream of seven days with old and new values', async () => {
    const tables = [
      ['Other', 'X'],
      ['Orders', 'A'],
      ['Orders', 'B'],
    ]
    const options = [
      ['Other', 'partition_mode', 'MUTABLE_KEY_RANGE'],
      ['Other', 'retention_period', '1d'],
    ]
    expect(await describing({ tables, options })).toEqual({
      dialect: 'googlesql',
      mode: 'immutable',
      valueCaptureType: 'OLD_AND_NEW_VALUES',
      retentionMs: 7 * 86_400_000,
      tables: ['A', 'B'],
    })
  })

  test('reads its options, whatever their case', async () => {
    const options = [
      ['Orders', 'partition_mode', 'mutable_key_range'],
      ['Orders', 'VALUE_CAPTURE_TYPE', 'NEW_ROW'],
      ['Orders', 'retention_period', '36h'],
    ]
    expect(await describing({ options })).toMatchObject({
      mode: 'mutable',
      valueCaptureType: 'NEW_ROW',
      retentionMs: 36 * 3_600_000,
    })
  })

  test.each([
    ['true', undefined],
    ['YES', undefined],
    ['false', []],
    ['NO', []],
    [undefined, []],
  ])('a stream whose ALL is %s watches the tables %j', async (all, tables) => {
    expect((await describing({ streams: [['Orders', all]] })).tables).toEqual(tables)
  })

  test.each<[string, Rows, string]>([
    ['a name nearby', [['Order', 'true']], "Did you mean 'Order'?"],
    ['other names only', [['Payments', 'true']], 'It has Payments.'],
    ['none', [], 'It has no change streams.'],
  ])('a stream that does not exist, with %s, gives a ConfigError that helps', async (_, streams, hint) => {
    const error: unknown = await describing({ streams }).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(ConfigError)
    expect(error).toMatchObject({
      message: expect.stringContaining("'Orders' in 'db'"),
      hint: expect.stringContaining(hint),
    })
  })
})

describe('parseRetention', () => {
  test.each([
    ['7d', 7 * 86_400_000],
    ['36h', 36 * 3_600_000],
    ['90m', 90 * 60_000],
    ['60s', 60_000],
    [undefined, 7 * 86_400_000],
    ['', 7 * 86_400_000],
    ['soon', 7 * 86_400_000],
  ])('%s', (text, ms) => {
    expect(parseRetention(text)).toBe(ms)
  })
})
