import { describe, expect, test } from 'vitest'
import { sleep } from '../../../src/core/clock.ts'
import { timestampToMs } from '../../../src/model/commit-timestamp.ts'
import { SimulatedStream, type VirtualClock } from '../../../src/simulator/index.ts'
import { memoryPartitionStore } from '../../../src/stores/index.ts'
import {
  at,
  data,
  endOf,
  heartbeat,
  moved,
  Probe,
  part,
  type Script,
  ScriptedStream,
  simulate,
  start,
  withTable,
} from './scripted-stream.ts'

const mutable = (clock: VirtualClock, script: Script): ScriptedStream =>
  new ScriptedStream(clock, script, { mode: 'mutable' })
const firstPartitions = (...tokens: string[]) => [[part(start(0, ...tokens)), 'end' as const]]

describe('windows of mutable partitions', () => {
  test('every query has an end, at most 30 minutes ahead', () =>
    simulate(async (clock) => {
      const stream = mutable(clock, { root: firstPartitions('a'), a: [[part(heartbeat(5)), 'end']] })
      const probe = new Probe(clock, stream)
      await probe.until(() => stream.queriesOf('a').length === 2)
      for (const { end } of stream.queries) {
        expect(timestampToMs(end!)).toBeGreaterThan(clock.now())
        expect(timestampToMs(end!)).toBeLessThan(clock.now() + 30 * 60_000)
      }
      await probe.run.close()
    }))

  test('P1 P6: the next window begins at what was seen last: no gap if one ended early, no repeat at the border', () =>
    simulate(async (clock) => {
      const stream = mutable(clock, {
        root: firstPartitions('a'),
        a: [
          [part(data(10, 'one'), data(20, 'two')), 'end'],
          [part(data(20, 'two'), data(20, 'tie'), data(30, 'three'))],
        ],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.taken.length === 4)
      expect(stream.queriesOf('a').map(({ start }) => start)).toEqual([at(0), at(20)])
      expect(probe.ids).toEqual(['one', 'two', 'tie', 'three'])
      await probe.run.close()
    }))

  test('P8: a window is longer than a heartbeat: an idle partition shows its progress in each', () =>
    simulate(async (clock) => {
      const heartbeatMs = 300_000
      const stream = mutable(clock, { root: firstPartitions('a') })
      const probe = new Probe(clock, stream, { source: { heartbeatMs } })
      await probe.until(() => stream.queriesOf('a').length === 1)
      const endMs = timestampToMs(stream.queriesOf('a')[0]!.end!)
      expect(endMs).toBeGreaterThan(clock.now() + 2 * heartbeatMs)
      expect(endMs).toBeLessThan(clock.now() + 30 * 60_000)
      await probe.run.close()
    }))

  test('P5: the end of a window is no end of the partition, and no failure either', () =>
    simulate(async (clock) => {
      const quiet = Array.from({ length: 90 }, () => ({ afterMs: 2000, part: part() }))
      const stream = mutable(clock, {
        root: firstPartitions('a'),
        a: [[...quiet, 'end'], [part(data(10, 'x'))]],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.taken.length === 1)
      expect(probe.run.status().rereads).toBe(0)
      expect(await probe.states()).toMatchObject({ a: 'RUNNING' })
      await probe.run.close()
    }))

  test('P12: a clock so far ahead that the service refuses every window is named as a reason', () =>
    simulate(async (clock) => {
      const stream = new SimulatedStream({ seed: 1, clock, stream: 'S', mode: 'mutable' })
      const ahead = { now: () => clock.now() + 3_600_000, after: clock.after.bind(clock) }
      const probe = new Probe(clock, stream.client(), { clock: ahead })
      await expect(probe.ended).rejects.toMatchObject({
        status: 'INVALID_ARGUMENT',
        hint: expect.stringContaining('clock'),
      })
      await probe.run.close()
    }))

  test('P5: an end record is the evidence', () =>
    simulate(async (clock) => {
      const stream = mutable(clock, {
        root: firstPartitions('a'),
        a: [[part(data(10, 'one'), data(20, 'last'), endOf('a', 20))]],
      })
      const probe = new Probe(clock, stream)
      await probe.ended
      expect(probe.ids).toEqual(['one', 'last'])
      expect(await probe.states()).toEqual({ root: 'FINISHED', a: 'FINISHED' })
      expect(probe.run.status().lowWatermark).toBe(at(20))
      await probe.run.close()
    }))

  test("P5: the user's end is reached when something past it arrives", () =>
    simulate(async (clock) => {
      const stream = mutable(clock, {
        root: firstPartitions('a'),
        a: [[part(data(10, 'one'), moved(60, { to: ['b'] }), data(70, 'after'))]],
      })
      const probe = new Probe(clock, stream, { source: { end: at(50) } })
      await probe.ended
      expect(probe.ids).toEqual(['one'])
      await probe.run.close()
    }))
})

describe('start records', () => {
  test('P1 P8: a new partition is stored before the watermark passes its start, and begins beside the old one', () =>
    simulate(async (clock) => {
      const stream = mutable(clock, {
        root: firstPartitions('a'),
        a: [[part(data(10, 'one'), start(20, 'b'), heartbeat(30))]],
        b: [[part(data(25, 'two', ['two'], 'b'))]],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.taken.length === 2)
      expect(stream.queriesOf('b')[0]).toMatchObject({ start: at(20) })
      expect(await probe.states()).toMatchObject({ a: 'RUNNING', b: 'RUNNING' })
      await probe.run.close()
    }))

  test('P1: a new partition starts also when the row of the first query is no longer kept', () =>
    simulate(async (clock) => {
      const stream = mutable(clock, {
        root: firstPartitions('a'),
        a: [[{ afterMs: 1000, part: part(start(20, 'b'), heartbeat(30)) }]],
        b: [[part(data(25, 'two', ['two'], 'b'))]],
      })
      const store = withTable(memoryPartitionStore({ clock }), (table) => ({
        get: async (token) => (token === 'root' && clock.now() % 60_000 > 500 ? undefined : table.get(token)),
      }))
      const probe = new Probe(clock, stream, { store })
      await probe.until(() => probe.taken.length === 1)
      expect(probe.ids).toEqual(['two'])
      await probe.run.close()
    }))

  test('a partition that is announced twice is read once', () =>
    simulate(async (clock) => {
      const stream = mutable(clock, {
        root: firstPartitions('a', 'c'),
        a: [[part(start(20, 'b'), heartbeat(30))]],
        c: [[part(start(20, 'b'), heartbeat(30))]],
        b: [[part(data(25, 'two', ['two'], 'b'))]],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.taken.length === 1)
      await sleep(clock, 1000)
      expect(stream.queriesOf('b')).toHaveLength(1)
      await probe.run.close()
    }))
})

describe('the move-in barrier', () => {
  test('P3: what follows a move waits until the source has processed everything up to it', () =>
    simulate(async (clock) => {
      const release = Promise.withResolvers<void>()
      const stream = mutable(clock, {
        root: firstPartitions('source', 'target'),
        source: [
          [
            { until: release.promise },
            part(data(40, 'before', ['k'], 'source'), moved(50, { to: ['target'] }), heartbeat(60)),
          ],
        ],
        target: [
          [part(moved(50, { from: ['source'] }), data(55, 'after', ['k'], 'target'))],
          [part(moved(50, { from: ['source'] }), data(55, 'after', ['k'], 'target'))],
        ],
      })
      const probe = new Probe(clock, stream, { acksAll: false })
      await sleep(clock, 2000)
      expect(probe.ids).toEqual([])
      release.resolve()
      await probe.until(() => probe.ids.includes('before'))
      await sleep(clock, 2000)
      // Read is not enough: it must be settled.
      expect(probe.ids).toEqual(['before'])
      probe.delivery('before').ack()
      await probe.until(() => probe.ids.includes('after'))
      await probe.run.close()
    }))

  test('P3: a source that is finished holds nobody up', () =>
    simulate(async (clock) => {
      const stream = mutable(clock, {
        root: firstPartitions('source', 'other', 'target'),
        source: [[part(data(40, 'before', ['k'], 'source'), endOf('source', 50))]],
        target: [
          [{ afterMs: 1000, part: part(moved(50, { from: ['source'] }), data(55, 'after', ['k'], 'target')) }],
          [part(moved(50, { from: ['source'] }), data(55, 'after', ['k'], 'target'))],
        ],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.ids.includes('after'))
      expect(probe.ids).toEqual(['before', 'after'])
      await probe.run.close()
    }))

  test('P3: two partitions that exchange ranges at one time wait for each other and both go on', () =>
    simulate(async (clock) => {
      const left = part(data(40, 'l1', ['l'], 'a'), moved(50, { from: ['b'], to: ['b'] }), data(60, 'r2', ['r'], 'a'))
      const right = part(data(41, 'r1', ['r'], 'b'), moved(50, { from: ['a'], to: ['a'] }), data(61, 'l2', ['l'], 'b'))
      const stream = mutable(clock, {
        root: firstPartitions('a', 'b'),
        a: [[left], [left]],
        b: [[{ afterMs: 500, part: right }], [right]],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.taken.length === 4)
      expect(probe.ids.slice(0, 2).toSorted()).toEqual(['l1', 'r1'])
      expect(probe.ids.slice(2).toSorted()).toEqual(['l2', 'r2'])
      await probe.run.close()
    }))

  test('P3: a source that is not announced yet is waited for', () =>
    simulate(async (clock) => {
      const target = part(moved(50, { from: ['source'] }), data(55, 'after', ['k'], 'target'))
      const stream = mutable(clock, {
        root: firstPartitions('parent', 'target'),
        parent: [[{ afterMs: 1000, part: part(start(30, 'source'), heartbeat(60)) }]],
        source: [[part(data(40, 'before', ['k'], 'source'), moved(50, { to: ['target'] }), heartbeat(60))]],
        target: [[target], [target]],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.taken.length === 2)
      expect(probe.ids).toEqual(['before', 'after'])
      await probe.run.close()
    }))

  test('a source that nobody knows holds nobody up once all others are past the move', () =>
    simulate(async (clock) => {
      const target = part(moved(50, { from: ['gone'] }), data(55, 'after', ['k'], 'target'))
      const stream = mutable(clock, {
        root: firstPartitions('other', 'target'),
        other: [[{ afterMs: 1000, part: part(heartbeat(60)) }]],
        target: [[target], [target]],
      })
      const probe = new Probe(clock, stream)
      await sleep(clock, 500)
      expect(probe.ids).toEqual([])
      await probe.until(() => probe.taken.length === 1)
      await probe.run.close()
    }))

  test('P3: with one place for reading, who waits at a move leaves it to the source', () =>
    simulate(async (clock) => {
      const target = part(moved(50, { from: ['source'] }), data(55, 'after', ['k'], 'target'))
      const stream = mutable(clock, {
        root: firstPartitions('target', 'source'),
        source: [[part(data(40, 'before', ['k'], 'source'), moved(50, { to: ['target'] }), endOf('source', 60))]],
        target: [[target], [target]],
      })
      const probe = new Probe(clock, stream, { source: { maxPartitions: 1 } })
      await probe.until(() => probe.taken.length === 2)
      expect(probe.ids).toEqual(['before', 'after'])
      await probe.run.close()
    }))

  test('a source that has processed the move holds nobody up with what it handed out later', () =>
    simulate(async (clock) => {
      const target = part(moved(50, { from: ['source'] }), data(55, 'after', ['k'], 'target'))
      const source = part(data(40, 'before', ['k'], 'source'), moved(50, { to: ['target'] }), data(60, 'later', ['l']))
      const stream = mutable(clock, {
        root: firstPartitions('source', 'target'),
        source: [[source]],
        target: [[{ afterMs: 100, part: target }], [target]],
      })
      const probe = new Probe(clock, stream, { acksAll: false })
      await probe.until(() => probe.taken.length === 2)
      // Someone downstream holds 'later' until 'after' has come: it must not wait for 'later' in turn.
      probe.delivery('before').ack()
      await probe.until(() => probe.ids.includes('after'))
      await probe.run.close()
    }))

  test('several moves at one time are each waited for once', () =>
    simulate(async (clock) => {
      const moves = [moved(50, { from: ['x'], sequence: '1' }), moved(50, { from: ['y'], sequence: '2' })]
      const target = part(...moves, data(55, 'after', ['k'], 'target'))
      const stream = mutable(clock, {
        root: firstPartitions('x', 'y', 'slow', 'target'),
        x: [[part(endOf('x', 50))]],
        y: [[part(endOf('y', 50))]],
        target: [[{ afterMs: 1000, part: target }], ...Array.from({ length: 20 }, () => [target])],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.ids.includes('after'))
      expect(stream.queriesOf('target')).toHaveLength(3)
      await probe.run.close()
    }))

  test('P3: what follows a move is not stored as finished before its past is stored', () =>
    simulate(async (clock) => {
      const target = part(moved(50, { from: ['source'] }), data(55, 'after', ['k'], 'target'), endOf('target', 60))
      const stream = mutable(clock, {
        root: firstPartitions('source', 'target'),
        source: [[part(data(40, 'before', ['k'], 'source'), moved(50, { to: ['target'] }), heartbeat(60))]],
        target: [[{ afterMs: 100, part: target }], [target]],
      })
      // No tick comes in between.
      const probe = new Probe(clock, stream, { checkpointIntervalMs: 3_600_000, leaseMs: 10_800_000 })
      await probe.until(async () => (await probe.states()).target === 'FINISHED')
      expect((await (await probe.table()).get('source'))!.watermark >= at(50)).toBe(true)
      await probe.run.close()
    }))

  test('P3: after a restart the move is waited for again', () =>
    simulate(async (clock) => {
      const target = part(moved(50, { from: ['source'] }), data(55, 'after', ['k'], 'target'))
      const script = {
        root: firstPartitions('source', 'target'),
        target: [[target], [target]],
      }
      const first = new Probe(clock, mutable(clock, script))
      await sleep(clock, 3000)
      expect(first.ids).toEqual([])
      await first.run.close()

      const source = part(data(40, 'before', ['k'], 'source'), moved(50, { to: ['target'] }), heartbeat(60))
      const again = mutable(clock, { ...script, source: [[{ afterMs: 1000, part: source }]] })
      const second = new Probe(clock, again, { store: first.store })
      await second.until(() => second.taken.length === 2)
      expect(second.ids).toEqual(['before', 'after'])
      await second.run.close()
    }))
})
