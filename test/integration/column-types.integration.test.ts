/** Every column type of the Spanner emulator through the reader and typed(), if there is one on this machine. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Dialect } from '../../src/model/change-stream.ts'
import { execute, whileReading } from '../support/emulator-reading.ts'
import {
  hasSpannerEmulator,
  requireSpannerEmulator,
  type SpannerEmulator,
  startSpannerEmulator,
} from '../support/spanner-emulator.ts'

requireSpannerEmulator('column-types.integration.test.ts')

type Column = readonly [type: string, ...values: (readonly [literal: string, value: unknown])[]]

const MAX_INT64 = 2n ** 63n - 1n
const bytes = (text: string): Uint8Array => Buffer.from(text, 'latin1')

/*
 * What this emulator cannot show, and the unit tests do: it writes NaN and the infinities as null; a NULL in an array
 * of BOOL, FLOAT, STRING, BYTES or TIMESTAMP ends its process; PROTO and ENUM come as null under a type code of its
 * own; fractions of timestamps are cut off; it has no columns of type UUID and INTERVAL.
 */
const GOOGLESQL: readonly Column[] = [
  ['BOOL', ['true', true], ['false', false], ['NULL', null]],
  [
    'INT64',
    ['9223372036854775807', MAX_INT64],
    ['-9223372036854775808', -(2n ** 63n)],
    ['9007199254740993', 9007199254740993n],
  ],
  [
    'FLOAT32',
    ['CAST(0.1 AS FLOAT32)', Math.fround(0.1)],
    ['CAST(3.4e38 AS FLOAT32)', Math.fround(3.4e38)],
    ['CAST(16777217 AS FLOAT32)', 16777216],
  ],
  ['FLOAT64', ['-0.0', -0], ['1e308', 1e308], ['5e-324', 5e-324], ['3.0', 3], ['NULL', null]],
  ['STRING(MAX)', [`'a\\u0000\\u0001\\u001f"\\\\😀\\u2028é'`, 'a\u0000\u0001\u001f"\\😀\u2028é'], [`''`, '']],
  ['BYTES(MAX)', [`b'\\x00\\xff\\xfe'`, bytes('\x00\xff\xfe')], [`b''`, bytes('')]],
  [
    'TIMESTAMP',
    [`TIMESTAMP '0001-01-01T00:00:00Z'`, '0001-01-01T00:00:00.000000000Z'],
    [`TIMESTAMP '9999-12-31T23:59:59Z'`, '9999-12-31T23:59:59.000000000Z'],
  ],
  ['DATE', [`DATE '0001-01-01'`, '0001-01-01'], [`DATE '9999-12-31'`, '9999-12-31']],
  [
    'NUMERIC',
    [`NUMERIC '-99999999999999999999999999999.999999999'`, '-99999999999999999999999999999.999999999'],
    [`NUMERIC '1.10'`, '1.1'],
  ],
  [
    'JSON',
    [`JSON '{"b":1.5,"a":9007199254740993,"c":[null,"x"]}'`, { a: 9007199254740993n, b: 1.5, c: [null, 'x'] }],
    [`JSON '${'['.repeat(70)}${']'.repeat(70)}'`, JSON.parse(`${'['.repeat(70)}${']'.repeat(70)}`)],
    [`JSON '"just text"'`, 'just text'],
    [`JSON 'null'`, null],
    ['NULL', null],
  ],
  ['ARRAY<BOOL>', ['[true, false]', [true, false]], ['[]', []], ['NULL', null]],
  ['ARRAY<INT64>', ['[1, NULL, 9223372036854775807]', [1n, null, MAX_INT64]]],
  ['ARRAY<FLOAT32>', ['[CAST(1.5 AS FLOAT32)]', [1.5]]],
  ['ARRAY<FLOAT64>', ['[-0.0, 0.1]', [-0, 0.1]]],
  ['ARRAY<STRING(MAX)>', [`['', 'NULL', 'ü']`, ['', 'NULL', 'ü']]],
  ['ARRAY<BYTES(MAX)>', [`[b'', b'abc']`, [bytes(''), bytes('abc')]]],
  ['ARRAY<TIMESTAMP>', [`[TIMESTAMP '2026-01-02T03:04:05Z']`, ['2026-01-02T03:04:05.000000000Z']]],
  ['ARRAY<DATE>', [`[DATE '9999-12-31', NULL]`, ['9999-12-31', null]]],
  ['ARRAY<NUMERIC>', [`[NUMERIC '0.1', NULL]`, ['0.1', null]]],
  ['ARRAY<JSON>', [`[JSON '1', NULL, JSON '"s"']`, [1, null, 's']]],
]

const POSTGRESQL: readonly Column[] = [
  ['bool', ['true', true], ['false', false], ['NULL', null]],
  ['bigint', ['9223372036854775807', MAX_INT64], ['9007199254740993', 9007199254740993n]],
  ['real', ['0.1::real', Math.fround(0.1)]],
  ['double precision', [`'-0'::float8`, -0], ['1e300::float8', 1e300], ['3::float8', 3]],
  ['varchar', [`'a"é😀'`, 'a"é😀'], [`''`, '']],
  ['bytea', [`'\\x00fffe'::bytea`, bytes('\x00\xff\xfe')], [`''::bytea`, bytes('')]],
  ['timestamptz', [`'0001-01-01T00:00:00Z'::timestamptz`, '0001-01-01T00:00:00.000000000Z']],
  ['date', [`'0001-01-01'::date`, '0001-01-01'], [`'9999-12-31'::date`, '9999-12-31']],
  ['numeric', [`'-12345678901234567890123456789.1234567890'::numeric`, '-12345678901234567890123456789.1234567890']],
  ['numeric', [`'NaN'::numeric`, 'NaN'], ['1.10::numeric', '1.10']],
  ['jsonb', [`'{"a":9007199254740993,"b":1.5}'::jsonb`, { a: 9007199254740993n, b: 1.5 }], [`'null'::jsonb`, null]],
  ['bigint[]', ['array[1::bigint, null]', [1n, null]]],
  ['numeric[]', [`array[1.10::numeric, 'NaN'::numeric, null]`, ['1.10', 'NaN', null]]],
  ['jsonb[]', [`array['1'::jsonb, '{"a":1}'::jsonb, null]`, [1, { a: 1 }, null]]],
  ['varchar[]', [`array['a', '']`, ['a', '']]],
  ['bytea[]', [`array['a'::bytea]`, [bytes('a')]]],
  ['double precision[]', ['array[0.1::float8]', [0.1]]],
  ['timestamptz[]', [`array['2026-01-02T03:04:05Z'::timestamptz]`, ['2026-01-02T03:04:05.000000000Z']]],
  ['date[]', [`array['9999-12-31'::date]`, ['9999-12-31']]],
  ['bool[]', ['array[true, false]', [true, false]]],
]

const TYPES: Readonly<Record<Dialect, readonly Column[]>> = { googlesql: GOOGLESQL, postgresql: POSTGRESQL }
const DIALECTS: readonly Dialect[] = ['googlesql', 'postgresql']

describe.skipIf(!hasSpannerEmulator).each(DIALECTS)('column types on the Spanner emulator, %s', (dialect) => {
  let emulator: SpannerEmulator
  const isPostgres = dialect === 'postgresql'

  beforeAll(async () => {
    emulator = await startSpannerEmulator()
  })

  afterAll(() => emulator.stop())

  test('P1: values of every type arrive exact', async () => {
    const columns = TYPES[dialect]
    const definitions = columns.map(([type], index) => `c${index} ${type}`).join()
    const database = await emulator.createDatabase(
      [
        isPostgres
          ? `CREATE TABLE t (id bigint primary key, ${definitions})`
          : `CREATE TABLE t (id INT64, ${definitions}) PRIMARY KEY (id)`,
        'CREATE CHANGE STREAM s FOR ALL',
      ],
      dialect,
    )
    const rows = Math.max(...columns.map(([, ...values]) => values.length))
    const inserts = Array.from({ length: rows }, (_, row) => {
      const cells = columns.flatMap(([, ...values], index) => (values[row] ? [[`c${index}`, values[row][0]]] : []))
      const [names, literals] = [cells.map(([name]) => name), cells.map(([, literal]) => literal)]
      return `INSERT INTO t (id, ${names.join()}) VALUES (${row}, ${literals.join()})`
    })
    const changes = await whileReading(database, 's', async (seen) => {
      await execute(database, ...inserts)
      await seen(rows)
    })
    const byRow = changes.toSorted((a, b) => Number(a.keys.id) - Number(b.keys.id))
    expect(byRow.map(({ keys }) => keys.id)).toEqual(inserts.map((_, row) => BigInt(row)))
    const read = columns.flatMap(([type, ...values], index) =>
      values.map(([literal], row) => [type, literal, byRow[row]!.newValues[`c${index}`]]),
    )
    expect(read).toStrictEqual(
      columns.flatMap(([type, ...values]) => values.map(([literal, value]) => [type, literal, value])),
    )
  })

  test('P1: keys and columns named as parts of JavaScript objects survive', async () => {
    const quote = isPostgres ? '"' : '`'
    const names = ['__proto__', 'constructor', 'toString', 'hasOwnProperty'].map((name) => `${quote}${name}${quote}`)
    const [proto, maker, text, has] = names
    const database = await emulator.createDatabase(
      [
        isPostgres
          ? `CREATE TABLE t (${proto} varchar, ${maker} bigint, ${text} varchar, ${has} bigint, PRIMARY KEY (${proto}, ${maker}))`
          : `CREATE TABLE t (${proto} STRING(9), ${maker} INT64, ${text} STRING(9), ${has} INT64) PRIMARY KEY (${proto}, ${maker})`,
        'CREATE CHANGE STREAM s FOR ALL',
      ],
      dialect,
    )
    const changes = await whileReading(database, 's', async (seen) => {
      await execute(database, `INSERT INTO t (${names.join()}) VALUES ('p', 1, 's', 2)`)
      // A mutation: to the emulator, an UPDATE statement modifies every column.
      const update = JSON.parse('{"__proto__":"p","constructor":1,"hasOwnProperty":3}') as object
      await database.table('t').update(update)
      await execute(database, `DELETE FROM t WHERE ${maker} = 1`)
      await seen(3)
    })
    const entries = changes.map(({ op, keys, newValues, oldValues }) => [
      op,
      ...[keys, newValues, oldValues].map((row) => Object.entries(row).toSorted()),
    ])
    const key = [
      ['__proto__', 'p'],
      ['constructor', 1n],
    ]
    expect(entries).toEqual([
      [
        'insert',
        key,
        [
          ['hasOwnProperty', 2n],
          ['toString', 's'],
        ],
        [],
      ],
      ['update', key, [['hasOwnProperty', 3n]], [['hasOwnProperty', 2n]]],
      [
        'delete',
        key,
        [],
        [
          ['hasOwnProperty', 3n],
          ['toString', 's'],
        ],
      ],
    ])
  })
})
