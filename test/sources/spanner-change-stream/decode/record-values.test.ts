import { describe, expect, test } from 'vitest'
import { decodeJsonRecord } from '../../../../src/sources/spanner-change-stream/decode/decode-json-record.ts'
import { MalformedRecord } from '../../../../src/sources/spanner-change-stream/decode/malformed.ts'
import { parseRow } from '../../../../src/sources/spanner-change-stream/decode/record-values.ts'

const [HUGE, LARGE, LOW] = ['1e+300', '100000000000000000000', '-9223372036854775808']

describe('parseRow', () => {
  test('P1: a row with a double beyond 2^53 keeps all its columns', () => {
    expect(parseRow(`{"Id":"1","Weight":${HUGE},"Note":"n"}`, 'keys')).toEqual({ Id: '1', Weight: 1e300, Note: 'n' })
  })

  test('whole numbers beyond 2^53 become texts, digit by digit, also in lists', () => {
    const row = parseRow(`{"a":${LOW},"b":[9007199254740993,7],"c":{"d":${LARGE}},"e":9007199254740991}`, 'keys')
    expect(row).toEqual({ a: LOW, b: ['9007199254740993', 7], c: { d: LARGE }, e: 9007199254740991 })
  })

  test.each(['{}', 'null'])('%s is a row without values', (text) => {
    expect(Object.keys(parseRow(text, 'new_values'))).toEqual([])
  })

  test.each(['[]', '1', '"text"', 'true'])('%s is no row', (text) => {
    expect(() => parseRow(text, 'new_values')).toThrow(new MalformedRecord('new_values', 'is not a JSON object'))
  })

  const nested = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels)
  test('takes 200 levels and refuses 201, behind an inexact number too', () => {
    expect(parseRow(`{"a":${nested(200)}}`, 'keys')).toHaveProperty('a')
    for (const text of [`{"a":${nested(201)}}`, `{"n":[${LOW},${nested(201)}]}`, `{"n":${LOW},"a":${nested(201)}}`]) {
      expect(() => parseRow(text, 'keys')).toThrow(new MalformedRecord('keys', 'is nested deeper than 200 levels'))
    }
  })

  test('P7: five million levels are refused', () => {
    expect(() => parseRow(`{"a":${nested(5_000_000)}}`, 'keys')).toThrow(MalformedRecord)
    // The second reading, which keeps digits, has less room.
    expect(() => parseRow(`{"n":${LOW},"a":${nested(200_000)}}`, 'keys')).toThrow(MalformedRecord)
  })
})

describe('decodeJsonRecord', () => {
  test('P1: rows with large numbers keep all their columns', () => {
    const values = `{"Weight":${HUGE},"Serial":${LOW},"Note":"n"}`
    const record = `{"data_change_record":{"commit_timestamp":"2026-11-18T09:30:00+00:00","record_sequence":"0",
      "server_transaction_id":"t","is_last_record_in_transaction_in_partition":true,"table_name":"T",
      "value_capture_type":"NEW_VALUES","column_types":[],"mods":[{"keys":{"Id":"1"},"new_values":${values}}],
      "mod_type":"INSERT","number_of_records_in_transaction":1,"number_of_partitions_in_transaction":1,
      "transaction_tag":"","is_system_transaction":false}}`
    expect(decodeJsonRecord(record, 'token')).toMatchObject({
      record: { mods: [{ keys: { Id: '1' }, newValues: { Weight: 1e300, Serial: LOW, Note: 'n' }, oldValues: {} }] },
    })
  })
})
