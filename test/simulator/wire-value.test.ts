import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { SeededRandom } from '../../src/simulator/index.ts'
import { cutValue, type WireValue } from '../../src/simulator/wire-value.ts'
import { mergeValues } from './wire-decoder.ts'

const wireValue = fc.letrec<{ value: WireValue; list: WireValue[] }>((tie) => ({
  value: fc.oneof({ maxDepth: 4 }, fc.string({ unit: 'binary' }), fc.boolean(), fc.constant(null), tie('list')),
  list: fc.array(tie('value'), { maxLength: 5 }),
}))

describe('cutValue', () => {
  test('makes pieces that the rules of the API put together again, each of them valid text', () => {
    fc.assert(
      fc.property(wireValue.list, fc.integer(), fc.integer({ min: 1, max: 6 }), (list, seed, count) => {
        const pieces = cutValue(list, count, new SeededRandom(seed))
        expect(pieces).toHaveLength(count)
        expect(pieces.reduce(mergeValues)).toEqual(list)
        expect(JSON.stringify(pieces).isWellFormed()).toBe(true)
        expect(/\\ud[89a-f]/i.test(JSON.stringify(pieces))).toBe(false)
      }),
      { numRuns: 2000 },
    )
  })

  test('cuts inside nested lists and strings', () => {
    const value = [['abcdefghij', ['klmnop', true, null], 'qrst']]
    const heads = new Set<string>()
    for (let seed = 0; seed < 200; seed++) heads.add(JSON.stringify(cutValue(value, 2, new SeededRandom(seed))[0]))
    expect(heads.size).toBeGreaterThan(15)
    expect(heads).toContain('[["abcdefghij",["klm"]]]')
    expect(heads).toContain('[["abc"]]')
  })
})
