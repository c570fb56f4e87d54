import { protos } from '@google-cloud/spanner'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { SeededRandom } from '../../../../src/simulator/index.ts'
import { PartialResults } from '../../../../src/sources/spanner-change-stream/decode/partial-results.ts'
import { randomMessages, randomSprinkle } from './random-results.ts'
import { type Plain, plainValue } from './reference-values.ts'
import { metadataBytes, type ResultMessage, resultBytes, type Sprinkle, type Wire } from './wire-writer.ts'

/** Any value that a result may hold. */
const anyValue: fc.Arbitrary<Wire> = fc.letrec<{ value: Wire }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constant(null),
    fc.boolean(),
    fc.double({ noNaN: true }),
    fc.string({ unit: 'binary' }).map((text) => text.toWellFormed()),
    fc.array(tie('value'), { maxLength: 4 }),
  ),
})).value

/** The whole values that come out when these messages go in. */
function take(results: PartialResults, messages: readonly ResultMessage[], sprinkle?: Sprinkle): Plain[] {
  const found: Plain[] = []
  for (const message of messages) {
    results.take(resultBytes(message, sprinkle), (reader, start, end) => {
      found.push(plainValue(protos.google.protobuf.Value.decode(reader.bytes.subarray(start, end))))
    })
  }
  return found
}

describe('PartialResults', () => {
  test('gives back any values, however they were cut', () => {
    fc.assert(
      fc.property(fc.array(anyValue, { maxLength: 5 }), fc.integer(), (values, seed) => {
        const results = new PartialResults()
        const random = new SeededRandom(seed)
        const messages = randomMessages(random, metadataBytes('STRING'), values)
        expect(take(results, messages, randomSprinkle(random, 0.05))).toEqual(values)
        expect(results.isCut).toBe(false)
      }),
      { numRuns: 2000, seed: 1118 },
    )
  })

  // The examples of the API's own documentation.
  const documented: [name: string, cut: Wire, rest: Wire, whole: Wire][] = [
    ['strings are joined', 'foo', 'bar', 'foobar'],
    ['lists of other kinds are joined', [2, 3], [4], [2, 3, 4]],
    ['the last and first of lists are merged', ['a', 'b'], ['c', 'd'], ['a', 'bc', 'd']],
    ['lists in lists are merged', ['a', ['b', 'c']], [['d'], 'e'], ['a', ['b', 'cd'], 'e']],
  ]
  test.each(documented)('%s', (_, cut, rest, whole) => {
    const results = new PartialResults()
    expect(take(results, [{ values: [cut], isChunked: true }])).toEqual([])
    expect(results.isCut).toBe(true)
    expect(take(results, [{ values: [rest] }])).toEqual([whole])
    expect(results.isCut).toBe(false)
  })

  test('a value may be cut over many messages, and others follow it', () => {
    const messages: ResultMessage[] = [
      { values: ['whole', 'a'], isChunked: true },
      { values: ['b'], isChunked: true },
      { values: [] },
      { values: ['c', 'next'] },
    ]
    expect(take(new PartialResults(), messages)).toEqual(['whole', 'abc', 'next'])
  })

  test('the rest of one cut value and the beginning of another may come together', () => {
    const messages: ResultMessage[] = [
      { values: ['a'], isChunked: true },
      { values: ['b', 'c'], isChunked: true },
      { values: ['d'] },
    ]
    expect(take(new PartialResults(), messages)).toEqual(['ab', 'cd'])
  })

  test('a message without values changes nothing', () => {
    const results = new PartialResults()
    expect(take(results, [{}, { isChunked: true }])).toEqual([])
    expect(results.isCut).toBe(false)
  })

  test('keeps the metadata of the first message and the resume token of the last', () => {
    const results = new PartialResults()
    const metadata = metadataBytes('STRING')
    take(results, [{ metadata, values: ['a'], resumeToken: Buffer.from('one') }])
    expect(results.metadata).toEqual(metadata)
    expect(results.resumeToken).toEqual(Buffer.from('one'))
    take(results, [{ values: ['b'], resumeToken: Buffer.alloc(0) }])
    expect(results.metadata).toEqual(metadata)
    expect(results.resumeToken).toBeUndefined()
  })

  test('what waits for its rest does not hold on to the message', () => {
    const results = new PartialResults()
    const message = resultBytes({ values: ['abc'], isChunked: true })
    results.take(message, () => undefined)
    message.fill(0)
    expect(take(results, [{ values: ['def'] }])).toEqual(['abcdef'])
  })
})
