import { describe, expect, test } from 'vitest'
import { partitionRows, shortName } from '../../../src/cli/demo/lineage.ts'
import { timestampFromMs } from '../../../src/model/commit-timestamp.ts'
import { ROOT_TOKEN } from '../../../src/model/partition.ts'

const NOW_MS = 1_800_000_000_000
const watermark = timestampFromMs(NOW_MS - 400)

describe('partitionRows', () => {
  const live = { token: 'child', parents: ['a', 'b'], range: { lo: 25, hi: 50 }, end: null }
  const ended = { token: 'a', parents: [], range: { lo: 25, hi: 40 }, end: watermark }
  const running = { token: 'child', parentTokens: ['a', 'b'], state: 'RUNNING', watermark, inFlight: 3 } as const

  test('lays the partitions over the key space, with their parents', () => {
    expect(partitionRows([live], [running], 100, NOW_MS)).toEqual([
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
    expect(partitionRows([live], [{ ...running, state: 'CREATED' }], 100, NOW_MS)[0]).toMatchObject({
      state: 'CREATED',
      behindMs: undefined,
    })
  })

  test('shows an ended partition as long as it is read', () => {
    expect(partitionRows([ended, live], [running], 100, NOW_MS)).toHaveLength(1)
    expect(partitionRows([ended, live], [running, { ...running, token: 'a' }], 100, NOW_MS)).toHaveLength(2)
  })

  test('shows a live partition that nobody reads, and why', () => {
    expect(partitionRows([live], [], 100, NOW_MS)[0]?.state).toBe('UNSEEN')
    expect(partitionRows([live], undefined, 100, NOW_MS)[0]?.state).toBe('no reader')
  })

  test('leaves out the first query, which has no keys', () => {
    expect(partitionRows([live], [{ ...running, token: ROOT_TOKEN }, running], 100, NOW_MS)).toHaveLength(1)
  })
})

describe('shortName', () => {
  test('is four letters that tell long tokens with the same beginning apart', () => {
    expect(shortName(`${'x'.repeat(100)}1`)).toMatch(/^[0-9a-f]{4}$/)
    expect(shortName(`${'x'.repeat(100)}1`)).not.toBe(shortName(`${'x'.repeat(100)}2`))
  })
})
