/** What the Spanner store does with more partitions than one commit takes: the same work on small commits. */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { ClosedError } from '../../src/core/errors.ts'
import { spannerPartitionStore } from '../../src/stores/index.ts'
import {
  hasSpannerEmulator,
  requireSpannerEmulator,
  type SpannerEmulator,
  startSpannerEmulator,
} from '../support/spanner-emulator.ts'

// The emulator takes seconds for thousands of rows in a commit. One full page of the real size is stored in
// spanner-partition-store.integration.test.ts.
vi.mock('../../src/stores/spanner-commit-sizes.ts', () => ({
  PAGE_ROWS: 20,
  PART_ROWS: 5,
  MAX_WRITES: 50,
  MAX_GROUP_ROWS: 30,
}))

requireSpannerEmulator('spanner-commit-sizes.integration.test.ts')

describe.skipIf(!hasSpannerEmulator)('spannerPartitionStore in small commits', () => {
  let emulator: SpannerEmulator
  let database: string

  beforeAll(async () => {
    emulator = await startSpannerEmulator()
    database = (await emulator.createDatabase([])).formattedName_
  })

  afterAll(() => emulator.stop())

  test('P1: a child that is added between the pages of a claim is seen by it', async () => {
    const { table, ann, clock, store } = await manyPartitions('between-pages', 30)
    await table.advance('p0029', ann, 'CREATED', 'RUNNING')
    clock.nowMs += 120_000
    // In the middle of the first page: these writes come before the second one.
    clock.onceAsked = () => {
      clock.old = Promise.all([
        table.addChildren('p0029', ann, [{ token: 'a', parentTokens: ['p0029'], start: ROOT.start }], 60_000),
        table.finish('p0029', ann, { watermark: ROOT.start, boundaryIds: [] }, null),
      ])
    }
    const first = await table.claim('bob', 60_000)
    expect(await clock.old).toEqual([[expect.objectContaining({ token: 'a' })], true])
    expect(first.filter(({ owner }) => owner !== 'bob').map(({ token, owner }) => [token, owner])).toEqual([
      ['a', 'ann'],
    ])
    clock.nowMs += 120_000
    const second = await table.claim('bob', 60_000)
    expect(second.find(({ token }) => token === 'a')).toMatchObject({ owner: 'bob', epoch: 2 })
    await store.close()
  })

  test('P3: progress is stored as a whole, also of more partitions than a page has', async () => {
    const { ann, tokens, clock, store, ...many } = await manyPartitions('as-a-whole', 30)
    let { table } = many
    const running = [...tokens.slice(0, 3), ...tokens.slice(-3)]
    await Promise.all(running.map((token) => table.advance(token, ann, 'CREATED', 'RUNNING')))
    const watermark = '2026-01-02T00:00:00.000000001Z'
    const writes = running.map((token) => ({ token, epoch: 1, watermark, boundaryIds: [token] }))
    // A crash after the first commit.
    clock.onceAsked = () => {
      clock.old = store.close()
    }
    await expect(table.checkpoint('ann', writes, 60_000)).rejects.toThrow(ClosedError)
    await clock.old
    table = await store.open('as-a-whole')
    const stored = await Promise.all(running.map((token) => table.get(token)))
    expect(stored.map((row) => row?.watermark)).toEqual(running.map(() => watermark))
    clock.nowMs += 1_000
    expect(await table.checkpoint('ann', writes, 60_000)).toEqual([])
    const leases = new Set((await table.list()).map(({ leaseUntilMs }) => leaseUntilMs))
    expect(leases).toEqual(new Set([clock.nowMs + 60_000]))
    await store.close()
  })

  test('P1: more progress than fits into a commit is stored in several, and all leases are renewed', async () => {
    const { table, ann, tokens, clock, store } = await manyPartitions('several-commits', 130)
    const moved = await Promise.all(tokens.slice(0, -5).map((token) => table.advance(token, ann, 'CREATED', 'RUNNING')))
    expect(moved.every(Boolean)).toBe(true)
    const watermark = '2026-01-02T00:00:00.000000001Z'
    const writes = tokens.map((token) => ({ token, epoch: token === 'p0100' ? 2 : 1, watermark, boundaryIds: [token] }))
    clock.nowMs += 1_000
    expect(await table.checkpoint('ann', writes, 60_000)).toEqual(['p0100'])
    const rows = await table.list()
    expect(rows.filter((row) => row.watermark === watermark && row.boundaryIds[0] === row.token)).toHaveLength(124)
    expect(new Set(rows.map(({ leaseUntilMs }) => leaseUntilMs))).toEqual(new Set([clock.nowMs + 60_000]))
    expect((await table.claim('ann', 60_000)).every(({ owner, epoch }) => owner === 'ann' && epoch === 2)).toBe(true)
    await table.release('ann')
    expect((await table.list()).every(({ owner }) => owner === null)).toBe(true)
    await store.close()
  })

  /** Ann holds a running root and its children, whose tokens are as long as each other. */
  async function manyPartitions(pipeline: string, count: number) {
    const clock = {
      nowMs: 1_000_000,
      /** Called once, the next time that somebody asks for the time. */
      onceAsked: undefined as (() => void) | undefined,
      old: undefined as Promise<unknown> | undefined,
      now() {
        const asked = clock.onceAsked
        clock.onceAsked = undefined
        asked?.()
        return clock.nowMs
      },
      after: systemClock.after,
    }
    const store = spannerPartitionStore({ database, emulatorHost: emulator.host, clock })
    const table = await store.open(pipeline)
    const ann = { owner: 'ann', epoch: 1 }
    await table.createRoot(ROOT, 'ann', 60_000)
    await table.advance('root', ann, 'CREATED', 'RUNNING')
    const tokens = Array.from({ length: count }, (_, n) => `p${String(n).padStart(4, '0')}`)
    const children = tokens.map((token) => ({ token, parentTokens: ['root'], start: ROOT.start }))
    await table.addChildren('root', ann, children, 60_000)
    return { store, table, ann, tokens, clock }
  }
})

const ROOT = { token: 'root', parentTokens: [], start: '2026-01-01T00:00:00.000000000Z' }
