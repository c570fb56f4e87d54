import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { SourceError } from '../../src/core/errors.ts'
import { type ColumnTypeCode, changesOf, type Row } from '../../src/model/data-change-record.ts'
import { type TypedValue, typedChange, typedRecord } from '../../src/model/typed-values.ts'
import { EVERY_TYPE, recordOf, wireText } from '../support/typed-samples.ts'

/** One value through a record with one column. */
function typedValueOf(type: ColumnTypeCode, value: unknown): TypedValue | undefined {
  const record = recordOf([['V', type]], { keys: {}, newValues: { V: value }, oldValues: {} })
  return typedChange(changesOf(record)[0]!).newValues.V
}

const array = (code: string): ColumnTypeCode => ({ code: 'ARRAY', array_element_type: { code } })
const bytes = (text: string): Uint8Array => Buffer.from(text, 'latin1')

describe('typedChange', () => {
  const rows: [type: string, wire: unknown, value: unknown][] = [
    ['BOOL', true, true],
    ['INT64', '9223372036854775807', 2n ** 63n - 1n],
    ['INT64', '-9223372036854775808', -(2n ** 63n)],
    ['INT64', '9007199254740993', 9007199254740993n],
    ['INT64', 7, 7n],
    ['FLOAT32', 0.10000000149011612, 0.10000000149011612],
    ['FLOAT32', 'NaN', Number.NaN],
    ['FLOAT64', -0, -0],
    ['FLOAT64', 'Infinity', Number.POSITIVE_INFINITY],
    ['FLOAT64', '-Infinity', Number.NEGATIVE_INFINITY],
    // Whole numbers beyond 2^53, as decoders hand them over where a server writes them in digits.
    ['FLOAT64', '12345678901234568', 12345678901234568],
    ['FLOAT64', '-100000000000000000000', -1e20],
    ['FLOAT32', '16777216000000000000', 16777216e12],
    ['STRING', 'NULL', 'NULL'],
    ['STRING', '', ''],
    ['BYTES', 'AP/+', bytes('\x00\xff\xfe')],
    ['BYTES', '', bytes('')],
    ['PROTO', 'CgF4EAU=', bytes('\n\x01x\x10\x05')],
    ['ENUM', '2', 2],
    ['ENUM', -1, -1],
    ['TIMESTAMP', '2026-01-02T03:04:05.123456789Z', '2026-01-02T03:04:05.123456789Z'],
    ['TIMESTAMP', '2026-01-02T03:04:05Z', '2026-01-02T03:04:05.000000000Z'],
    ['TIMESTAMP', '2026-01-02T03:04:05.58+01:00', '2026-01-02T02:04:05.580000000Z'],
    ['TIMESTAMP', '1-01-01T00:00:00Z', '0001-01-01T00:00:00.000000000Z'],
    ['DATE', '0001-01-01', '0001-01-01'],
    ['NUMERIC', '-99999999999999999999999999999.999999999', '-99999999999999999999999999999.999999999'],
    ['NUMERIC', 'NaN', 'NaN'],
    ['JSON', 'null', null],
    ['JSON', '"just text"', 'just text'],
    ['JSON', '{"a":[1,1.0,1e3,null]}', { a: [1, 1, 1000, null] }],
    ['JSON', '{"a":9007199254740993,"b":[-9007199254740993,1]}', { a: 9007199254740993n, b: [-9007199254740993n, 1] }],
    ['JSON', '18446744073709551615', 18446744073709551615n],
    ['JSON', '[1e400,-1E+400,1e308,"1e400"]', ['1e400', '-1E+400', 1e308, '1e400']],
    ['JSON', `[1${'0'.repeat(400)}]`, [10n ** 400n]],
    ['JSON', '[0.1234567890123456,"9007199254740993"]', [0.1234567890123456, '9007199254740993']],
    ['UUID', '6F9619FF-8B86-D011-B42D-00C04FC964FF', '6F9619FF-8B86-D011-B42D-00C04FC964FF'],
    ['INTERVAL', 'P1Y2M3DT4H5M6.789S', 'P1Y2M3DT4H5M6.789S'],
    ['A_TYPE_OF_THE_FUTURE', { any: ['thing'] }, { any: ['thing'] }],
  ]
  test.each(rows)('%s: %j is read', (code, wire, value) => {
    expect(typedValueOf({ code }, wire)).toStrictEqual(value)
    expect(typedValueOf(array(code), [wire, null])).toStrictEqual([value, null])
    expect(typedValueOf({ code }, null)).toBeNull()
    expect(typedValueOf(array(code), null)).toBeNull()
    expect(typedValueOf(array(code), [])).toEqual([])
  })

  // As the emulator wrote them for these types in a PostgreSQL database.
  const postgres: [type: ColumnTypeCode, wire: unknown, value: unknown][] = [
    [{ code: 'NUMERIC', type_annotation: 'PG_NUMERIC' }, '1.10', '1.10'],
    [{ code: 'NUMERIC', type_annotation: 'PG_NUMERIC' }, 'NaN', 'NaN'],
    [
      { code: 'JSON', type_annotation: 'PG_JSONB' },
      '{"a": 9007199254740993, "b": 1.0, "c": [null, 1000, "x"]}',
      { a: 9007199254740993n, b: 1, c: [null, 1000, 'x'] },
    ],
    [{ code: 'JSON', type_annotation: 'PG_JSONB' }, '12345678901234567890123', 12345678901234567890123n],
    [
      { code: 'ARRAY', array_element_type: { code: 'NUMERIC', type_annotation: 'PG_NUMERIC' } },
      ['1.10', 'NaN', 'NULL'],
      ['1.10', 'NaN', null],
    ],
    [
      { code: 'ARRAY', array_element_type: { code: 'JSON', type_annotation: 'PG_JSONB' } },
      ['1', '{"a": 1}', 'NULL'],
      [1, { a: 1 }, null],
    ],
    [{ code: 'INT64', type_annotation: 'PG_OID' }, '4294967295', 4294967295n],
  ]
  test.each(postgres)('PostgreSQL, %j: %j is read', (type, wire, value) => {
    expect(typedValueOf(type, wire)).toStrictEqual(value)
  })

  test('reads a NULL in an array as the emulator writes it, and leaves the text NULL alone', () => {
    expect(typedValueOf(array('INT64'), ['1', 'NULL'])).toEqual([1n, null])
    expect(typedValueOf(array('DATE'), ['NULL'])).toEqual([null])
    expect(typedValueOf(array('STRING'), ['NULL'])).toEqual(['NULL'])
  })

  test('what goes over the wire comes back, for every type', () => {
    const anySample = fc
      .constantFrom(...EVERY_TYPE)
      .chain(({ type, samples }) => samples.map((sample) => ({ type, ...sample })))
    fc.assert(
      fc.property(anySample, ({ type, wire, value }) => {
        expect(typedValueOf(type, JSON.parse(wireText(wire)))).toStrictEqual(value)
      }),
      { numRuns: 5000 },
    )
  })

  test('P1: every column survives, whatever its name', () => {
    const hostile = fc.oneof(fc.constantFrom('__proto__', 'constructor', 'toString', '', 'hasOwnProperty'), fc.string())
    const names = fc.uniqueArray(hostile, { minLength: 1, maxLength: 8 })
    fc.assert(
      fc.property(names, (columns) => {
        const values = JSON.parse(`{${columns.map((name, i) => `${JSON.stringify(name)}:"${i}"`).join()}}`) as Row
        const record = recordOf(
          columns.map((name) => [name, { code: 'INT64' }]),
          { keys: values, newValues: values, oldValues: values },
        )
        const { keys, newValues, oldValues } = typedChange(changesOf(record)[0]!)
        for (const row of [keys, newValues, oldValues]) {
          expect(Object.getPrototypeOf(row)).toBeNull()
          expect(new Map(Object.entries(row))).toEqual(new Map(columns.map((name, i) => [name, BigInt(i)])))
        }
      }),
    )
  })

  test('a key __proto__ inside a JSON column survives', () => {
    const value = typedValueOf({ code: 'JSON' }, '{"__proto__":{"z":9007199254740993}}') as object
    expect(Object.entries(value)).toEqual([['__proto__', { z: 9007199254740993n }]])
  })

  test('columns without a type stay as they are', () => {
    const record = recordOf([['Id', { code: 'INT64' }]], { keys: { Id: '1' }, newValues: { V: '2' }, oldValues: {} })
    expect(typedChange(changesOf(record)[0]!)).toMatchObject({ keys: { Id: 1n }, newValues: { V: '2' } })
  })

  test('the record of a change stays as Spanner sent it', () => {
    const mod = { keys: { Id: '1' }, newValues: { Id: '1' }, oldValues: {} }
    const record = recordOf([['Id', { code: 'INT64' }]], mod)
    expect(typedChange(changesOf(record)[0]!).record).toBe(record)
    expect(record.mods).toEqual([{ keys: { Id: '1' }, newValues: { Id: '1' }, oldValues: {} }])
  })

  const misfits: [code: string, value: unknown][] = [
    ['BOOL', 'secret'],
    ['INT64', 'secret'],
    ['INT64', '9223372036854775808'],
    ['INT64', ''],
    ['INT64', 1.5],
    ['FLOAT64', 'secret'],
    ['FLOAT64', '12'],
    ['FLOAT64', '9'.repeat(309)],
    ['STRING', { secret: 1 }],
    ['BYTES', 'secret!'],
    ['BYTES', 'abc'],
    ['TIMESTAMP', 'secret'],
    ['TIMESTAMP', '2026-02-30T00:00:00Z'],
    ['DATE', '2026-13-01'],
    ['NUMERIC', '1,5'],
    ['JSON', '{"secret"'],
    ['UUID', 'secret'],
    ['INTERVAL', 'secret'],
    ['ENUM', '2147483648'],
  ]
  test.each(misfits)('P12: %s refuses %j by table, column and type', (code, value) => {
    for (const [type, wire, name] of [
      [{ code }, value, code],
      [array(code), [value], `ARRAY<${code}>`],
      [array(code), value, `ARRAY<${code}>`],
    ] as const) {
      const message = `a value of column "V" of table "Orders" is no ${name}`
      expect(() => typedValueOf(type, wire)).toThrow(expect.objectContaining({ message, code: 'SOURCE_MALFORMED' }))
    }
  })

  test('P12: garbage is a typed error that does not show it', () => {
    const garbage = fc.anything({ withBigInt: true, withNullPrototype: true, withSparseArray: true })
    const marked = fc.oneof(
      fc.string().map((text) => `SECRET${text}`),
      garbage,
    )
    fc.assert(
      fc.property(fc.constantFrom(...EVERY_TYPE), marked, ({ type }, value) => {
        try {
          typedValueOf(type, value)
        } catch (error) {
          expect(error).toBeInstanceOf(SourceError)
          expect(error).toMatchObject({ partition: 'token', code: 'SOURCE_MALFORMED' })
          expect((error as SourceError).cause).toBeUndefined()
          expect(`${(error as SourceError).message} ${(error as SourceError).hint}`).not.toContain('SECRET')
        }
      }),
      { numRuns: 5000 },
    )
  })
})

describe('typedRecord', () => {
  test('every mod has JavaScript values, the rest is as before', () => {
    const mod = (id: string) => ({ keys: { Id: id }, newValues: { N: id }, oldValues: { N: null } })
    const record = recordOf(
      [
        ['Id', { code: 'INT64' }],
        ['N', { code: 'FLOAT64' }],
      ],
      { ...mod('1'), newValues: { N: 'NaN' } },
      { ...mod('2'), newValues: { N: 2 } },
    )
    expect(typedRecord(record)).toEqual({
      ...record,
      mods: [
        { keys: { Id: 1n }, newValues: { N: Number.NaN }, oldValues: { N: null } },
        { keys: { Id: 2n }, newValues: { N: 2 }, oldValues: { N: null } },
      ],
    })
  })
})
