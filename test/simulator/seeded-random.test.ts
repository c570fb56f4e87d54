import { describe, expect, test } from 'vitest'
import { SeededRandom } from '../../src/simulator/index.ts'

describe('SeededRandom', () => {
  const draw = (random: SeededRandom, count = 20): number[] => Array.from({ length: count }, () => random.next())

  test('gives the same numbers for the same seed and others for another', () => {
    expect(draw(new SeededRandom(7))).toEqual(draw(new SeededRandom(7)))
    expect(draw(new SeededRandom(7))).not.toEqual(draw(new SeededRandom(8)))
  })

  test('keeps its numbers from version to version', () => {
    const random = new SeededRandom(42)
    expect(Array.from({ length: 6 }, () => random.int(1000))).toEqual(EXPECTED_42)
  })

  test('draws evenly', () => {
    const random = new SeededRandom(1)
    const counts = new Array(10).fill(0)
    for (let i = 0; i < 100_000; i++) counts[random.int(10)]++
    for (const count of counts) expect(Math.abs(count - 10_000)).toBeLessThan(500)
  })

  test('forks by label, whatever was drawn before', () => {
    const fresh = new SeededRandom(3).fork('a')
    const used = new SeededRandom(3)
    draw(used)
    expect(draw(used.fork('a'))).toEqual(draw(fresh))
    expect(draw(new SeededRandom(3).fork('b'))).not.toEqual(draw(new SeededRandom(3).fork('a')))
  })

  test('holds to chances of zero and one, and picks only what is there', () => {
    const random = new SeededRandom(5)
    for (let i = 0; i < 1000; i++) {
      expect(random.chance(0)).toBe(false)
      expect(random.chance(1)).toBe(true)
      expect(['a', 'b']).toContain(random.pick(['a', 'b']))
    }
    expect(() => random.pick([])).toThrow('nothing to pick')
  })
})

const EXPECTED_42: number[] = [161, 347, 749, 592, 637, 311]
