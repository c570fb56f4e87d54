import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ByteCache } from '../../../../src/sources/spanner-change-stream/decode/byte-cache.ts'

/** Equal length, the same first, last and middle bytes: all in one place of the table, and all different. */
const lookAlikes: fc.Arbitrary<Buffer> = fc
  .tuple(fc.constantFrom(3, 8, 40, 64, 65, 200, 1000), fc.nat(), fc.integer({ min: 0, max: 3 }))
  .map(([length, place, byte]) => {
    const bytes = Buffer.alloc(length, 'x')
    const fixed = [0, length >> 2, length >> 1, length - 1]
    const at = place % length
    if (!fixed.includes(at)) bytes[at] = byte
    return bytes
  })

describe('ByteCache', () => {
  test('returns what was stored for these very bytes, or nothing', () => {
    const inputs = fc.array(fc.oneof({ weight: 4, arbitrary: lookAlikes }, fc.uint8Array({ maxLength: 6 })), {
      minLength: 40,
      maxLength: 60,
    })
    let hits = 0
    fc.assert(
      fc.property(inputs, fc.nat(20), (list, offset) => {
        const cache = new ByteCache<string>()
        for (const input of list) {
          // Somewhere inside of a message, as they come.
          const message = Buffer.concat([Buffer.alloc(offset, 'x'), input, Buffer.alloc(7, 'x')])
          const [start, end] = [offset, offset + input.length]
          const text = Buffer.from(input).toString('hex')
          const found = cache.get(message, start, end)
          if (found !== undefined) hits++
          expect([undefined, text]).toContain(found)
          expect(cache.set(message, start, end, text)).toBe(text)
          expect(cache.get(message, start, end)).toBe(text)
        }
      }),
      { numRuns: 300, seed: 1118 },
    )
    expect(hits).toBeGreaterThan(1000)
  })

  test('does not hold on to the message', () => {
    const cache = new ByteCache<number>()
    const message = Buffer.from('text')
    cache.set(message, 0, 4, 1)
    message.write('TEXT')
    expect(cache.get(Buffer.from('text'), 0, 4)).toBe(1)
    expect(cache.get(message, 0, 4)).toBeUndefined()
  })

  test('a change of any one byte is seen', () => {
    for (const length of [1, 2, 5, 64, 65, 300]) {
      const cache = new ByteCache<string>()
      const bytes = Buffer.alloc(length, 7)
      cache.set(bytes, 0, length, 'known')
      for (let at = 0; at < length; at++) {
        const other = Buffer.from(bytes)
        other[at] = 8
        expect(cache.get(other, 0, length)).toBeUndefined()
      }
      expect(cache.get(bytes, 0, length)).toBe('known')
      expect(cache.get(bytes, 0, length - 1)).toBeUndefined()
    }
  })

  test('keeps nothing that is large, and no more than it has places for', () => {
    const cache = new ByteCache<number>()
    const large = Buffer.alloc(65_537)
    expect(cache.set(large, 0, large.length, 1)).toBe(1)
    expect(cache.get(large, 0, large.length)).toBeUndefined()
    let kept = 0
    const texts = Array.from({ length: 10_000 }, (_, i) => Buffer.from(`text ${i}`))
    for (const [i, text] of texts.entries()) cache.set(text, 0, text.length, i)
    for (const text of texts) if (cache.get(text, 0, text.length) !== undefined) kept++
    expect(kept).toBeGreaterThan(0)
    expect(kept).toBeLessThanOrEqual(256)
  })
})
