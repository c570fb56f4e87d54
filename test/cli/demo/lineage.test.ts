import { describe, expect, test } from 'vitest'
import { partitionRows, shortName } from '../../../src/cli/demo/lineage.ts'
import { timestampFromMs } from '../../../src/model/commit-timestamp.ts'
import { ROOT_TOKEN } from '../../../src/model/partition.ts'

const NOW_MS = 1_800_000_000_000
const watermark = timestampFromMs(NOW_MS - 400)

describe('partitionRows', () => {
  const rangeOf = (token: string): { lo: number; hi: number } | undefined =>
    token === 'child' ? { lo: 25, hi: 50 } : undefined

  test('lays the partitions over the key space, with their parents', () => {
    const status = { token: 'child', parentTokens: ['a', 'b'], state: 'RUNNING', watermark, inFlight: 3 } as const
    expect(partitionRows([status], rangeOf, 100, NOW_MS)).toEqual([
      {
        name: shortName('child'),
        from: 0.25,
        to: 0.5,
        state: 'RUNNING',
        behindMs: 400,
        inFlight: 3,
        parents: [shortName('a'), shortName('b')],
      },
    ])
  })

  test('says nothing about the distance of a partition that waits', () => {
    const status = { token: 'child', parentTokens: [], state: 'CREATED', watermark, inFlight: 0 } as const
    expect(partitionRows([status], rangeOf, 100, NOW_MS)[0]?.behindMs).toBeUndefined()
  })

  test('leaves out the first query, which has no keys', () => {
    const root = { token: ROOT_TOKEN, parentTokens: [], state: 'RUNNING', watermark, inFlight: 0 } as const
    expect(partitionRows([root], rangeOf, 100, NOW_MS)).toEqual([])
  })
})

describe('shortName', () => {
  test('is four letters that tell long tokens with the same beginning apart', () => {
    expect(shortName(`${'x'.repeat(100)}1`)).toMatch(/^[0-9a-f]{4}$/)
    expect(shortName(`${'x'.repeat(100)}1`)).not.toBe(shortName(`${'x'.repeat(100)}2`))
  })
})
