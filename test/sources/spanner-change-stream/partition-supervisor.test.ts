import { describe, expect, test } from 'vitest'
import { sleep } from '../../../src/core/clock.ts'
import { StoreError } from '../../../src/core/errors.ts'
import { timestampFromMs } from '../../../src/model/commit-timestamp.ts'
import { SimulatedStream } from '../../../src/simulator/index.ts'
import { memoryPartitionStore } from '../../../src/stores/index.ts'
import {
  at,
  broken,
  children,
  data,
  failed,
  heartbeat,
  Probe,
  type ProbeOptions,
  part,
  roots,
  type Script,
  ScriptedStream,
  simulate,
  withTable,
} from './scripted-stream.ts'

describe('PartitionSupervisor', () => {
  test('P4: a child of a merge waits for both parents', () =>
    simulate(async (clock) => {
      const merge = part(children(50, { merged: ['a', 'b'] }))
      const b = Promise.withResolvers<void>()
      const stream = new ScriptedStream(clock, {
        root: roots('a', 'b'),
        a: [[merge, 'end']],
        b: [[{ until: b.promise }, part(data(40, 'of b')), merge, 'end']],
        merged: [[part(data(60, 'of the child'))]],
      })
      const probe = new Probe(clock, stream)
      await probe.until(async () => (await probe.states()).a === 'FINISHED')
      expect(await probe.states()).toMatchObject({ merged: 'CREATED', b: 'RUNNING' })
      expect(stream.tokens).not.toContain('merged')

      b.resolve()
      await probe.until(() => probe.ids.includes('of the child'))
      expect(probe.ids).toEqual(['of b', 'of the child'])
      expect(stream.queriesOf('merged')[0]!.start).toBe(at(50))
      await probe.run.close()
    }))

  test('P4: a child waits for a parent that is announced later than itself', () =>
    simulate(async (clock) => {
      const b = Promise.withResolvers<void>()
      const stream = new ScriptedStream(clock, {
        root: roots('a', 'b'),
        a: [[part(children(50, { merged: ['a', 'late'] })), 'end']],
        b: [[{ until: b.promise }, part(children(30, { late: ['b'] })), 'end']],
        late: [[part(data(45, 'of the late parent')), part(children(50, { merged: ['a', 'late'] })), 'end']],
        merged: [[part(data(60, 'of the child'))]],
      })
      const probe = new Probe(clock, stream)
      await probe.until(async () => (await probe.states()).a === 'FINISHED')
      await sleep(clock, 1000)
      expect(stream.tokens).not.toContain('merged')
      b.resolve()
      await probe.until(() => probe.ids.includes('of the child'))
      expect(probe.ids).toEqual(['of the late parent', 'of the child'])
      await probe.run.close()
    }))

  test('P4: a child waits until the last delivery of its parent is settled', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [[part(data(10, 'one'), data(20, 'two')), part(children(50, { child: ['a'] })), 'end']],
      })
      const probe = new Probe(clock, stream, { acksAll: false })
      await probe.until(async () => 'child' in (await probe.states()) && probe.taken.length === 2)
      probe.delivery('two').ack()
      await sleep(clock, 5000)
      expect(await probe.states()).toMatchObject({ a: 'RUNNING', child: 'CREATED' })
      expect((await (await probe.table()).get('a'))!.watermark < at(20)).toBe(true)
      expect(stream.tokens).not.toContain('child')

      probe.delivery('one').ack()
      await probe.until(() => stream.tokens.includes('child'))
      expect(await probe.states()).toMatchObject({ a: 'FINISHED' })
      await probe.run.close()
    }))

  test('P4: after a restart a child waits for what its parent delivered and nobody settled', () =>
    simulate(async (clock) => {
      const script: Script = {
        root: roots('a'),
        a: [[part(data(10, 'one')), part(children(50, { child: ['a'] })), 'end']],
      }
      const first = new Probe(clock, new ScriptedStream(clock, script), { acksAll: false })
      await first.until(async () => 'child' in (await first.states()) && first.taken.length === 1)
      await first.run.close()

      const stream = new ScriptedStream(clock, script)
      const second = new Probe(clock, stream, { acksAll: false, store: first.store, owner: 'second' })
      await second.until(() => second.taken.length === 1)
      await sleep(clock, 1000)
      expect(stream.tokens).toEqual(['a'])
      second.delivery('one').ack()
      await second.until(() => stream.tokens.includes('child'))
      await second.run.close()
    }))

  test.each(['late', 'lost'] as const)(
    'P1: children are stored before their parent ends, also when the answer is %s',
    (how) =>
      simulate(async (clock) => {
        const stream = new ScriptedStream(clock, {
          root: roots('a'),
          a: [[part(data(10, 'one'), heartbeat(40)), part(children(50, { child: ['a'] })), 'end']],
          child: [[part(data(60, 'two'))]],
        })
        const answered = Promise.withResolvers<void>()
        const store = withTable(memoryPartitionStore({ clock }), (table) => {
          let isLost = false
          return {
            async addChildren(parent, ownership, rows, leaseMs) {
              if (parent === 'root') return table.addChildren(parent, ownership, rows, leaseMs)
              if (how === 'late') await answered.promise
              const inserted = await table.addChildren(parent, ownership, rows, leaseMs)
              if (how === 'late' || isLost) return inserted
              isLost = true
              throw new StoreError('the answer is lost', { retryable: true })
            },
          }
        })
        const probe = new Probe(clock, stream, { store })
        if (how === 'late') {
          await probe.until(() => probe.taken.length === 1)
          await sleep(clock, 5000)
          const { state, watermark } = (await (await probe.table()).get('a'))!
          expect({ state, watermark }).toEqual({ state: 'RUNNING', watermark: at(40) })
          answered.resolve()
        }
        await probe.until(() => probe.ids.includes('two'))
        expect(probe.ids).toEqual(['one', 'two'])
        expect(stream.queriesOf('child')).toHaveLength(1)
        await probe.run.close()
      }),
  )

  test('P4 P5: who was read to its end and not stored as finished is finished by the next run, whose query is too late', () =>
    simulate(async (clock) => {
      const end = part(data(10, 'one'), children(20, { b: ['a'] }))
      const first = new Probe(clock, new ScriptedStream(clock, { root: roots('a'), a: [[end, 'end']] }), {
        acksAll: false,
      })
      await first.until(() => first.taken.length === 1)
      await sleep(clock, 2000)
      // Settled after the reading was stopped: progress reaches the end, and nobody is there to finish the partition.
      first.run.drain()
      await first.ended
      first.delivery('one').ack()
      await first.run.close()
      expect(await (await first.table()).get('a')).toMatchObject({ state: 'RUNNING', watermark: at(20) })

      const stream = new ScriptedStream(clock, { a: [[failed('OUT_OF_RANGE')]] })
      const second = new Probe(clock, stream, { store: first.store, owner: 'second' })
      await second.until(() => stream.tokens.includes('b'))
      expect(stream.queriesOf('a').map(({ start }) => start)).toEqual([at(20)])
      expect(await second.states()).toMatchObject({ a: 'FINISHED', b: 'RUNNING' })
      await second.run.close()
    }))

  test('when all partitions are finished, the next run ends at once and makes no new root', () =>
    simulate(async (clock) => {
      const script = { root: roots('a'), a: [[part(data(10, 'one'), heartbeat(60))]] }
      const first = new Probe(clock, new ScriptedStream(clock, script), { source: { end: at(50) } })
      await first.ended
      await first.run.close()

      const stream = new ScriptedStream(clock, script)
      const second = new Probe(clock, stream, { source: { end: at(50) }, store: first.store, owner: 'second' })
      await second.ended
      expect(second.taken).toEqual([])
      expect(stream.queries).toEqual([])
      expect(await second.states()).toEqual({ root: 'FINISHED', a: 'FINISHED' })
      await second.run.close()
    }))

  test('P1: a run with a later end reads on where the earlier one ended', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [
          [part(data(40, 'before'), data(50, 'at the end'), data(51, 'behind'))],
          [part(data(50, 'at the end'), data(50, 'tie'), data(51, 'behind'), data(99, 'far behind'))],
        ],
      })
      const first = new Probe(clock, stream, { source: { end: at(50) } })
      await first.ended
      await first.run.close()
      const second = new Probe(clock, stream, { source: { end: at(80) }, store: first.store, owner: 'second' })
      await second.ended
      expect(first.ids).toEqual(['before', 'at the end'])
      // The end is inclusive: what was committed at that very time and came late is not lost.
      expect(second.ids).toEqual(['tie', 'behind'])
      expect(stream.queries.map(({ of, start }) => [of, start])).toEqual([
        ['root', at(0)],
        ['a', at(0)],
        ['a', at(50)],
      ])
      expect((await (await second.table()).get('a'))!).toMatchObject({ state: 'FINISHED', watermark: at(80) })
      await second.run.close()
    }))

  test('P1 P4: a run without the end reads on, into the children that begin behind it', () =>
    simulate(async (clock) => {
      const split = part(children(60, { left: ['a'], right: ['a'] }))
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [
          [part(data(40, 'before')), split],
          [part(data(55, 'behind')), split, 'end'],
        ],
        left: [[part(data(70, 'of the left'))]],
        right: [[part(data(71, 'of the right'))]],
      })
      const first = new Probe(clock, stream, { source: { end: at(50) } })
      await first.ended
      await first.run.close()
      expect(await first.states()).toEqual({ root: 'FINISHED', a: 'FINISHED' })

      const second = new Probe(clock, stream, { store: first.store, owner: 'second' })
      await second.until(() => second.taken.length === 3)
      expect(second.ids.toSorted()).toEqual(['behind', 'of the left', 'of the right'])
      expect(second.ids[0]).toBe('behind')
      await second.run.close()
    }))

  test('P1: a bounded run that was stopped half-way is read on in all partitions, whatever the end now', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('done', 'open'),
        done: [[part(heartbeat(51))], [part(data(60, 'behind in the one'))]],
        open: [[part(data(40, 'before'))], [part(data(40, 'before'), data(61, 'behind in the other'))]],
      })
      const first = new Probe(clock, stream, { source: { end: at(50) }, acksAll: false })
      await first.until(async () => (await first.states()).done === 'FINISHED' && first.taken.length === 1)
      await first.run.close()
      expect(await first.states()).toMatchObject({ done: 'FINISHED', open: 'RUNNING' })

      const second = new Probe(clock, stream, { store: first.store, owner: 'second' })
      await second.until(() => second.taken.length === 3)
      expect(second.ids.toSorted()).toEqual(['before', 'behind in the one', 'behind in the other'])
      await second.run.close()
    }))

  test('P12: an end that lies before the start is refused, also if the start is now', () =>
    simulate(async (clock) => {
      await sleep(clock, 5000)
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const source = { start: undefined, end: at(50) } as unknown as { readonly end: string }
      const probe = new Probe(clock, stream, { source })
      await expect(probe.ended).rejects.toMatchObject({
        name: 'ConfigError',
        message: expect.stringContaining(`end ${at(50)}`),
        hint: expect.stringContaining('start'),
      })
      await probe.run.close()
      expect(stream.queries).toEqual([])
      // Nothing is stored that would fix the wrong start for later runs.
      expect(await probe.states()).toEqual({})
    }))

  test('P12: a start that cannot be read is stored: the hint says that a better one needs another name', () =>
    simulate(async (clock) => {
      const createdAt = timestampFromMs(clock.now() - 3_600_000)
      const stream = new SimulatedStream({ seed: 1, clock, stream: 'S', createdAt })
      const run = (start: string, context: ProbeOptions = {}): Probe =>
        new Probe(clock, stream.client(), { source: { start }, ...context })
      const first = run(timestampFromMs(clock.now() - 7_200_000))
      const error = await first.ended.catch((thrown: unknown) => thrown)
      expect(error).toMatchObject({ code: 'CONFIG_INVALID', hint: expect.stringContaining('under another name') })
      await first.run.close()

      const { store } = first
      const sameName = run(createdAt, { store })
      await expect(sameName.ended).rejects.toMatchObject({ code: 'CONFIG_INVALID' })
      await sameName.run.close()
      const otherName = run(createdAt, { store, pipeline: 'other' })
      await otherName.until(() => otherName.run.status().finishedPartitions === 1)
      await otherName.run.close()
    }))

  test('an end that lies before now is fine where progress is stored', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [[part(data(10, 'one'))], [part(data(20, 'two'), heartbeat(99))]],
      })
      const first = new Probe(clock, stream)
      await first.until(() => first.taken.length === 1)
      await first.run.close()
      await sleep(clock, 5000)
      const source = { start: undefined, end: at(50) } as unknown as { readonly end: string }
      const second = new Probe(clock, stream, { source, store: first.store, owner: 'second' })
      await second.ended
      expect(second.ids).toEqual(['two'])
      await second.run.close()
    }))

  test('P1: progress counts also if the row of the root is gone', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [[part(data(10, 'one'))], [part(data(20, 'two'), heartbeat(99))]],
      })
      const first = new Probe(clock, stream)
      await first.until(() => first.taken.length === 1)
      await first.run.close()
      await sleep(clock, 5000)
      const store = withTable(first.store, (table) => ({
        get: async (token) => (token === 'root' ? undefined : table.get(token)),
        list: async () => (await table.list()).filter(({ token }) => token !== 'root'),
      }))
      const source = { start: undefined, end: at(50) } as unknown as { readonly end: string }
      const second = new Probe(clock, stream, { source, store, owner: 'second' })
      await second.ended
      expect(second.ids).toEqual(['two'])
      await second.run.close()
    }))

  test('a restart does not look at what is long finished', () =>
    simulate(async (clock) => {
      const script: Script = {
        root: roots('a', 'b'),
        a: [[part(children(30, { left: ['a'], right: ['a'] })), 'end']],
        b: [[part(data(35, 'of b')), part(children(50, { merged: ['b', 'right'] })), 'end']],
        left: [[part(data(40, 'of the left'))]],
        right: [[part(data(45, 'of the right'))]],
      }
      const first = new Probe(clock, new ScriptedStream(clock, script))
      await first.until(async () => (await first.states()).b === 'FINISHED' && first.taken.length === 3)
      await first.run.close()
      expect(await first.states()).toMatchObject({ a: 'FINISHED', b: 'FINISHED', right: 'RUNNING', merged: 'CREATED' })
      const asked: string[] = []
      const store = withTable(first.store, (table) => ({
        list: () => Promise.reject(new Error('all rows are listed')),
        get(token) {
          asked.push(token)
          return table.get(token)
        },
      }))
      const stream = new ScriptedStream(clock, {
        ...script,
        right: [[part(children(50, { merged: ['b', 'right'] })), 'end']],
        merged: [[part(data(60, 'of the child'))]],
      })
      const second = new Probe(clock, stream, { store, owner: 'second' })
      await second.until(() => second.ids.includes('of the child'))
      expect(asked).toEqual(['b'])
      expect(stream.tokens.toSorted()).toEqual(['left', 'merged', 'right'])
      await second.run.close()
    }))

  test('P1: the first partitions start, also if they carry parents from before the start', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: [[part(children(0, { a: ['long', 'gone'], b: [] })), 'end']],
        a: [[part(data(10, 'one'))]],
        b: [[part(data(20, 'two'))]],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.taken.length === 2)
      expect(probe.ids.toSorted()).toEqual(['one', 'two'])
      await probe.run.close()
    }))

  test('a child that is read to its end while its parents are looked up is not started again', () =>
    simulate(async (clock) => {
      const c = Promise.withResolvers<void>()
      const store = withTable(memoryPartitionStore({ clock }), (table) => {
        let lookups = 0
        return {
          async get(token) {
            const row = await table.get(token)
            if (token === 'c' && lookups++ === 0) await c.promise
            return row
          },
        }
      })
      const looked = Promise.withResolvers<void>()
      const stream = new ScriptedStream(clock, {
        root: roots('a', 'b'),
        // Its parents are others: the announcing partition does not hold it back.
        a: [[part(children(30, { child: ['b', 'c'] })), 'end']],
        b: [[{ until: looked.promise }, part(children(20, { c: ['b'] })), 'end']],
        c: [[part(children(30, { child: ['b', 'c'] })), 'end']],
        child: [[part(data(40, 'one')), part(heartbeat(99))]],
      })
      const probe = new Probe(clock, stream, { store, source: { end: at(50) } })
      await probe.until(() => probe.run.status().partitions.some(({ token }) => token === 'child'))
      looked.resolve()
      await probe.until(async () => (await probe.states()).child === 'FINISHED')
      c.resolve()
      await probe.ended
      expect(stream.queriesOf('child')).toHaveLength(1)
      expect(probe.run.status().finishedPartitions).toBe(5)
      await probe.run.close()
    }))

  test('maxPartitions reads so many at a time, and the others wait their turn in order', () =>
    simulate(async (clock) => {
      const end = (token: string): Promise<void> => gates[token]!.promise
      const gates: Record<string, PromiseWithResolvers<void>> = {
        a: Promise.withResolvers(),
        b: Promise.withResolvers(),
        c: Promise.withResolvers(),
      }
      const ending = (token: string) => [[{ until: end(token) }, part(heartbeat(99))]]
      const stream = new ScriptedStream(clock, {
        root: roots('a', 'b', 'c', 'd'),
        a: ending('a'),
        b: ending('b'),
        c: ending('c'),
        d: [[part(heartbeat(99))]],
      })
      const probe = new Probe(clock, stream, { source: { maxPartitions: 2, end: at(50) } })
      await probe.until(() => stream.open === 2)
      await sleep(clock, 1000)
      expect(stream.tokens).toEqual(['root', 'a', 'b'])
      expect(probe.warnings).toMatchObject([{ message: expect.stringContaining('raise maxPartitions') }])
      gates.b!.resolve()
      await probe.until(() => stream.tokens.length === 4)
      expect(stream.tokens.at(-1)).toBe('c')
      expect(stream.open).toBe(2)
      gates.a!.resolve()
      gates.c!.resolve()
      await probe.ended
      expect(stream.tokens).toEqual(['root', 'a', 'b', 'c', 'd'])
      await probe.run.close()
    }))

  test('partitions that never end share the places in turns: none waits for ever, and nothing is lost or repeated', () =>
    simulate(async (clock) => {
      const busy = (token: string) => (turn: number) =>
        Array.from({ length: 40 }, (_, i) => ({
          afterMs: 500,
          part: part(data(1000 * turn + i + 1, `${token}${turn}-${i}`, [token], token)),
        }))
      const turns = (token: string) => Array.from({ length: 9 }, (_, turn) => busy(token)(turn))
      const stream = new ScriptedStream(clock, {
        root: roots('a', 'b', 'c'),
        a: turns('a'),
        b: turns('b'),
        c: turns('c'),
      })
      const probe = new Probe(clock, stream, { source: { maxPartitions: 1 } })
      await probe.until(() => ['a', 'b', 'c'].every((token) => stream.queriesOf(token).length >= 3))
      const order = stream.queries.map(({ of }) => of)
      expect(order.slice(0, 10)).toEqual(['root', 'a', 'b', 'c', 'a', 'b', 'c', 'a', 'b', 'c'])
      expect(stream.open).toBeLessThanOrEqual(1)
      expect(new Set(probe.ids).size).toBe(probe.ids.length)
      // Each turn goes on where the one before it stood.
      const [first, second] = stream.queriesOf('a')
      expect(second!.start > first!.start).toBe(true)
      await probe.run.close()
    }))

  test('a partition that fails again and again leaves its place to the others', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a', 'b'),
        a: Array.from({ length: 500 }, () => [broken()]),
        b: [[part(data(70, 'one', ['k'], 'b'))]],
      })
      const probe = new Probe(clock, stream, { source: { maxPartitions: 1 } })
      await probe.until(() => probe.taken.length === 1)
      await probe.run.close()
    }))

  test('a turn brings something new, however slow the server is', () =>
    simulate(async (clock) => {
      // Two records of one time: a turn that ends behind the first would begin with it again.
      const slow = [
        { afterMs: 5500, part: part(data(70, 'one')) },
        { afterMs: 100, part: part(data(70, 'two')) },
      ]
      const stream = new ScriptedStream(clock, {
        root: roots('a', 'b'),
        a: Array.from({ length: 50 }, () => slow),
        b: Array.from({ length: 50 }, (_, turn) => [
          { afterMs: 5500, part: part(data(turn + 1, `b${turn}`, ['b'], 'b')) },
        ]),
      })
      const probe = new Probe(clock, stream, { source: { maxPartitions: 1, heartbeatMs: 10_000 } })
      await probe.until(() => probe.ids.includes('two'))
      await probe.run.close()
    }))

  test('P8: announced partitions hold the low watermark', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a', 'b'),
        a: [[part(children(50, { merged: ['a', 'b'] })), 'end']],
        b: [[part(heartbeat(80))]],
      })
      const probe = new Probe(clock, stream)
      await probe.until(async () => (await probe.states()).a === 'FINISHED')
      await probe.until(() => probe.run.status().partitions.find(({ token }) => token === 'b')?.watermark === at(80))
      expect(probe.run.status().lowWatermark).toBe(at(50))
      await probe.run.close()
    }))

  test('P10: two runs on one store: the second stands by, names the holder, and takes over when the first is closed', () =>
    simulate(async (clock) => {
      const first = new Probe(clock, new ScriptedStream(clock, { root: roots('a'), a: [[part(data(10, 'one'))]] }))
      await first.until(() => first.taken.length === 1)
      const stream = new ScriptedStream(clock, { a: [[part(data(10, 'one'), data(20, 'two'))]] })
      const second = new Probe(clock, stream, { store: first.store, owner: 'second' })
      await second.until(() => second.run.status().standbyFor !== undefined)
      expect(second.run.status().standbyFor).toBe('probe')
      await sleep(clock, 60_000)
      expect(stream.queries).toEqual([])

      await first.run.close()
      await second.until(() => second.taken.length === 1)
      expect(second.ids).toEqual(['two'])
      expect(second.run.status().standbyFor).toBeUndefined()
      await second.run.close()
    }))

  test('P10: with keepLeases the next run waits until they run out', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const first = new Probe(clock, stream, { leaseMs: 10_000 })
      await first.until(() => stream.tokens.includes('a'))
      await first.run.close({ keepLeases: true })
      const closedAtMs = clock.now()
      const second = new Probe(clock, stream, { store: first.store, owner: 'second' })
      await second.until(() => stream.queriesOf('a').length === 2)
      expect(clock.now() - closedAtMs).toBeGreaterThanOrEqual(10_000)
      await second.run.close()
    }))

  test("P10: onHeld 'exit' fails at once and names the holder", () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const first = new Probe(clock, stream)
      await first.until(() => stream.tokens.includes('a'))
      const second = new Probe(clock, stream, { store: first.store, owner: 'second', onHeld: 'exit' })
      await expect(second.ended).rejects.toMatchObject({
        code: 'ENVIRONMENT',
        message: expect.stringContaining('already run by probe'),
      })
      await second.run.close()
      await first.run.close()
    }))

  test('P10: a run whose partition was taken over stops with STORE_CONFLICT and changes nothing', () =>
    simulate(async (clock) => {
      const beats = Array.from({ length: 50 }, (_, n) => ({ afterMs: 1000, part: part(heartbeat(10 + n)) }))
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [beats] })
      const probe = new Probe(clock, stream)
      await probe.until(() => stream.tokens.includes('a'))
      const table = await probe.table()
      await table.release('probe')
      await table.claim('other', 1e9)
      const before = await table.list()
      await expect(probe.ended).rejects.toMatchObject({ name: 'StoreError', code: 'STORE_CONFLICT' })
      await expect(probe.run.close()).rejects.toMatchObject({ code: 'STORE_CONFLICT' })
      expect(await table.list()).toEqual(before)
    }))

  test('a store that fails for a while is tried again', () =>
    simulate(async (clock) => {
      let failures = 5
      const store = withTable(memoryPartitionStore({ clock }), (table) => ({
        async advance(...args) {
          if (failures-- > 0) throw new StoreError('down', { retryable: true })
          return await table.advance(...args)
        },
      }))
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [[part(data(10, 'one'))]] })
      const probe = new Probe(clock, stream, { store })
      await probe.until(() => probe.taken.length === 1)
      expect(probe.warnings.some(({ message }) => message.includes('partition store failed'))).toBe(true)
      await probe.run.close()
    }))
})
