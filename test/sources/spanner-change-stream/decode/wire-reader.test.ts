import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  VALUE_KIND,
  WireFormatError,
  WireReader,
} from '../../../../src/sources/spanner-change-stream/decode/wire-reader.ts'
import { doubleBytes, lengthed, message, tagged, valueBytes, varint, type Wire } from './wire-writer.ts'

const reading = (...parts: Buffer[]): { reader: WireReader; end: number } => {
  const bytes = Buffer.concat(parts)
  return { reader: new WireReader(bytes), end: bytes.length }
}

const FIELDS: readonly [name: string, field: Buffer][] = [
  ['a number', tagged(50, 0, varint(2 ** 40))],
  ['eight bytes', tagged(50, 1, doubleBytes(1))],
  ['a text', lengthed(50, 'x'.repeat(300))],
  ['four bytes', tagged(50, 5, Buffer.alloc(4))],
  ['a group', message([tagged(50, 3), lengthed(1, 'a'), tagged(51, 3), tagged(51, 4), tagged(50, 4)])],
  ['a field with a large number', lengthed(536_870_911, 'a')],
]

describe('WireReader', () => {
  test('reads any length, and any number as far as a double is exact', () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), (value) => {
        const { reader, end } = reading(varint(value))
        expect(reader.varint(end)).toBe(value)
        expect(reader.at).toBe(end)
      }),
      { numRuns: 500, seed: 1118 },
    )
  })

  test.each([0, 1, 127, 128, 16_383, 16_384, 2_097_152])('finds the end of a field of %d bytes', (length) => {
    const { reader, end } = reading(varint(length), Buffer.alloc(length))
    expect(reader.lengthEnd(end)).toBe(end)
    expect(end - reader.at).toBe(length)
  })

  test.each(FIELDS)('passes over %s', (_, field) => {
    const { reader, end } = reading(field, Buffer.from([7]))
    reader.skip(reader.varint(end), end)
    expect(reader.at).toBe(end - 1)
  })

  test.each(FIELDS)('refuses %s that is cut off', (_, field) => {
    for (let length = 1; length < field.length; length++) {
      const reader = new WireReader(field)
      expect(() => reader.skip(reader.varint(length), length)).toThrow(WireFormatError)
    }
  })

  test.each([
    ['a number that never ends', Buffer.alloc(20, 0xff), 0],
    ['a length of four gigabytes', varint(2 ** 32), 2],
    ['a length that wraps around', Buffer.from('ffffffffffffffffff01', 'hex'), 2],
    ['the wire type 6', Buffer.alloc(9), 6],
    ['the wire type 7', Buffer.alloc(9), 7],
    ['the end of a group that never began', Buffer.alloc(9), 4],
    ['groups in groups without end', Buffer.alloc(100_000, 0x0b), 3],
  ])('refuses %s', (_, bytes, wireType) => {
    expect(() => new WireReader(bytes).skip(8 + wireType, bytes.length)).toThrow(WireFormatError)
  })

  const values: readonly [Wire, number][] = [
    [null, VALUE_KIND.null],
    [1.5, VALUE_KIND.number],
    ['text', VALUE_KIND.string],
    [true, VALUE_KIND.bool],
    [false, VALUE_KIND.bool],
    [['a'], VALUE_KIND.list],
    [{ bytes: Buffer.alloc(0) }, VALUE_KIND.none],
    [{ bytes: lengthed(5, '') }, VALUE_KIND.struct],
    [{ bytes: lengthed(77, '') }, VALUE_KIND.none],
  ]
  test.each(values)('opens %j', (value, kind) => {
    for (const [, field] of FIELDS) {
      const { reader, end } = reading(valueBytes(value, () => field))
      reader.openValue(0, end)
      expect(reader.kind).toBe(kind)
      expect(reader.at).toBe(end)
      if (kind === VALUE_KIND.bool) expect(reader.contentStart).toBe(value ? 1 : 0)
      if (value === 'text') expect(reader.bytes.toString('utf8', reader.contentStart, reader.contentEnd)).toBe('text')
    }
  })

  test('of several kinds in one value the last one counts', () => {
    const { reader, end } = reading(valueBytes('text'), valueBytes(true), valueBytes(['a']), valueBytes('last'))
    reader.openValue(0, end)
    expect(reader.bytes.toString('utf8', reader.contentStart, reader.contentEnd)).toBe('last')
  })

  test('a message that ends inside a value is refused', () => {
    for (const value of ['text', 1.5, true, null, ['a', ['b']]] as Wire[]) {
      const bytes = valueBytes(value)
      for (let length = 1; length < bytes.length; length++) {
        expect(() => new WireReader(bytes).openValue(0, length)).toThrow(WireFormatError)
      }
    }
  })

  describe.each(FIELDS)('with %s before, between and behind the elements of a list', (_, field) => {
    test('finds the elements and nothing else', () => {
      const elements = ['a', 'bc', ''].map((text) => lengthed(1, text))
      for (const parts of [elements, []]) {
        const { reader, end } = reading(message(parts, () => field))
        const found: string[] = []
        while (reader.hasElement(end)) {
          const stop = reader.lengthEnd(end)
          found.push(reader.bytes.toString('utf8', reader.at, stop))
          reader.at = stop
        }
        expect(found).toEqual(parts.length === 0 ? [] : ['a', 'bc', ''])
      }
    })
  })

  test('an element whose tag is written with more bytes than it needs is not passed over', () => {
    const { reader, end } = reading(Buffer.from([0x8a, 0x00, 0x01, 0x61]))
    expect(reader.hasElement(end)).toBe(true)
    expect(reader.lengthEnd(end)).toBe(end)
  })
})
