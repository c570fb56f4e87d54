import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { SourceError } from '../../../src/core/errors.ts'
import {
  decodeChangeRecord,
  recordLayout,
  type WireType,
} from '../../../src/sources/spanner-change-stream/decode-record.ts'
import type { WireValue } from '../../../src/sources/spanner-change-stream/partial-results.ts'

// A small encoder of the same shape that the read function returns, written from the documentation.
const FIELDS = {
  data: [
    'commit_timestamp',
    'record_sequence',
    'server_transaction_id',
    'is_last_record_in_transaction_in_partition',
    'table_name',
    'value_capture_type',
    'column_types',
    'mods',
    'mod_type',
    'number_of_records_in_transaction',
    'number_of_partitions_in_transaction',
    'transaction_tag',
    'is_system_transaction',
  ],
  heartbeat: ['timestamp'],
  children: ['start_timestamp', 'record_sequence', 'child_partitions'],
  child: ['token', 'parent_partition_tokens'],
  columnType: ['name', 'type', 'is_primary_key', 'ordinal_position'],
  mod: ['keys', 'new_values', 'old_values'],
}

type Fields = Readonly<Record<string, WireValue>>

const text = (stringValue: string): WireValue => ({ stringValue })
const list = (...values: WireValue[]): WireValue => ({ listValue: { values } })
const NULL: WireValue = { nullValue: 'NULL_VALUE' }
const arrayOf = (fields: readonly string[], nested: Readonly<Record<string, WireType>> = {}): WireType => ({
  arrayElementType: { structType: { fields: fields.map((name) => ({ name, type: nested[name] ?? {} })) } },
})

/** The server may put the fields in any order. */
function typeOf(order: (fields: readonly string[]) => readonly string[]): WireType {
  return arrayOf(order(['data_change_record', 'heartbeat_record', 'child_partitions_record']), {
    data_change_record: arrayOf(order(FIELDS.data), {
      column_types: arrayOf(order(FIELDS.columnType)),
      mods: arrayOf(order(FIELDS.mod)),
    }),
    heartbeat_record: arrayOf(order(FIELDS.heartbeat)),
    child_partitions_record: arrayOf(order(FIELDS.children), { child_partitions: arrayOf(order(FIELDS.child)) }),
  })
}

const asIs = (fields: readonly string[]): readonly string[] => fields
const reversed = (fields: readonly string[]): readonly string[] => fields.toReversed()

interface Encoder {
  readonly struct: (fields: readonly string[], values: Fields) => WireValue
  readonly order: (fields: readonly string[]) => readonly string[]
}

function encoder(order: (fields: readonly string[]) => readonly string[]): Encoder {
  return { order, struct: (fields, values) => list(...order(fields).map((name) => values[name] ?? NULL)) }
}

function row(
  { struct }: Encoder,
  kind: 'data_change_record' | 'heartbeat_record' | 'child_partitions_record',
  record: WireValue,
): WireValue {
  const kinds = ['data_change_record', 'heartbeat_record', 'child_partitions_record']
  return list(struct(kinds, Object.fromEntries(kinds.map((name) => [name, name === kind ? list(record) : list()]))))
}

function dataRecord(encode: Encoder, values: Fields = {}): WireValue {
  const { struct } = encode
  const column = struct(FIELDS.columnType, {
    name: text('Id'),
    type: text('{"code":"INT64"}'),
    is_primary_key: { boolValue: true },
    ordinal_position: text('1'),
  })
  return struct(FIELDS.data, {
    commit_timestamp: text('2026-11-18T09:30:00.123456789Z'),
    record_sequence: text('00000003'),
    server_transaction_id: text('NjQ='),
    is_last_record_in_transaction_in_partition: { boolValue: true },
    table_name: text('Orders'),
    value_capture_type: text('NEW_ROW_AND_OLD_VALUES'),
    column_types: list(column),
    mods: list(mod(encode, '{"Id":"9007199254740993"}', '{"Total":"1.10"}', '{}')),
    mod_type: text('UPDATE'),
    number_of_records_in_transaction: text('7'),
    number_of_partitions_in_transaction: text('2'),
    transaction_tag: text('app=shop'),
    is_system_transaction: { boolValue: false },
    ...values,
  })
}

function mod({ struct }: Encoder, keys: string, newValues: string | null, oldValues: string | null): WireValue {
  const side = (value: string | null): WireValue => (value === null ? NULL : text(value))
  return struct(FIELDS.mod, { keys: text(keys), new_values: side(newValues), old_values: side(oldValues) })
}

function decode(
  encode: Encoder,
  kind: Parameters<typeof row>[1],
  record: WireValue,
): ReturnType<typeof decodeChangeRecord> {
  return decodeChangeRecord(row(encode, kind, record), 'token', recordLayout(typeOf(encode.order)))
}

describe.each([
  ['in the documented order', encoder(asIs)],
  ['in another order', encoder(reversed)],
])('decodeChangeRecord, fields %s', (_, encode) => {
  test('reads a data change record exactly', () => {
    const [decoded] = decode(encode, 'data_change_record', dataRecord(encode))
    expect(decoded).toEqual({
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
    })
  })

  test('reads heartbeats and child partitions', () => {
    const beat = encode.struct(FIELDS.heartbeat, { timestamp: text('2026-11-18T09:30:00Z') })
    expect(decode(encode, 'heartbeat_record', beat)).toEqual([
      { kind: 'heartbeat', record: { timestamp: '2026-11-18T09:30:00.000000000Z' } },
    ])
    const child = encode.struct(FIELDS.child, {
      token: text('child'),
      parent_partition_tokens: list(text('a'), text('b')),
    })
    const record = encode.struct(FIELDS.children, {
      start_timestamp: text('2026-11-18T09:30:00.5Z'),
      record_sequence: text('00000001'),
      child_partitions: list(child),
    })
    expect(decode(encode, 'child_partitions_record', record)).toEqual([
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

  test.each([
    ['no parents', list()],
    ['one null', list(NULL)],
    ['null', NULL],
  ])('takes %s for a child without parents', (_, parents) => {
    const child = encode.struct(FIELDS.child, { token: text('child'), parent_partition_tokens: parents })
    const record = encode.struct(FIELDS.children, {
      start_timestamp: text('2026-11-18T09:30:00Z'),
      record_sequence: text('0'),
      child_partitions: list(child),
    })
    expect(decode(encode, 'child_partitions_record', record)).toMatchObject([
      { record: { children: [{ token: 'child', parentTokens: [] }] } },
    ])
  })
})

describe('decodeChangeRecord', () => {
  const encode = encoder(asIs)

  test('keeps columns named __proto__ and constructor as values', () => {
    const values = '{"__proto__":"1","constructor":"2","toString":null}'
    const [decoded] = decode(
      encode,
      'data_change_record',
      dataRecord(encode, { mods: list(mod(encode, values, values, null)) }),
    )
    if (decoded?.kind !== 'data') throw new Error('not a data record')
    const { keys, newValues, oldValues } = decoded.record.mods[0]!
    expect(JSON.stringify(keys)).toBe(values)
    expect(Object.keys(newValues)).toEqual(['__proto__', 'constructor', 'toString'])
    expect(oldValues).toEqual({})
    expect(Object.getPrototypeOf({})).toBe(Object.prototype)
  })

  test('returns any JSON values as they were written', () => {
    const json = fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue())
    fc.assert(
      fc.property(json, json, (newValues, oldValues) => {
        const mods = list(mod(encode, '{"Id":"1"}', JSON.stringify(newValues), JSON.stringify(oldValues)))
        const [decoded] = decode(encode, 'data_change_record', dataRecord(encode, { mods }))
        if (decoded?.kind !== 'data') throw new Error('not a data record')
        expect(JSON.stringify(decoded.record.mods[0]!.newValues)).toBe(JSON.stringify(newValues))
        expect(JSON.stringify(decoded.record.mods[0]!.oldValues)).toBe(JSON.stringify(oldValues))
      }),
      { numRuns: 300, seed: 1118 },
    )
  })

  const needed = ['commit_timestamp', 'record_sequence', 'server_transaction_id', 'table_name', 'mod_type']
  test.each(needed)('a record without %s gives a SourceError', (name) => {
    const record = dataRecord(encode, { [name]: NULL })
    expect(() => decode(encode, 'data_change_record', record)).toThrow(SourceError)
  })

  test.each([
    ['no type at all', undefined],
    ['a string type', {}],
    ['an empty struct', { arrayElementType: { structType: { fields: [] } } }],
    ['nameless fields', { arrayElementType: { structType: { fields: [{}, { name: null, type: null }] } } }],
  ])('metadata with %s gives a SourceError', (_, type) => {
    const value = row(encode, 'data_change_record', dataRecord(encode))
    expect(() => decodeChangeRecord(value, 'token', recordLayout(type))).toThrow(SourceError)
  })

  test('an odd value is no record, or a SourceError, but never another error', () => {
    const layout = recordLayout(typeOf(asIs))
    const odd: fc.Arbitrary<WireValue> = fc.letrec<{ value: WireValue }>((tie) => ({
      value: fc.oneof(
        { maxDepth: 6 },
        fc.constant<WireValue>({}),
        fc.constant(NULL),
        fc.constant(text('x')),
        fc.constant<WireValue>({ boolValue: true }),
        fc.constant<WireValue>({ listValue: null }),
        fc.constant<WireValue>({ listValue: {} }),
        fc.array(tie('value'), { maxLength: 14 }).map((values) => list(...values)),
      ),
    })).value
    fc.assert(
      fc.property(odd, (value) => {
        try {
          decodeChangeRecord(value, 'token', layout)
        } catch (error) {
          expect(error).toBeInstanceOf(SourceError)
        }
      }),
      { numRuns: 3000, seed: 1118 },
    )
  })

  test('P12: a value that is not JSON gives a SourceError without its content', () => {
    const mods = list(mod(encode, '{"Id":"1"}', '{"Card": planted-secret', null))
    expect(() => decode(encode, 'data_change_record', dataRecord(encode, { mods }))).toThrow(
      expect.objectContaining({ name: 'SourceError', message: expect.not.stringContaining('planted') }),
    )
  })

  test('a timestamp of another form gives a SourceError', () => {
    const record = dataRecord(encode, { commit_timestamp: text('yesterday') })
    expect(() => decode(encode, 'data_change_record', record)).toThrow(SourceError)
  })
})
