import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { SourceError } from '../../../../src/core/errors.ts'
import type { ChangeStreamRecord } from '../../../../src/model/data-change-record.ts'
import { RecordCaches } from '../../../../src/sources/spanner-change-stream/decode/record-caches.ts'
import { RecordStream } from '../../../../src/sources/spanner-change-stream/decode/record-stream.ts'
import { times } from './random-results.ts'
import { DOCUMENTED_ORDER, FIELDS, type Fields, type StructOrder, struct, structType } from './record-forms.ts'
import { lengthed, metadataBytes, resultBytes, valueBytes, type Wire, type WireType } from './wire-writer.ts'

const NULL: Wire = { bytes: valueBytes(null) }
/** A value of no kind at all: what proto3 leaves of a default. */
const NOTHING: Wire = { bytes: Buffer.alloc(0) }

const reversed = Object.fromEntries(
  Object.entries(FIELDS).map(([name, fields]) => [name, fields.toReversed()]),
) as unknown as StructOrder

type Kind = (typeof FIELDS.record)[number]

function row(order: StructOrder, kind: Kind, record: Wire): Wire {
  return [struct(order.record, Object.fromEntries(FIELDS.record.map((name) => [name, name === kind ? [record] : []])))]
}

function column(order: StructOrder, values: Fields = {}): Wire {
  const fields = { name: 'Id', type: '{"code":"INT64"}', is_primary_key: true, ordinal_position: '1' }
  return struct(order.columnType, { ...fields, ...values })
}

function mod(order: StructOrder, keys: Wire, newValues: Wire, oldValues: Wire): Wire {
  return struct(order.mod, { keys, new_values: newValues, old_values: oldValues })
}

function dataRecord(order: StructOrder, values: Fields = {}): Wire {
  return struct(order.data, {
    commit_timestamp: '2026-11-18T09:30:00.123456789Z',
    record_sequence: '00000003',
    server_transaction_id: 'NjQ=',
    is_last_record_in_transaction_in_partition: true,
    table_name: 'Orders',
    value_capture_type: 'NEW_ROW_AND_OLD_VALUES',
    column_types: [column(order)],
    mods: [mod(order, '{"Id":"9007199254740993"}', '{"Total":"1.10"}', '{}')],
    mod_type: 'UPDATE',
    number_of_records_in_transaction: '7',
    number_of_partitions_in_transaction: '2',
    transaction_tag: 'app=shop',
    is_system_transaction: false,
    ...values,
  })
}

function childrenRecord(order: StructOrder, parents: Wire, token: Wire = 'child'): Wire {
  const child = struct(order.child, { token, parent_partition_tokens: parents })
  const start = '2026-11-18T09:30:00.5Z'
  return struct(order.children, { start_timestamp: start, record_sequence: '00000001', child_partitions: [child] })
}

function decodeValue(value: Wire, type: WireType, caches = new RecordCaches()): readonly ChangeStreamRecord[] {
  const message = resultBytes({ metadata: metadataBytes(type), values: [value] })
  return new RecordStream('googlesql', 'immutable', 'token', caches).take([message]).records
}

function decode(order: StructOrder, kind: Kind, record: Wire, caches?: RecordCaches): readonly ChangeStreamRecord[] {
  return decodeValue(row(order, kind, record), structType(order), caches)
}

function decodeMods(...mods: Wire[]): Extract<ChangeStreamRecord, { kind: 'data' }>['record']['mods'] {
  const [decoded] = decode(DOCUMENTED_ORDER, 'data_change_record', dataRecord(DOCUMENTED_ORDER, { mods }))
  if (decoded?.kind !== 'data') throw new Error('not a data record')
  return decoded.record.mods
}

function malformed(field: string): SourceError {
  return expect.objectContaining({
    name: 'SourceError',
    code: 'SOURCE_MALFORMED',
    partition: 'token',
    retryable: false,
    message: expect.stringContaining(`documented form: ${field} `),
  }) as SourceError
}

describe.each([
  ['in the documented order', DOCUMENTED_ORDER],
  ['in another order', reversed],
])('struct records, fields %s', (_, order) => {
  test('reads a data change record exactly', () => {
    expect(decode(order, 'data_change_record', dataRecord(order))).toEqual([
      {
        kind: 'data',
        bytes: expect.any(Number),
        record: {
          partitionToken: 'token',
          commitTimestamp: '2026-11-18T09:30:00.123456789Z',
          recordSequence: '00000003',
          serverTransactionId: 'NjQ=',
          isLastRecordInTransactionInPartition: true,
          tableName: 'Orders',
          valueCaptureType: 'NEW_ROW_AND_OLD_VALUES',
          columnTypes: [{ name: 'Id', type: { code: 'INT64' }, isPrimaryKey: true, ordinalPosition: 1 }],
          mods: [{ keys: { Id: '9007199254740993' }, newValues: { Total: '1.10' }, oldValues: {} }],
          modType: 'UPDATE',
          numberOfRecordsInTransaction: 7,
          numberOfPartitionsInTransaction: 2,
          transactionTag: 'app=shop',
          isSystemTransaction: false,
        },
      },
    ])
  })

  test('reads heartbeats and child partitions', () => {
    const beat = struct(order.heartbeat, { timestamp: '2026-11-18T09:30:00Z' })
    expect(decode(order, 'heartbeat_record', beat)).toEqual([
      { kind: 'heartbeat', record: { timestamp: '2026-11-18T09:30:00.000000000Z' } },
    ])
    expect(decode(order, 'child_partitions_record', childrenRecord(order, ['a', 'b']))).toEqual([
      {
        kind: 'children',
        record: {
          startTimestamp: '2026-11-18T09:30:00.500000000Z',
          recordSequence: '00000001',
          children: [{ token: 'child', parentTokens: ['a', 'b'] }],
        },
      },
    ])
  })

  test.each<[string, Wire]>([
    ['no parents', []],
    ['one null', [null]],
    ['one value of no kind', [NOTHING]],
    ['null', NULL],
  ])('takes %s for a child without parents', (_, parents) => {
    expect(decode(order, 'child_partitions_record', childrenRecord(order, parents))).toMatchObject([
      { record: { children: [{ token: 'child', parentTokens: [] }] } },
    ])
  })

  const numbers = ['number_of_records_in_transaction', 'number_of_partitions_in_transaction']
  test.each(FIELDS.data)('a record without %s gives an error that names it', (name) => {
    expect(() => decode(order, 'data_change_record', dataRecord(order, { [name]: NULL }))).toThrow(malformed(name))
  })

  test.each(numbers)('%s must be a whole number in digits', (name) => {
    for (const text of ['', ' ', '-1', '1.5', '0x10', '1e3', '9007199254740993', 'seven']) {
      expect(() => decode(order, 'data_change_record', dataRecord(order, { [name]: text }))).toThrow(malformed(name))
    }
  })

  test.each(FIELDS.columnType)('a column without %s gives an error that names it', (name) => {
    const record = dataRecord(order, { column_types: [column(order, { [name]: NULL })] })
    expect(() => decode(order, 'data_change_record', record)).toThrow(malformed(`column_types.${name}`))
  })
})

describe('struct records', () => {
  const order = DOCUMENTED_ORDER

  test('keeps columns named __proto__ and constructor as values', () => {
    const values = '{"__proto__":"1","constructor":"2","toString":null}'
    const { keys, newValues, oldValues } = decodeMods(mod(order, values, values, NULL))[0]!
    expect(JSON.stringify(keys)).toBe(values)
    expect(Object.keys(newValues)).toEqual(['__proto__', 'constructor', 'toString'])
    expect(oldValues).toEqual({})
    expect(Object.getPrototypeOf({})).toBe(Object.prototype)
  })

  test('returns any JSON values as they were written', () => {
    // Whole numbers beyond 2^53 that are written in digits become texts: see parseRow.
    const isExact = (text: string): boolean =>
      !/(?<![\d.e+-])-?\d{16,}(?![\d.e])/.test(text.replace(/"(\\.|[^"])*"/g, '""'))
    const json = fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue()).map((row) => JSON.stringify(row))
    fc.assert(
      fc.property(json.filter(isExact), json.filter(isExact), (newValues, oldValues) => {
        const [decoded] = decodeMods(mod(order, '{"Id":"1"}', newValues, oldValues))
        expect(JSON.stringify(decoded!.newValues)).toBe(newValues)
        expect(JSON.stringify(decoded!.oldValues)).toBe(oldValues)
      }),
      { numRuns: 1000, seed: 1118 },
    )
  })

  test.each<[string, Wire]>([
    ['null', NULL],
    ['no kind', NOTHING],
    ['{}', '{}'],
    ['the JSON null', 'null'],
  ])('takes an absent side as %s', (_, side) => {
    expect(decodeMods(mod(order, '{"Id":"1"}', side, side))).toEqual([
      { keys: { Id: '1' }, newValues: {}, oldValues: {} },
    ])
  })

  const nested: WireType = { element: { fields: [['data_change_record', 'STRING']] } }
  test.each<[string, WireType]>([
    ['a string type', 'STRING'],
    ['an empty struct', { element: { fields: [] } }],
    [
      'nameless fields',
      {
        element: {
          fields: [
            ['', 'STRING'],
            ['', 'STRING'],
          ],
        },
      },
    ],
    ['no fields of a record', nested],
  ])('metadata with %s gives a SourceError', (_, type) => {
    const value = row(order, 'data_change_record', dataRecord(order))
    expect(() => decodeValue(value, type)).toThrow(expect.objectContaining({ code: 'SOURCE_MALFORMED' }))
  })

  test('no metadata at all gives a SourceError', () => {
    const message = resultBytes({ values: [row(order, 'data_change_record', dataRecord(order))] })
    const stream = new RecordStream('googlesql', 'immutable', 'token', new RecordCaches())
    expect(() => stream.take([message])).toThrow(malformed('the metadata of the result'))
  })

  test('metadata that is thousands of levels deep gives a SourceError', () => {
    let type: Buffer = Buffer.alloc(0)
    for (let i = 0; i < 20_000; i++) type = lengthed(2, type)
    const metadata = lengthed(1, lengthed(1, lengthed(2, type)))
    const message = resultBytes({ metadata, values: [row(order, 'data_change_record', dataRecord(order))] })
    const stream = new RecordStream('googlesql', 'immutable', 'token', new RecordCaches())
    expect(() => stream.take([message])).toThrow(malformed('the metadata of the result'))
  })

  test('an odd value is a record or a SourceError, but never another error and never nothing', () => {
    const type = structType(order)
    const odd: fc.Arbitrary<Wire> = fc.letrec<{ value: Wire }>((tie) => ({
      value: fc.oneof(
        { maxDepth: 6 },
        fc.constantFrom<Wire>(NOTHING, null, 'x', true, 1, { bytes: lengthed(6, '') }),
        fc.array(tie('value'), { maxLength: 14 }),
      ),
    })).value
    fc.assert(
      fc.property(odd, (value) => {
        try {
          expect(decodeValue(value, type)).not.toEqual([])
        } catch (error) {
          expect(error).toBeInstanceOf(SourceError)
          expect(error).toMatchObject({ code: 'SOURCE_MALFORMED', partition: 'token' })
        }
      }),
      { numRuns: 3000, seed: 1118 },
    )
  })

  test('P12: a value that is not JSON gives a SourceError without its content', () => {
    for (const value of ['{"Card": planted-secret', '"planted-secret"', '["planted-secret"]']) {
      const decoding = (): unknown => decodeMods(mod(order, '{"Id":"1"}', value, NULL))
      expect(decoding).toThrow(malformed('new_values'))
      expect(decoding).toThrow(expect.objectContaining({ message: expect.not.stringContaining('planted') }))
    }
  })

  test.each(['yesterday', '', '2026-02-30T00:00:00Z', '2026-11-18T09:30:00.1234567890Z', '2026-11-18'])(
    'the time %j gives a SourceError',
    (time) => {
      const record = dataRecord(order, { commit_timestamp: time })
      expect(() => decode(order, 'data_change_record', record)).toThrow(malformed('commit_timestamp'))
    },
  )

  test('a kind of record that is not known is not passed over, alone or beside another one', () => {
    const beat = struct(order.record, {
      heartbeat_record: [['2026-11-18T09:30:00Z']],
      data_change_record: [],
      child_partitions_record: [],
    })
    const type: WireType = {
      element: { fields: [...FIELDS.record, 'new_record'].map((name) => [name, typeOf(name)] as const) },
    }
    const unknown: Wire = [[], [], [], [['x']]]
    expect(decodeValue([beat], type)).toHaveLength(1)
    for (const value of [[unknown], [unknown, beat], [beat, unknown], []]) {
      expect(() => decodeValue(value, type)).toThrow(malformed('ChangeRecord'))
    }
  })

  test('the same bytes under another order of fields are not mistaken for what they were', () => {
    const caches = new RecordCaches()
    const types = ['{"code":"STRING"}', '{"code":"INT64"}']
    const other = { ...order, columnType: ['type', 'name', 'is_primary_key', 'ordinal_position'] }
    const record = dataRecord(order, { column_types: [[...types, true, '1']] })
    expect(decode(order, 'data_change_record', record, caches)).toMatchObject([
      { record: { columnTypes: [{ name: types[0], type: { code: 'INT64' } }] } },
    ])
    expect(decode(other, 'data_change_record', record, caches)).toMatchObject([
      { record: { columnTypes: [{ name: types[1], type: { code: 'STRING' } }] } },
    ])
  })

  test('a type that is nested too deep to be written again is refused', () => {
    const type = `${'{"code":"ARRAY","array_element_type":'.repeat(300_000)}{"code":"INT64"}${'}'.repeat(300_000)}`
    const record = dataRecord(order, { column_types: [column(order, { type })] })
    expect(() => decode(order, 'data_change_record', record)).toThrow(malformed('column_types.type'))
  })

  test('an unknown type code passes as it is', () => {
    const record = dataRecord(order, { column_types: [column(order, { type: '{"code":"QUATERNION"}' })] })
    expect(decode(order, 'data_change_record', record)).toMatchObject([
      { record: { columnTypes: [{ type: { code: 'QUATERNION' } }] } },
    ])
  })

  test('what came before a record with a malformed row is handed out first, with its own rows', () => {
    const value = (newValues: string, modType: Wire = 'UPDATE'): Wire =>
      row(
        order,
        'data_change_record',
        dataRecord(order, { mods: [mod(order, '{"Id":"1"}', newValues, '{}')], mod_type: modType }),
      )
    const values = [value('{"Total":"1"}'), value('{"Total":"2"}'), value('{"Total":'), value('{}', 'MERGE')]
    const stream = new RecordStream('googlesql', 'immutable', 'token', new RecordCaches())
    const { records } = stream.take([resultBytes({ metadata: metadataBytes(structType(order)), values })])
    const totals = records.map((item) => item.kind === 'data' && item.record.mods[0]!.newValues.Total)
    expect(totals).toEqual(['1', '2'])
    expect(() => stream.assertWell()).toThrow(/new_values/)
  })

  test('P7: a record of 100,000 mods is read, also in pieces', () => {
    const mods = times(100_000, (i) => mod(order, `{"Id":"${i}"}`, '{}', '{}'))
    const value = row(order, 'data_change_record', dataRecord(order, { mods }))
    const [whole] = decodeValue(value, structType(order))
    if (whole?.kind !== 'data') throw new Error('not a data record')
    expect(whole.record.mods.map(({ keys }) => Number(keys.Id))).toEqual(times(100_000, (i) => i))

    const before = row(order, 'data_change_record', dataRecord(order, { mods: mods.slice(0, 60_000) })) as Wire[][][][]
    const rest = dataRecord(order, { mods: mods.slice(60_000) }) as Wire[]
    const place = FIELDS.data.indexOf('mods')
    // The list of mods is cut between two of them: an empty list keeps them apart.
    const first: Wire = [[[before[0]![0]![0]!.slice(0, place + 1)]]]
    const second: Wire = [[[[[[], ...(rest[place] as Wire[])], ...rest.slice(place + 1)]], [], []]]
    const stream = new RecordStream('googlesql', 'immutable', 'token', new RecordCaches())
    const metadata = metadataBytes(structType(order))
    stream.take([resultBytes({ metadata, values: [first], isChunked: true })])
    expect(JSON.stringify(stream.take([resultBytes({ values: [second] })]).records[0]!.record)).toBe(
      JSON.stringify(whole.record),
    )
  })
})

function typeOf(name: string): WireType {
  const type = structType(DOCUMENTED_ORDER) as { element: { fields: readonly (readonly [string, WireType])[] } }
  return (
    type.element.fields.find(([field]) => field === name)?.[1] ?? { element: { fields: [['new_field', 'STRING']] } }
  )
}
