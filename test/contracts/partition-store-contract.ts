/** What every partition store must do: one file of tests for all implementations. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { type Partition, ROOT_TOKEN } from '../../src/model/partition.ts'
import type { NewPartition, Ownership, PartitionStore, PartitionTable } from '../../src/stores/index.ts'

/**
 * Runs the contract; `makeStore` gives an empty store whose leases are measured with `clock`. It is closed after each
 * test, unless it is shared: then whoever made it closes it.
 */
export function partitionStoreContract(
  name: string,
  makeStore: (clock: Clock) => PartitionStore | Promise<PartitionStore>,
  { isShared = false } = {},
): void {
  describe(name, () => {
    let nowMs: number
    let store: PartitionStore
    let table: PartitionTable

    beforeEach(async () => {
      nowMs = 1_000_000
      store = await makeStore({ now: () => nowMs, after: systemClock.after })
      table = await store.open('orders')
    })

    afterEach(() => (isShared ? undefined : store.close()))

    /** Ann holds the root, which runs; Bob is another process. */
    async function runningRoot(): Promise<Ownership> {
      await table.createRoot(ROOT, 'ann', LEASE_MS)
      const ann = { owner: 'ann', epoch: 1 }
      await table.advance(ROOT_TOKEN, ann, 'CREATED', 'RUNNING')
      return ann
    }

    async function row(token: string): Promise<Partition> {
      const found = await table.get(token)
      if (found === undefined) throw new Error(`no row ${token}`)
      return found
    }

    async function everything(): Promise<Partition[]> {
      return (await table.list()).sort(byToken)
    }

    describe('list and get', () => {
      test('a look shows the rows, changes none, and finds none of a pipeline that never ran', async () => {
        const peek = async (pipeline: string): Promise<Partition[] | undefined> =>
          (await store.peek!(pipeline))?.toSorted(byToken)
        const ann = await runningRoot()
        await table.addChildren(ROOT_TOKEN, ann, [child('a'), child('b')], LEASE_MS)
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: ann.epoch, ...at(5, 'x') }], LEASE_MS)
        const before = await everything()
        expect(before).toHaveLength(3)
        expect(await peek('orders')).toEqual(before)
        expect((await peek('never-ran')) ?? []).toEqual([])
        expect(await everything()).toEqual(before)
      })

      test('find nothing in a new table', async () => {
        expect(await table.list()).toEqual([])
        expect(await table.get(ROOT_TOKEN)).toBeUndefined()
      })

      test('list finished rows too', async () => {
        const ann = await runningRoot()
        await table.addChildren(ROOT_TOKEN, ann, [child('a')], LEASE_MS)
        await table.finish(ROOT_TOKEN, ann, at(9), null)
        expect((await everything()).map((r) => [r.token, r.state])).toEqual([
          ['a', 'CREATED'],
          [ROOT_TOKEN, 'FINISHED'],
        ])
      })

      test('return rows that later writes do not change', async () => {
        const ann = await runningRoot()
        const before = await row(ROOT_TOKEN)
        const copy = structuredClone(before)
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: ann.epoch, ...at(5, 'x') }], LEASE_MS)
        expect(before).toEqual(copy)
      })
    })

    describe('createRoot', () => {
      test('inserts a row in its first state, owned by its creator', async () => {
        expect(await table.createRoot(ROOT, 'ann', LEASE_MS)).toBe(true)
        expect(await row(ROOT_TOKEN)).toEqual({
          token: ROOT_TOKEN,
          parentTokens: [],
          start: time(1),
          state: 'CREATED',
          watermark: time(1),
          boundaryIds: [],
          endedAt: null,
          owner: 'ann',
          epoch: 1,
          leaseUntilMs: nowMs + LEASE_MS,
        })
      })

      test('changes nothing when there is a root already, even one that is free', async () => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        await table.release('ann')
        const before = await everything()
        expect(await table.createRoot({ ...ROOT, start: time(7) }, 'bob', LEASE_MS)).toBe(false)
        expect(await everything()).toEqual(before)
      })

      test('changes nothing when there is any other row', async () => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        expect(await table.createRoot({ ...ROOT, token: 'another' }, 'ann', LEASE_MS)).toBe(false)
        expect(await table.list()).toHaveLength(1)
      })

      test('lets one of two racing owners win', async () => {
        const other = await store.open('orders')
        const won = await Promise.all([
          table.createRoot(ROOT, 'ann', LEASE_MS),
          other.createRoot(ROOT, 'bob', LEASE_MS),
        ])
        expect(won.filter(Boolean)).toHaveLength(1)
        expect((await row(ROOT_TOKEN)).owner).toBe(won[0] ? 'ann' : 'bob')
      })
    })

    describe('claim', () => {
      test('returns nothing from an empty table', async () => {
        expect(await table.claim('ann', LEASE_MS)).toEqual([])
      })

      test('takes a row that nobody owns and raises its epoch', async () => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        await table.release('ann')
        const claimed = await table.claim('bob', LEASE_MS)
        expect(claimed).toEqual([await row(ROOT_TOKEN)])
        expect(claimed[0]).toMatchObject({ owner: 'bob', epoch: 2, leaseUntilMs: nowMs + LEASE_MS })
      })

      test('raises the epoch when an owner takes back what it released', async () => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        await table.release('ann')
        expect(await table.claim('ann', LEASE_MS)).toMatchObject([{ owner: 'ann', epoch: 2 }])
      })

      test('takes a row whose lease has run out and raises its epoch', async () => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        nowMs += LEASE_MS
        expect(await table.claim('bob', LEASE_MS)).toMatchObject([{ owner: 'bob', epoch: 2 }])
      })

      test('P10: raises the epoch of own rows too, so that an earlier run under the same name is fenced', async () => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        nowMs += LEASE_MS * 2
        expect(await table.claim('ann', LEASE_MS)).toMatchObject([
          { owner: 'ann', epoch: 2, leaseUntilMs: nowMs + LEASE_MS },
        ])
        expect(await table.advance(ROOT_TOKEN, { owner: 'ann', epoch: 1 }, 'CREATED', 'SCHEDULED')).toBe(false)
        expect(await table.advance(ROOT_TOKEN, { owner: 'ann', epoch: 2 }, 'CREATED', 'SCHEDULED')).toBe(true)
      })

      test('P10: leaves what another one holds and returns it as held', async () => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        const before = await everything()
        nowMs += LEASE_MS - 1
        expect(await table.claim('bob', LEASE_MS)).toEqual(before)
        expect(await everything()).toEqual(before)
      })

      test('takes the free rows and leaves the held ones in one step', async () => {
        const ann = await runningRoot()
        await table.addChildren(ROOT_TOKEN, ann, [child('a'), child('b')], LEASE_MS)
        await table.release('ann')
        expect(await table.claim('bob', LEASE_MS)).toHaveLength(3)
        const bob = { owner: 'bob', epoch: 2 }
        await table.addChildren('a', bob, [child('c', 'a')], LEASE_MS * 10)
        nowMs += LEASE_MS
        const claimed = await table.claim('cas', LEASE_MS)
        expect(claimed.map((r) => [r.token, r.owner, r.epoch]).sort()).toEqual([
          ['a', 'cas', 3],
          ['b', 'cas', 3],
          ['c', 'bob', 1],
          [ROOT_TOKEN, 'cas', 3],
        ])
      })

      test('P1: takes what was finished at an earlier end of the user and is reopened', async () => {
        const ann = await runningRoot()
        const end = at(9).watermark
        await table.finish(ROOT_TOKEN, ann, at(9, 'x'), end)
        expect(await row(ROOT_TOKEN)).toMatchObject({ state: 'FINISHED', endedAt: end })
        await table.reopen(end)
        expect(await table.claim('bob', LEASE_MS)).toEqual([])
        await table.reopen(at(10).watermark)
        expect(await table.claim('bob', LEASE_MS)).toMatchObject([
          { state: 'RUNNING', endedAt: null, owner: 'bob', epoch: 2, ...at(9, 'x') },
        ])
      })

      test('reopens what was finished at any end of the user when there is no end any more', async () => {
        const ann = await runningRoot()
        await table.finish(ROOT_TOKEN, ann, at(9), at(9).watermark)
        await table.reopen(null)
        expect(await table.claim('bob', LEASE_MS)).toMatchObject([{ state: 'RUNNING' }])
      })

      test('leaves what ended by itself finished, whatever the end', async () => {
        const ann = await runningRoot()
        await table.finish(ROOT_TOKEN, ann, at(9), null)
        await table.reopen(null)
        await table.reopen(at(20).watermark)
        expect(await table.claim('bob', LEASE_MS)).toEqual([])
      })

      test('neither takes nor returns finished rows', async () => {
        const ann = await runningRoot()
        await table.finish(ROOT_TOKEN, ann, at(9), null)
        const before = await everything()
        expect(await table.claim('bob', LEASE_MS)).toEqual([])
        expect(await everything()).toEqual(before)
      })

      test('keeps state, watermark and boundary ids', async () => {
        const ann = await runningRoot()
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: ann.epoch, ...at(5, 'x', 'y') }], LEASE_MS)
        nowMs += LEASE_MS
        expect(await table.claim('bob', LEASE_MS)).toMatchObject([
          { state: 'RUNNING', watermark: time(5), boundaryIds: ['x', 'y'] },
        ])
      })

      test('P10: lets one of two racing owners win', async () => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        nowMs += LEASE_MS
        const other = await store.open('orders')
        const results = await Promise.all([table.claim('bob', LEASE_MS), other.claim('cas', LEASE_MS)])
        const { owner, epoch } = await row(ROOT_TOKEN)
        expect(epoch).toBe(2)
        expect(results.map(([r]) => r?.owner)).toEqual([owner, owner])
      })
    })

    describe('addChildren', () => {
      test('inserts children in their first state, owned by the owner of the parent', async () => {
        const ann = await runningRoot()
        nowMs += 10
        const children = [child('a', 'p', 'q'), { ...child('b'), start: time(3) }]
        const inserted = await table.addChildren(ROOT_TOKEN, ann, children, LEASE_MS)
        expect(inserted?.[0]).toEqual({
          token: 'a',
          parentTokens: ['p', 'q'],
          start: time(2),
          state: 'CREATED',
          watermark: time(2),
          boundaryIds: [],
          endedAt: null,
          owner: 'ann',
          epoch: 1,
          leaseUntilMs: nowMs + LEASE_MS,
        })
        expect(inserted).toEqual([await row('a'), await row('b')])
      })

      test('leaves children that exist as they are and inserts the others', async () => {
        const ann = await runningRoot()
        await table.addChildren(ROOT_TOKEN, ann, [child('a'), child('b')], LEASE_MS)
        await table.advance('b', ann, 'CREATED', 'SCHEDULED')
        const before = await row('b')
        const again = [{ ...child('b', 'x'), start: time(8) }, child('c'), child('a')]
        const inserted = await table.addChildren(ROOT_TOKEN, ann, again, LEASE_MS * 5)
        expect(inserted?.map((r) => r.token)).toEqual(['c'])
        expect(await row('b')).toEqual(before)
      })

      test('inserts a child once when the list names it twice', async () => {
        const ann = await runningRoot()
        const inserted = await table.addChildren(ROOT_TOKEN, ann, [child('a'), child('a', 'x')], LEASE_MS)
        expect(inserted).toHaveLength(1)
        expect((await row('a')).parentTokens).toEqual([ROOT_TOKEN])
      })

      test('leaves a finished child finished', async () => {
        const ann = await runningRoot()
        await table.addChildren(ROOT_TOKEN, ann, [child('a')], LEASE_MS)
        await table.advance('a', ann, 'CREATED', 'RUNNING')
        await table.finish('a', ann, at(4), null)
        expect(await table.addChildren(ROOT_TOKEN, ann, [child('a')], LEASE_MS)).toEqual([])
        expect((await row('a')).state).toBe('FINISHED')
      })

      test('accepts an empty list', async () => {
        expect(await table.addChildren(ROOT_TOKEN, await runningRoot(), [], LEASE_MS)).toEqual([])
      })

      test.each([
        ['a stale epoch', ROOT_TOKEN, { owner: 'ann', epoch: 0 }],
        ['an epoch to come', ROOT_TOKEN, { owner: 'ann', epoch: 2 }],
        ['another owner', ROOT_TOKEN, { owner: 'bob', epoch: 1 }],
        ['a parent that does not exist', 'nobody', { owner: 'ann', epoch: 1 }],
      ])('P10: inserts nothing for %s', async (_, parent, ownership) => {
        await runningRoot()
        const before = await everything()
        expect(await table.addChildren(parent, ownership, [child('a')], LEASE_MS)).toBeUndefined()
        expect(await everything()).toEqual(before)
      })

      test('inserts nothing for a parent that is finished', async () => {
        const ann = await runningRoot()
        await table.finish(ROOT_TOKEN, ann, at(9), null)
        expect(await table.addChildren(ROOT_TOKEN, ann, [child('a')], LEASE_MS)).toBeUndefined()
        expect(await table.list()).toHaveLength(1)
      })
    })

    describe('advance', () => {
      test('moves a row from state to state and changes nothing else', async () => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        const before = await row(ROOT_TOKEN)
        nowMs += 10
        const ann = { owner: 'ann', epoch: 1 }
        expect(await table.advance(ROOT_TOKEN, ann, 'CREATED', 'SCHEDULED')).toBe(true)
        expect(await row(ROOT_TOKEN)).toEqual({ ...before, state: 'SCHEDULED' })
        expect(await table.advance(ROOT_TOKEN, ann, 'SCHEDULED', 'RUNNING')).toBe(true)
        expect(await row(ROOT_TOKEN)).toEqual({ ...before, state: 'RUNNING' })
      })

      test.each([
        ['the state differs', ROOT_TOKEN, { owner: 'ann', epoch: 1 }, 'SCHEDULED'],
        ['the epoch differs', ROOT_TOKEN, { owner: 'ann', epoch: 2 }, 'CREATED'],
        ['the owner differs', ROOT_TOKEN, { owner: 'bob', epoch: 1 }, 'CREATED'],
        ['there is no such row', 'nobody', { owner: 'ann', epoch: 1 }, 'CREATED'],
      ] as const)('changes nothing if %s', async (_, token, ownership, from) => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        const before = await everything()
        expect(await table.advance(token, ownership, from, 'RUNNING')).toBe(false)
        expect(await everything()).toEqual(before)
      })

      test('lets one of two equal moves win', async () => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        const move = (): Promise<boolean> =>
          table.advance(ROOT_TOKEN, { owner: 'ann', epoch: 1 }, 'CREATED', 'SCHEDULED')
        expect((await Promise.all([move(), move()])).filter(Boolean)).toHaveLength(1)
      })

      test('does not revive a finished row', async () => {
        const ann = await runningRoot()
        await table.finish(ROOT_TOKEN, ann, at(9), null)
        expect(await table.advance(ROOT_TOKEN, ann, 'FINISHED', 'RUNNING')).toBe(false)
      })
    })

    describe('checkpoint', () => {
      test('stores watermark and boundary ids of many rows', async () => {
        const ann = await runningRoot()
        const children = Array.from({ length: 1000 }, (_, i) => child(`t${i}`))
        await table.addChildren(ROOT_TOKEN, ann, children, LEASE_MS)
        const advanced = await Promise.all(children.map(({ token }) => table.advance(token, ann, 'CREATED', 'RUNNING')))
        expect(advanced.every(Boolean)).toBe(true)
        const writes = children.map(({ token }, i) => ({ token, epoch: 1, ...at(5, `id${i}`) }))
        expect(await table.checkpoint('ann', writes, LEASE_MS)).toEqual([])
        expect(await row('t0')).toMatchObject({ watermark: time(5), boundaryIds: ['id0'] })
        expect(await row('t999')).toMatchObject({ watermark: time(5), boundaryIds: ['id999'] })
      })

      test('P2: leaves out a write that would move a watermark back, and does not call its row lost', async () => {
        await runningRoot()
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, ...at(5, 'x') }], LEASE_MS)
        const earlier = { token: ROOT_TOKEN, epoch: 1, ...at(4, 'a', 'b', 'c') }
        expect(await table.checkpoint('ann', [earlier], LEASE_MS)).toEqual([])
        expect(await row(ROOT_TOKEN)).toMatchObject({ watermark: time(5), boundaryIds: ['x'] })
      })

      test('P6: stores more boundary ids at the same watermark, as a group of ties settles bit by bit', async () => {
        await runningRoot()
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, ...at(5, 'x') }], LEASE_MS)
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, ...at(5, 'x', 'y') }], LEASE_MS)
        expect(await row(ROOT_TOKEN)).toMatchObject({ watermark: time(5), boundaryIds: ['x', 'y'] })
      })

      test('stores boundary ids at the watermark that the row was born with', async () => {
        await runningRoot()
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, ...at(1, 'x') }], LEASE_MS)
        expect(await row(ROOT_TOKEN)).toMatchObject({ watermark: time(1), boundaryIds: ['x'] })
      })

      test('forgets the boundary ids of an earlier watermark', async () => {
        await runningRoot()
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, ...at(5, 'x') }], LEASE_MS)
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, ...at(6) }], LEASE_MS)
        expect(await row(ROOT_TOKEN)).toMatchObject({ watermark: time(6), boundaryIds: [] })
      })

      test('P9: keeps nanoseconds byte for byte, and orders by them', async () => {
        await runningRoot()
        const watermark = '2026-11-18T09:31:00.123456789Z'
        const before = '2026-11-18T09:31:00.123456788Z'
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, watermark, boundaryIds: [] }], LEASE_MS)
        expect((await row(ROOT_TOKEN)).watermark).toBe(watermark)
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, watermark: before, boundaryIds: [] }], LEASE_MS)
        expect((await row(ROOT_TOKEN)).watermark).toBe(watermark)
        const nextNanosecond = '2026-11-18T09:31:00.123456790Z'
        const next = { token: ROOT_TOKEN, epoch: 1, watermark: nextNanosecond, boundaryIds: [] }
        await table.checkpoint('ann', [next], LEASE_MS)
        expect((await row(ROOT_TOKEN)).watermark).toBe(nextNanosecond)
      })

      test('keeps thousands of boundary ids in their order', async () => {
        await runningRoot()
        const ids = Array.from({ length: 5000 }, (_, i) => `transaction"${i}\\é/00000001/${i}`)
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, ...at(5, ...ids) }], LEASE_MS)
        expect((await row(ROOT_TOKEN)).boundaryIds).toEqual(ids)
      })

      test('keeps what it was given when the caller changes its list afterwards', async () => {
        await runningRoot()
        const boundaryIds = ['x']
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, watermark: time(5), boundaryIds }], LEASE_MS)
        boundaryIds.push('y')
        expect((await row(ROOT_TOKEN)).boundaryIds).toEqual(['x'])
      })

      test('P10: fences row by row and names the lost ones', async () => {
        const ann = await runningRoot()
        await table.addChildren(ROOT_TOKEN, ann, [child('a'), child('b')], LEASE_MS)
        for (const token of ['a', 'b']) await table.advance(token, ann, 'CREATED', 'RUNNING')
        const writes = [
          { token: 'a', epoch: 1, ...at(5) },
          { token: 'b', epoch: 7, ...at(5) },
          { token: 'nobody', epoch: 1, ...at(5) },
        ]
        expect(await table.checkpoint('ann', writes, LEASE_MS)).toEqual(['b', 'nobody'])
        expect((await row('a')).watermark).toBe(time(5))
        expect((await row('b')).watermark).toBe(time(2))
        expect(await table.get('nobody')).toBeUndefined()
      })

      test('renews the leases of all unfinished rows of the owner, and of nobody else', async () => {
        const ann = await runningRoot()
        await table.addChildren(ROOT_TOKEN, ann, [child('created'), child('scheduled'), child('bobs')], LEASE_MS)
        await table.advance('scheduled', ann, 'CREATED', 'SCHEDULED')
        await table.finish(ROOT_TOKEN, ann, at(3), null)
        await table.release('ann')
        await table.claim('bob', LEASE_MS)
        const bob = { owner: 'bob', epoch: 2 }
        await table.addChildren('bobs', bob, [child('later')], LEASE_MS * 3)
        nowMs += LEASE_MS
        await table.claim('ann', LEASE_MS)
        nowMs += 100
        await table.checkpoint('ann', [], LEASE_MS * 2)
        const leases = (await everything()).map((r) => [r.token, r.owner, r.leaseUntilMs])
        expect(leases).toEqual([
          ['bobs', 'ann', nowMs + LEASE_MS * 2],
          ['created', 'ann', nowMs + LEASE_MS * 2],
          ['later', 'bob', nowMs - 100 - LEASE_MS + LEASE_MS * 3],
          [ROOT_TOKEN, null, 0],
          ['scheduled', 'ann', nowMs + LEASE_MS * 2],
        ])
      })

      test('works for an owner whose lease ran out while nobody else claimed', async () => {
        await runningRoot()
        nowMs += LEASE_MS * 5
        expect(await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, ...at(5) }], LEASE_MS)).toEqual([])
        expect(await row(ROOT_TOKEN)).toMatchObject({ watermark: time(5), leaseUntilMs: nowMs + LEASE_MS })
      })

      test('leaves the progress of a row that does not run, which is not lost', async () => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        expect(await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, ...at(5) }], LEASE_MS)).toEqual([])
        expect((await row(ROOT_TOKEN)).watermark).toBe(time(1))
      })

      test('never touches a finished row', async () => {
        const ann = await runningRoot()
        await table.finish(ROOT_TOKEN, ann, at(5, 'x'), null)
        const before = await everything()
        const late = { token: ROOT_TOKEN, epoch: 1, ...at(9, 'z') }
        expect(await table.checkpoint('ann', [late], LEASE_MS)).toEqual([ROOT_TOKEN])
        expect(await everything()).toEqual(before)
      })
    })

    describe('finish', () => {
      test('stores the last checkpoint and gives up the lease', async () => {
        const ann = await runningRoot()
        const before = await row(ROOT_TOKEN)
        expect(await table.finish(ROOT_TOKEN, ann, at(9, 'x'), null)).toBe(true)
        expect(await row(ROOT_TOKEN)).toEqual({
          ...before,
          state: 'FINISHED',
          watermark: time(9),
          boundaryIds: ['x'],
          owner: null,
          leaseUntilMs: 0,
        })
      })

      test('finishes once', async () => {
        const ann = await runningRoot()
        expect(await table.finish(ROOT_TOKEN, ann, at(9), null)).toBe(true)
        expect(await table.finish(ROOT_TOKEN, ann, at(10), null)).toBe(false)
        expect((await row(ROOT_TOKEN)).watermark).toBe(time(9))
      })

      test('P2: keeps the stored watermark if it is the later one', async () => {
        const ann = await runningRoot()
        await table.checkpoint('ann', [{ token: ROOT_TOKEN, epoch: 1, ...at(5, 'x') }], LEASE_MS)
        expect(await table.finish(ROOT_TOKEN, ann, at(4, 'a'), null)).toBe(true)
        expect(await row(ROOT_TOKEN)).toMatchObject({ state: 'FINISHED', watermark: time(5), boundaryIds: ['x'] })
      })

      test.each(['CREATED', 'SCHEDULED'] as const)('changes nothing on a row that is %s', async (state) => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        const ann = { owner: 'ann', epoch: 1 }
        await table.advance(ROOT_TOKEN, ann, 'CREATED', state)
        const before = await everything()
        expect(await table.finish(ROOT_TOKEN, ann, at(9), null)).toBe(false)
        expect(await everything()).toEqual(before)
      })

      test.each([
        ['another epoch', ROOT_TOKEN, { owner: 'ann', epoch: 2 }],
        ['another owner', ROOT_TOKEN, { owner: 'bob', epoch: 1 }],
        ['a row that does not exist', 'nobody', { owner: 'ann', epoch: 1 }],
      ])('P10: changes nothing for %s', async (_, token, ownership) => {
        await runningRoot()
        const before = await everything()
        expect(await table.finish(token, ownership, at(9), null)).toBe(false)
        expect(await everything()).toEqual(before)
      })
    })

    describe('release', () => {
      test('gives up all leases of the owner and changes nothing else', async () => {
        const ann = await runningRoot()
        await table.addChildren(ROOT_TOKEN, ann, [child('a')], LEASE_MS)
        const before = await everything()
        await table.release('ann')
        expect(await everything()).toEqual(before.map((r) => ({ ...r, owner: null, leaseUntilMs: 0 })))
      })

      test('leaves what others hold', async () => {
        await runningRoot()
        const before = await everything()
        await table.release('bob')
        expect(await everything()).toEqual(before)
      })

      test('lets another owner take over at once', async () => {
        await runningRoot()
        await table.release('ann')
        expect(await table.claim('bob', LEASE_MS)).toMatchObject([{ owner: 'bob', epoch: 2 }])
      })
    })

    describe('writes at the same time', () => {
      test('P2: all take effect, and none undoes another', async () => {
        const ann = await runningRoot()
        const tokens = Array.from({ length: 12 }, (_, i) => `t${i}`)
        await table.addChildren(
          ROOT_TOKEN,
          ann,
          tokens.map((token) => child(token)),
          LEASE_MS,
        )
        const live = async (token: string): Promise<unknown[]> => [
          await table.advance(token, ann, 'CREATED', 'RUNNING'),
          (await table.addChildren(token, ann, [child(`${token}-child`, token)], LEASE_MS))?.length,
          await table.checkpoint('ann', [{ token, epoch: 1, ...at(5, 'x') }], LEASE_MS),
          await table.finish(token, ann, at(9, token), null),
        ]
        const renew = (): Promise<string[]> => table.checkpoint('ann', [], LEASE_MS)
        const [lives, renewals] = await Promise.all([
          Promise.all(tokens.map(live)),
          Promise.all(Array.from({ length: 8 }, renew)),
        ])
        expect(lives).toEqual(tokens.map(() => [true, 1, [], true]))
        expect(renewals.flat()).toEqual([])
        for (const token of tokens) {
          expect(await row(token)).toMatchObject({ state: 'FINISHED', owner: null, leaseUntilMs: 0, ...at(9, token) })
        }
        expect(await table.list()).toHaveLength(25)
      })
    })

    describe('ownership', () => {
      test.each([
        ['another owner took over', 'bob'],
        ['the same owner came back in a new epoch', 'ann'],
      ])('P10: a stale owner changes nothing, whatever it writes, after %s', async (_, next) => {
        const stale = await runningRoot()
        await table.addChildren(ROOT_TOKEN, stale, [child('a')], LEASE_MS)
        await table.release('ann')
        await table.claim(next, LEASE_MS)
        const before = await everything()

        expect(await table.createRoot(ROOT, 'ann', LEASE_MS)).toBe(false)
        expect(await table.addChildren(ROOT_TOKEN, stale, [child('b')], LEASE_MS)).toBeUndefined()
        expect(await table.advance('a', stale, 'CREATED', 'SCHEDULED')).toBe(false)
        const write = { token: ROOT_TOKEN, epoch: stale.epoch, ...at(9, 'x') }
        expect(await table.checkpoint('ann', [write], LEASE_MS)).toEqual([ROOT_TOKEN])
        expect(await table.finish(ROOT_TOKEN, stale, at(9), null)).toBe(false)
        if (next !== 'ann') await table.release('ann')

        expect(await everything()).toEqual(before)
      })

      test('P10: a stale owner learns of every row that it lost', async () => {
        const ann = await runningRoot()
        await table.addChildren(ROOT_TOKEN, ann, [child('a')], LEASE_MS)
        await table.advance('a', ann, 'CREATED', 'RUNNING')
        nowMs += LEASE_MS
        await table.claim('bob', LEASE_MS)
        const writes = [ROOT_TOKEN, 'a'].map((token) => ({ token, epoch: 1, ...at(9) }))
        expect(await table.checkpoint('ann', writes, LEASE_MS)).toEqual([ROOT_TOKEN, 'a'])
      })

      test('an expired lease takes nothing away as long as nobody claims', async () => {
        await table.createRoot(ROOT, 'ann', LEASE_MS)
        nowMs += LEASE_MS * 10
        const ann = { owner: 'ann', epoch: 1 }
        expect(await table.advance(ROOT_TOKEN, ann, 'CREATED', 'RUNNING')).toBe(true)
        expect(await table.addChildren(ROOT_TOKEN, ann, [child('a')], LEASE_MS)).toHaveLength(1)
        expect(await table.finish(ROOT_TOKEN, ann, at(9), null)).toBe(true)
      })
    })

    describe('names', () => {
      test('keep pipelines apart', async () => {
        const ann = await runningRoot()
        await table.addChildren(ROOT_TOKEN, ann, [child('a')], LEASE_MS)
        const before = await everything()
        const other = await store.open('payments')
        expect(await other.list()).toEqual([])
        expect(await other.get(ROOT_TOKEN)).toBeUndefined()
        expect(await other.claim('bob', LEASE_MS)).toEqual([])
        expect(await other.addChildren(ROOT_TOKEN, ann, [child('b')], LEASE_MS)).toBeUndefined()
        expect(await other.advance(ROOT_TOKEN, ann, 'RUNNING', 'CREATED')).toBe(false)
        expect(await other.finish(ROOT_TOKEN, ann, at(9), null)).toBe(false)
        expect(await other.createRoot({ ...ROOT, start: time(3) }, 'ann', LEASE_MS)).toBe(true)
        nowMs += 1
        const write = { token: 'a', epoch: 1, ...at(9) }
        expect(await other.checkpoint('ann', [write], LEASE_MS)).toEqual(['a'])
        await other.release('ann')
        expect(await everything()).toEqual(before)
        expect(await other.list()).toMatchObject([{ token: ROOT_TOKEN, start: time(3) }])
      })

      test('lead two tables of one name to the same rows', async () => {
        const ann = await runningRoot()
        const other = await store.open('orders')
        expect(await other.list()).toEqual(await table.list())
        await other.finish(ROOT_TOKEN, ann, at(9), null)
        expect((await row(ROOT_TOKEN)).state).toBe('FINISHED')
      })

      test.each(['__proto__', 'constructor', `'); DROP TABLE partitions; --`, 'a"b\\c', '%_*', 'naïve 🦀 分区', ''])(
        'and tokens may be %j',
        async (odd) => {
          const oddTable = await store.open(odd)
          const root = { token: odd, parentTokens: [], start: time(1) }
          expect(await oddTable.createRoot(root, odd, LEASE_MS)).toBe(true)
          const own = { owner: odd, epoch: 1 }
          expect(await oddTable.advance(odd, own, 'CREATED', 'RUNNING')).toBe(true)
          const inserted = await oddTable.addChildren(odd, own, [child(`${odd}2`, odd, odd), child('none')], LEASE_MS)
          expect(inserted?.map((r) => r.parentTokens)).toEqual([[odd, odd], [ROOT_TOKEN]])
          expect(await oddTable.checkpoint(odd, [{ token: odd, epoch: 1, ...at(5, odd) }], LEASE_MS)).toEqual([])
          expect(await oddTable.get(odd)).toMatchObject({ token: odd, owner: odd, boundaryIds: [odd] })
          expect(await table.list()).toEqual([])
        },
      )
    })

    describe('close', () => {
      test('may be called twice, and the store opened again with its rows', async () => {
        await runningRoot()
        const before = await everything()
        await store.close()
        await store.close()
        expect(await (await store.open('orders')).list()).toEqual(before)
      })
    })
  })
}

const LEASE_MS = 10_000
const ROOT: NewPartition = { token: ROOT_TOKEN, parentTokens: [], start: time(1) }

function child(token: string, ...parents: string[]): NewPartition {
  return { token, parentTokens: parents.length > 0 ? parents : [ROOT_TOKEN], start: time(2) }
}

function at(second: number, ...boundaryIds: string[]): { watermark: string; boundaryIds: string[] } {
  return { watermark: time(second), boundaryIds }
}

function time(second: number): string {
  return `2026-11-18T09:30:${String(second).padStart(2, '0')}.000000001Z`
}

function byToken(a: Partition, b: Partition): number {
  return a.token < b.token ? -1 : 1
}
