import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { SeededRandom } from '../../../../src/simulator/index.ts'
import { MalformedRecord } from '../../../../src/sources/spanner-change-stream/decode/malformed.ts'
import {
  joinTrees,
  readTree,
  type ValueTree,
  writeTree,
} from '../../../../src/sources/spanner-change-stream/decode/value-tree.ts'
import { WireFormatError, WireReader } from '../../../../src/sources/spanner-change-stream/decode/wire-reader.ts'
import { cutOnce, randomSprinkle, times } from './random-results.ts'
import { lengthed, valueBytes, type Wire } from './wire-writer.ts'

const read = (bytes: Buffer): ValueTree => readTree(new WireReader(bytes), 0, bytes.length)

const anyWire: fc.Arbitrary<Wire> = fc.letrec<{ value: Wire }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 5 },
    fc.constant(null),
    fc.boolean(),
    fc.double(),
    fc.string({ unit: 'grapheme', maxLength: 200 }),
    fc.array(tie('value'), { maxLength: 5 }),
  ),
})).value

describe('value trees', () => {
  test('what is read and written again is the same, byte by byte', () => {
    fc.assert(
      fc.property(anyWire, (value) => {
        expect(writeTree(read(valueBytes(value)))).toEqual(valueBytes(value))
      }),
      { numRuns: 1000, seed: 1118 },
    )
  })

  test('pieces that are joined and written are the whole value, whatever unknown fields stand in them', () => {
    fc.assert(
      fc.property(anyWire, fc.integer(), (value, seed) => {
        const random = new SeededRandom(seed)
        const pieces: Wire[] = [value]
        for (let i = random.int(6); i > 0; i--) {
          const cut = cutOnce(pieces.pop()!, random)
          if (cut === undefined) return
          pieces.push(...cut)
        }
        // Inside of a list only: what stands in a value that is never cut is kept with it.
        const isList = Array.isArray(value) && !JSON.stringify(value).match(/null|true|false|\d/)
        const sprinkle = isList ? randomSprinkle(random, 0.2) : undefined
        const joined = pieces.map((piece) => read(valueBytes(piece, sprinkle))).reduce(joinTrees)
        expect(writeTree(joined)).toEqual(valueBytes(value))
      }),
      { numRuns: 2000, seed: 1118 },
    )
  })

  test('a character may be cut in the middle', () => {
    const bytes = Buffer.from('a😀b')
    for (let at = 0; at <= bytes.length; at++) {
      const pieces = [bytes.subarray(0, at), bytes.subarray(at)].map((piece) => read(lengthed(3, piece)))
      expect(writeTree(joinTrees(pieces[0]!, pieces[1]!))).toEqual(valueBytes('a😀b'))
    }
  })

  test('the tree does not hold on to the message', () => {
    const bytes = valueBytes(['text', true])
    const tree = read(bytes)
    bytes.fill(0)
    expect(writeTree(tree)).toEqual(valueBytes(['text', true]))
  })

  test('P7: a list of 200,000 elements is joined and written', () => {
    const half: Wire = [times(100_000, (i) => [String(i), true])]
    const tree = joinTrees(read(valueBytes(half)), read(valueBytes([[[], ...(half[0] as Wire[])]])))
    expect(writeTree(tree).equals(valueBytes([[...(half[0] as Wire[]), ...(half[0] as Wire[])]]))).toBe(true)
  })

  test.each<[string, Wire, Wire]>([
    ['a text and a list', 'a', ['a']],
    ['a list and a text', ['a'], 'a'],
    ['two flags', true, true],
    ['two nulls', null, null],
    ['a number and a text', 1, 'a'],
  ])('%s do not fit together', (_, first, rest) => {
    expect(() => joinTrees(read(valueBytes(first)), read(valueBytes(rest)))).toThrow(MalformedRecord)
  })

  test('a list may be 200 levels deep and no deeper', () => {
    const nested = (levels: number): Wire => (levels === 0 ? 'x' : [nested(levels - 1)])
    expect(writeTree(read(valueBytes(nested(200))))).toEqual(valueBytes(nested(200)))
    expect(() => read(valueBytes(nested(201)))).toThrow(MalformedRecord)
  })

  test('thousands of levels are refused without a crash', () => {
    let bytes = valueBytes('x')
    for (let i = 0; i < 20_000; i++) bytes = lengthed(6, lengthed(1, bytes))
    expect(() => read(bytes)).toThrow(MalformedRecord)
  })

  test('a tree that is cut off is refused', () => {
    const bytes = valueBytes([['a', true], 'b'])
    for (let length = 1; length < bytes.length; length++) {
      expect(() => read(bytes.subarray(0, length))).toThrow(WireFormatError)
    }
  })
})
