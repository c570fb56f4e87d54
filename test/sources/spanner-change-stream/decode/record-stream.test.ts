import { describe, expect, test } from 'vitest'
import type { Dialect, PartitionMode } from '../../../../src/model/change-stream.ts'
import { SeededRandom } from '../../../../src/simulator/index.ts'
import { RecordCaches } from '../../../../src/sources/spanner-change-stream/decode/record-caches.ts'
import { RecordStream } from '../../../../src/sources/spanner-change-stream/decode/record-stream.ts'
import { toProto } from './proto-forms.ts'
import { type RandomRecord, randomRecord } from './random-results.ts'
import { lengthed, message, metadataBytes, resultBytes, tagged, valueBytes, varint, type Wire } from './wire-writer.ts'

const open = (dialect: Dialect, mode: PartitionMode): RecordStream =>
  new RecordStream(dialect, mode, 'token', new RecordCaches())

const malformed = (field: string): unknown =>
  expect.objectContaining({
    code: 'SOURCE_MALFORMED',
    partition: 'token',
    message: expect.stringContaining(`documented form: ${field} `),
  })

const BEAT = '{"heartbeat_record":{"timestamp":"2026-11-18T09:30:00+00:00"}}'
const JSON_METADATA = metadataBytes('JSON')

describe('RecordStream', () => {
  test('P5: a query that ends in the middle of a value is read again, not a record less', () => {
    const stream = open('postgresql', 'immutable')
    const part = stream.take([
      resultBytes({ metadata: JSON_METADATA, values: [BEAT, BEAT.slice(0, 9)], isChunked: true }),
    ])
    expect(part.records).toHaveLength(1)
    expect(() => stream.end()).toThrow(expect.objectContaining({ code: 'SOURCE_READ', retryable: true }))
    expect(stream.take([resultBytes({ values: [BEAT.slice(9)] })]).records).toHaveLength(1)
    expect(() => stream.end()).not.toThrow()
  })

  test('what came before a malformed record is handed out first, and nothing behind it', () => {
    const stream = open('postgresql', 'immutable')
    const part = stream.take([
      resultBytes({ metadata: JSON_METADATA, values: [BEAT, '{}', BEAT], resumeToken: Buffer.from('r') }),
    ])
    expect(part.records).toHaveLength(1)
    expect(part).not.toHaveProperty('resumeToken')
    expect(() => stream.assertWell()).toThrow(malformed('ChangeRecord'))
    expect(() => stream.take([resultBytes({ values: [BEAT] })])).toThrow(malformed('ChangeRecord'))
  })

  test('a resume token behind a cut value is not passed on; the one behind its rest is', () => {
    const stream = open('postgresql', 'immutable')
    const [first, second] = [Buffer.from('one'), Buffer.from('two')]
    const cut = resultBytes({
      metadata: JSON_METADATA,
      values: [BEAT.slice(0, 9)],
      isChunked: true,
      resumeToken: first,
    })
    expect(stream.take([cut])).toEqual({ records: [] })
    expect(stream.take([resultBytes({ values: [BEAT.slice(9)], resumeToken: second })])).toEqual({
      records: [{ kind: 'heartbeat', record: { timestamp: '2026-11-18T09:30:00.000000000Z' } }],
      resumeToken: second,
    })
  })

  test('a message without a token behind one with a token gives no token: resuming there would repeat', () => {
    const stream = open('postgresql', 'immutable')
    const messages = [
      resultBytes({ metadata: JSON_METADATA, values: [BEAT], resumeToken: Buffer.from('one') }),
      resultBytes({ values: [BEAT] }),
    ]
    expect(stream.take(messages)).not.toHaveProperty('resumeToken')
  })
})

describe('JSON records', () => {
  const decode = (json: string): unknown =>
    open('postgresql', 'immutable').take([resultBytes({ metadata: JSON_METADATA, values: [json] })]).records[0]

  const children = (parents: string): string =>
    `{"child_partitions_record":{"start_timestamp":"2026-11-18T11:30:00.5+02:00","record_sequence":"1","child_partitions":[{"token":"c","parent_partition_tokens":${parents}}]}}`

  test.each(['[]', '[null]', 'null'])('takes %s for a child without parents', (parents) => {
    expect(decode(children(parents))).toEqual({
      kind: 'children',
      record: {
        startTimestamp: '2026-11-18T09:30:00.500000000Z',
        recordSequence: '1',
        children: [{ token: 'c', parentTokens: [] }],
      },
    })
  })

  test('a child whose parents are left out is refused', () => {
    const json = children('[]').replace(',"parent_partition_tokens":[]', '')
    expect(() => decode(json)).toThrow(malformed('parent_partition_tokens'))
  })

  test('of two records in one object none is passed over', () => {
    const two = `{"heartbeat_record":{"timestamp":"2026-11-18T09:30:00Z"},${children('[]').slice(1)}`
    expect(() => decode(two)).toThrow(malformed('ChangeRecord'))
  })

  test.each(['', '{', 'null', '[]', '1', '"text"', '{}', '{"new_record":{}}', `${BEAT}x`])('refuses %j', (json) => {
    expect(() => decode(json)).toThrow(malformed('ChangeRecord'))
  })
})

describe('protobuf records', () => {
  const random = new SeededRandom(1118)
  const some = (kind: RandomRecord['kind']): RandomRecord => {
    for (;;) {
      const record = randomRecord(random)
      if (record.kind === kind) return record
    }
  }
  const decodeText = (text: Wire): unknown =>
    open('googlesql', 'mutable').take([resultBytes({ metadata: metadataBytes('PROTO'), values: [text] })]).records[0]
  const decode = (bytes: Buffer): unknown => decodeText(bytes.toString('base64'))

  const TIME = lengthed(1, tagged(1, 0, varint(1_763_458_200)))
  const head = [TIME, lengthed(2, '00000001'), lengthed(3, 'tx'), lengthed(5, 'T')]
  const kinds = [tagged(8, 0, varint(20)), tagged(9, 0, varint(40))]
  const columns = ['Id', '__proto__'].map((name) => lengthed(6, lengthed(1, name)))
  const cell = (index: number, value: Buffer): Buffer => message([tagged(1, 0, varint(index)), lengthed(2, value)])
  const data = (...parts: Buffer[]): Buffer => lengthed(1, message([...head, ...kinds, ...columns, ...parts]))

  test('of several kinds in one message the last one counts', () => {
    const [heartbeat, record] = [toProto(some('heartbeat'), random), toProto(some('data'), random)]
    expect(decode(Buffer.concat([record, heartbeat]))).toMatchObject({ kind: 'heartbeat' })
    expect(decode(Buffer.concat([heartbeat, record]))).toMatchObject({ kind: 'data' })
  })

  test('P1: a row that holds a column twice is refused, not halved', () => {
    const values = ['1', '2'].map((text) => lengthed(3, cell(1, valueBytes(text))))
    expect(() => decode(data(lengthed(7, message(values))))).toThrow(malformed('new_values'))
    expect(decode(data(lengthed(7, values[0]!)))).toMatchObject({ kind: 'data' })
  })

  test('keeps a column named __proto__', () => {
    const decoded = decode(data(lengthed(7, lengthed(1, cell(1, valueBytes('x')))))) as {
      record: { mods: { keys: object }[] }
    }
    expect(Object.entries(decoded.record.mods[0]!.keys)).toEqual([['__proto__', 'x']])
  })

  test('a value whose list is not a list is no value', () => {
    const odd = [tagged(6, 0, varint(7)), tagged(3, 0, varint(7)), tagged(2, 0, varint(7))]
    for (const value of odd) {
      expect(decode(data(lengthed(7, lengthed(1, cell(0, value)))))).toMatchObject({
        record: { mods: [{ keys: { Id: null } }] },
      })
    }
  })

  test.each([
    ['an unknown mod_type', 'mod_type', tagged(8, 0, varint(40))],
    ['an unknown value_capture_type', 'value_capture_type', tagged(9, 0, varint(50))],
    ['a value of a column that is not described', 'keys', lengthed(7, lengthed(1, cell(2, valueBytes('x'))))],
    ['a value that is a struct', 'old_values', lengthed(7, lengthed(2, cell(0, lengthed(5, ''))))],
  ])('refuses %s', (_, field, part) => {
    expect(() => decode(data(part))).toThrow(malformed(field))
  })

  test('lists nested thousands deep are refused', () => {
    let bytes = valueBytes('x')
    for (let i = 0; i < 20_000; i++) bytes = lengthed(6, lengthed(1, bytes))
    expect(() => decode(data(lengthed(7, lengthed(1, cell(0, bytes)))))).toThrow(malformed('keys'))
  })

  test('base64 that was cut off is refused', () => {
    const text = toProto(some('data'), random).toString('base64')
    for (let cut = 1; cut < 4; cut++) expect(() => decodeText(text.slice(0, -cut))).toThrow(malformed('ChangeRecord'))
    expect(() => decodeText(`${text.slice(4)}*abc`)).toThrow(malformed('ChangeRecord'))
    expect(() => decodeText(['text'])).toThrow(malformed('ChangeRecord'))
    expect(() => decodeText('')).toThrow(malformed('ChangeRecord'))
  })
})
