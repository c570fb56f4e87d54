import { describe, expect, test } from 'vitest'
import { sleep } from '../../../src/core/clock.ts'
import { errorPolicy, skip } from '../../../src/core/error-policy.ts'
import { ClosedError, EnvironmentError, StoreError } from '../../../src/core/errors.ts'
import { isMark } from '../../../src/core/stage.ts'
import { MAX_TIMESTAMP, timestampFromMs } from '../../../src/model/commit-timestamp.ts'
import { randomWorkload, SimulatedStream } from '../../../src/simulator/index.ts'
import { spannerChangeStream } from '../../../src/sources/index.ts'
import { aloneContext } from '../../../src/sources/source.ts'
import { memoryPartitionStore, type PartitionStore } from '../../../src/stores/index.ts'
import { unhandledRejections } from '../../support/unhandled-rejections.ts'
import {
  type Answer,
  at,
  broken,
  children,
  data,
  heartbeat,
  Probe,
  part,
  roots,
  ScriptedStream,
  simulate,
  withTable,
} from './scripted-stream.ts'

describe('a store that cannot be had at the start', () => {
  test('P12: is an EnvironmentError with the message and hint of the store', () =>
    simulate(async (clock) => {
      const cause = new StoreError('the store is down', { retryable: true, hint: 'Start it.' })
      const store = { ...memoryPartitionStore({ clock }), open: () => Promise.reject(cause) }
      const probe = new Probe(clock, new ScriptedStream(clock, { root: roots('a') }), { store })
      await expect(probe.ended).rejects.toMatchObject({
        ...{ name: 'EnvironmentError', code: 'ENVIRONMENT', retryable: true },
        ...{ message: 'the store is down', hint: 'Start it.', cause },
      })
      await probe.run.close()
    }))

  test('P11: does not hold a drain', () =>
    simulate(async (clock) => {
      const asked = Promise.withResolvers<void>()
      const open = (): Promise<never> => {
        asked.resolve()
        return new Promise(() => undefined)
      }
      const store = { ...memoryPartitionStore({ clock }), open }
      const probe = new Probe(clock, new ScriptedStream(clock, { root: roots('a') }), { store })
      await asked.promise
      probe.run.drain()
      await probe.ended
      await probe.run.close()
    }))
})

describe('ChangeStreamRun', () => {
  test('P6: a drained run and its successor repeat nothing, also with ties at the boundary', () =>
    simulate(async (clock) => {
      const ties = [data(20, 'tie 1'), data(20, 'tie 2', ['x', 'y', 'z']), data(20, 'tie 3')]
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [[part(data(10, 'one'), ...ties)], [part(...ties, data(20, 'tie 4'), data(30, 'last'))]],
      })
      // Room for four: the first row of the second tie is the last one that the first run takes.
      const limits = { maxInFlight: 4, maxInFlightBytes: 1e6 }
      const first = new Probe(clock, stream, { acksAll: false, limits })
      await first.until(() => first.taken.length === 4)
      first.run.drain()
      await first.ended
      for (const delivery of first.taken) delivery.ack()
      await first.run.close()
      expect(await (await first.table()).get('a')).toMatchObject({
        watermark: at(20),
        boundaryIds: ['tie 1/00000000/0', 'tie 2/00000000/0', 'tie 2/00000000/1'],
        owner: null,
      })

      const second = new Probe(clock, stream, { store: first.store, owner: 'second' })
      await second.until(() => second.ids.includes('last'))
      expect(second.taken.map(({ id }) => id)).toEqual([
        'tie 2/00000000/2',
        'tie 3/00000000/0',
        'tie 4/00000000/0',
        'last/00000000/0',
      ])
      await second.run.close()
    }))

  test('P2: a checkpoint never passes what is open, and stores what is settled at its exact time', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [[part(data(10, 'one'), data(20, 'two'), data(20, 'tie'), heartbeat(30))]],
      })
      const probe = new Probe(clock, stream, { acksAll: false, settleTimeoutMs: 0 })
      const stored = async (): Promise<unknown> => {
        await sleep(clock, 2000)
        const { watermark, boundaryIds } = (await (await probe.table()).get('a'))!
        return [watermark, boundaryIds.length]
      }
      await probe.until(() => probe.taken.length === 3)
      probe.delivery('two').ack()
      expect(await stored()).toEqual([at(0), 0])
      probe.delivery('one').ack()
      expect(await stored()).toEqual([at(20), 1])
      probe.delivery('tie').ack()
      expect(await stored()).toEqual([at(30), 0])
      await probe.run.close()
    }))

  test('P8: heartbeats move the stored watermark of an idle stream', () =>
    simulate(async (clock) => {
      const beats = [100, 200, 300].map((nanos) => ({ afterMs: 2000, part: part(heartbeat(nanos)) }))
      const probe = new Probe(clock, new ScriptedStream(clock, { root: roots('a'), a: [beats] }))
      const seen = new Set<string>()
      await probe.until(async () => {
        seen.add((await (await probe.table()).get('a'))?.watermark ?? 'none')
        return seen.has(at(300))
      })
      expect([...seen]).toEqual(['none', at(0), at(100), at(200), at(300)])
      expect(probe.run.status().lowWatermark).toBe(at(300))
      await probe.run.close()
    }))

  test('P7 P8: a consumer that stands still for an hour finds one mark behind each thing that it has not taken', () =>
    simulate(async (clock) => {
      const beats = (from: number): Answer[] =>
        Array.from({ length: 1800 }, (_, n) => ({ afterMs: 1000, part: part(heartbeat(from + n)) }))
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [[part(data(10, 'one')), ...beats(1000), part(data(5000, 'two')), ...beats(6000)]],
      })
      const context = { ...aloneContext('still'), clock, store: memoryPartitionStore({ clock }) }
      const source = { database: 'projects/p/instances/i/databases/d', stream: 'S', start: at(0), client: stream }
      const run = spannerChangeStream(source).open({ ...context, settleTimeoutMs: 0 })
      const items = run.stream[Symbol.asyncIterator]()
      expect(await items.next()).toMatchObject({ value: { id: 'one/00000000/0' } })
      await sleep(clock, 3_605_000)

      const found: string[] = []
      while (found.at(-1) !== at(7799)) {
        const item = (await items.next()).value!
        found.push(isMark(item) ? item.timestamp : item.id)
      }
      expect(found).toEqual([expect.stringContaining('T00:00:00'), 'two/00000000/0', at(7799)])
      await run.close()
    }))

  test('a stream that cannot be reached for a moment at the start is tried again', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const describeStream = stream.describe.bind(stream)
      let asked = 0
      stream.describe = () => (++asked < 3 ? Promise.reject(unreachable()) : describeStream())
      const probe = new Probe(clock, stream)
      await probe.until(() => stream.tokens.includes('a'))
      expect(asked).toBe(3)
      await probe.run.close()
    }))

  test.each([
    ['cannot be reached at all', unreachable(), 4],
    ['is refused', new EnvironmentError('denied', { cause: { code: 7 } }), 1],
  ] as const)('P12: a stream that %s at the start ends the run with its error within seconds', (_, error, tries) =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {})
      let asked = 0
      stream.describe = () => {
        asked++
        return Promise.reject(error)
      }
      const begunMs = clock.now()
      const probe = new Probe(clock, stream)
      await expect(probe.ended).rejects.toBe(error)
      expect(asked).toBe(tries)
      expect(clock.now() - begunMs).toBeLessThan(2_500)
      await probe.run.close()
    }),
  )

  test('P11: a drain does not wait for a stream that cannot be reached', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {})
      let asked = 0
      stream.describe = () => {
        asked++
        return Promise.reject(unreachable())
      }
      const probe = new Probe(clock, stream)
      await probe.until(() => asked === 2)
      probe.run.drain()
      await probe.ended
      expect(asked).toBe(2)
      await probe.run.close()
    }))

  test('P8: the low watermark of a finished run is the end of its last partition', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [[part(heartbeat(60))]] })
      const probe = new Probe(clock, stream, { source: { end: at(50) } })
      await probe.ended
      expect(probe.run.status()).toMatchObject({ lowWatermark: at(50), finishedPartitions: 2, partitions: [] })
      await probe.run.close()
    }))

  test.each([1, 2, 3, 4, 5])('watermark marks never overtake what was committed before them (seed %i)', (seed) =>
    simulate(async (clock) => {
      const stream = new SimulatedStream({ seed, clock, initialPartitions: 3, tieChance: 0.3, stream: 'S' })
      stream.injectFaults({ errors: 0.05, earlyEnds: 0.02, duplicateTails: 0.3 })
      const probe = new Probe(clock, stream.client(), { source: { start: stream.createdAt, heartbeatMs: 500 } })
      await randomWorkload(stream, { seed, transactions: 200, pauseMs: 60, topologyChance: 0.1 })
      stream.heal()
      const end = stream.ledger.changes.at(-1)!.commitTimestamp
      // Nothing is committed any more: heartbeats alone must bring the marks past the end.
      await probe.until(() => (probe.marks.at(-1) ?? '') > end)
      await probe.run.close()

      expect(overtaken(probe, stream), `seed ${seed}`).toEqual([])
      expect(probe.marks).toEqual(probe.marks.toSorted())
      expect(probe.marks.length).toBeGreaterThan(3)
    }),
  )

  test('marks wait for an announced partition that is not read yet', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a', 'b'),
        a: [[part(data(10, 'one')), part(children(50, { merged: ['a', 'b'] })), 'end']],
        b: [[part(heartbeat(80))]],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.marks.includes(at(50)))
      await sleep(clock, 5000)
      expect(probe.marks.at(-1)).toBe(at(50))
      await probe.run.close()
    }))

  test.each<[string, number, Answer[], { readonly end?: string }, string]>([
    ['its children', 40, [part(children(50, { next: ['a'] })), 'end'], {}, at(50)],
    ["the user's end", 50, [part(heartbeat(60))], { end: at(50) }, MAX_TIMESTAMP],
  ])('marks pass a partition that was read up to %s while its last delivery is open', (_, last, ending, source, mark) =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [[part(data(last, 'one')), ...ending]] })
      const probe = new Probe(clock, stream, { acksAll: false, source })
      // Whoever holds 'one' until a mark says that everything of its time has come must not wait for ever.
      await sleep(clock, 2000)
      expect(probe.marks.at(-1)).toBe(mark)
      expect(await probe.states()).toMatchObject({ a: 'RUNNING' })
      await probe.run.close()
    }),
  )

  test.each(['warn', 'retry', 'stop'] as const)(
    "P7: a forgotten ack is reported by partition and id (onSettleTimeout '%s')",
    (onSettleTimeout) =>
      simulate(async (clock) => {
        const all = part(data(10, 'one'), data(20, 'two'), data(30, 'three'))
        const stream = new ScriptedStream(clock, { root: roots('a'), a: [[all], [all], [all]] })
        const probe = new Probe(clock, stream, {
          acksAll: false,
          settleTimeoutMs: 10_000,
          onSettleTimeout,
          source: { heartbeatMs: 300_000 },
        })
        await probe.until(() => probe.taken.length === 3)
        probe.delivery('one').ack()
        probe.delivery('three').ack()
        const named = 'change two/00000000/0 of partition a has not been settled for'

        if (onSettleTimeout === 'stop') {
          await expect(probe.ended).rejects.toMatchObject({
            code: 'SETTLE_TIMEOUT',
            message: expect.stringContaining(named),
          })
        } else {
          await probe.until(() => probe.warnings.length > 0)
          expect(probe.warnings[0]).toMatchObject({
            message: expect.stringContaining(named),
            fields: { partition: 'a', id: 'two/00000000/0' },
          })
        }
        await sleep(clock, 5000)
        // Everything behind the last settled position comes again, in order; what was settled there does not.
        const again = onSettleTimeout === 'retry' ? ['two', 'three'] : []
        expect(probe.ids).toEqual(['one', 'two', 'three', ...again])
        await probe.run.close()
      }),
  )

  test('P7: an ack that is forgotten again is reported and handed out again', () =>
    simulate(async (clock) => {
      const all = part(data(10, 'one'))
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [[all], [all], [all]] })
      const probe = new Probe(clock, stream, {
        acksAll: false,
        settleTimeoutMs: 10_000,
        onSettleTimeout: 'retry',
        source: { heartbeatMs: 300_000 },
      })
      await probe.until(() => probe.taken.length === 3)
      expect(probe.ids).toEqual(['one', 'one', 'one'])
      probe.taken[0]!.ack() // too late: it belongs to a reading that was given up
      expect(probe.run.status().settled).toBe(0)
      probe.taken[2]!.ack()
      expect(probe.run.status().settled).toBe(1)
      await probe.run.close()
    }))

  test('a skipped failure is settled, counted and logged without its value', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [[part(data(10, 'one', ['planted-key']))]] })
      const probe = new Probe(clock, stream, { acksAll: false, policy: errorPolicy(skip()) })
      await probe.until(() => probe.taken.length === 1)
      probe.delivery('one').nack(new Error('planted-value'))
      expect(probe.run.status()).toMatchObject({ skipped: 1, settled: 1, inFlight: 0 })
      expect(probe.warnings).toMatchObject([{ fields: { partition: 'a', id: 'one/00000000/0', error: 'Error' } }])
      expect(JSON.stringify(probe.warnings)).not.toContain('planted')
      await probe.run.close()
    }))

  test('P2: a failure that stops the run stays open, so that the next run gets it again', () =>
    simulate(async (clock) => {
      const script = { root: roots('a'), a: [[part(data(10, 'one'), data(20, 'two'))]] }
      const first = new Probe(clock, new ScriptedStream(clock, script), { acksAll: false })
      await first.until(() => first.taken.length === 2)
      first.delivery('one').ack()
      const failure = new Error('no')
      first.delivery('two').nack(failure)
      await expect(first.ended).rejects.toBe(failure)
      await first.run.close()
      const second = new Probe(clock, new ScriptedStream(clock, script), { store: first.store, owner: 'second' })
      await second.until(() => second.taken.length === 1)
      expect(second.ids).toEqual(['two'])
      await second.run.close()
    }))

  test('P11: a close while the store is being opened ends the run', () =>
    simulate(async (clock) => {
      const opened = Promise.withResolvers<void>()
      const memory = memoryPartitionStore({ clock })
      const store: PartitionStore = {
        ...memory,
        open: async (pipeline) => {
          await opened.promise
          return memory.open(pipeline)
        },
      }
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const probe = new Probe(clock, stream, { store })
      await sleep(clock, 100)
      const closed = probe.run.close()
      opened.resolve()
      await closed
      await expect(probe.ended).rejects.toBeInstanceOf(ClosedError)
      expect(stream.queries).toEqual([])
    }))

  test('P11: a drain before anything is read ends the stream', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const probe = new Probe(clock, stream)
      probe.run.drain()
      await probe.ended
      await probe.run.close()
      expect(stream.queries).toEqual([])
    }))

  test('P11: a drain while standing by ends the stream', () =>
    simulate(async (clock) => {
      const first = new Probe(clock, new ScriptedStream(clock, { root: roots('a') }))
      await first.until(() => first.run.status().partitions.length > 0)
      const second = new Probe(clock, new ScriptedStream(clock, {}), { store: first.store, owner: 'second' })
      await second.until(() => second.run.status().standbyFor === 'probe')
      second.run.drain()
      await second.ended
      await second.run.close()
      await first.run.close()
    }))

  test('a closed run leaves no timer and no query behind, and may be closed twice', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, { root: roots('a', 'b'), a: [[part(data(10, 'one'))]], b: [[broken()]] })
      const probe = new Probe(clock, stream, { acksAll: false })
      await probe.until(() => probe.taken.length === 1)
      await probe.run.close()
      await probe.run.close()
      expect({ open: stream.open, timers: clock.pendingTimers }).toEqual({ open: 0, timers: 0 })
      probe.delivery('one').ack() // too late, and harmless
      expect(probe.run.status().settled).toBe(0)
    }))

  test('P10: progress that cannot be stored for as long as the lease stops the run', () =>
    simulate(async (clock) => {
      let isDown = false
      const store = withTable(memoryPartitionStore({ clock }), (table) => ({
        async checkpoint(...args) {
          if (isDown) throw new StoreError('down', { retryable: true })
          return await table.checkpoint(...args)
        },
      }))
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const probe = new Probe(clock, stream, { store, leaseMs: 6000 })
      await probe.until(() => stream.tokens.includes('a'))
      isDown = true
      const downAtMs = clock.now()
      await expect(probe.ended).rejects.toMatchObject({ code: 'STORE_CONFLICT' })
      expect(clock.now() - downAtMs).toBeLessThanOrEqual(6000 + 1000)
      isDown = false
      await probe.run.close()
    }))

  test('P10: a store that does not answer stops the run before the lease ends, and a close ends it', () =>
    simulate(async (clock) => {
      let isHanging = false
      const memory = memoryPartitionStore({ clock })
      const store = withTable(memory, (table) => ({
        checkpoint: (...args) => (isHanging ? new Promise(() => undefined) : table.checkpoint(...args)),
      }))
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const probe = new Probe(clock, stream, { store, leaseMs: 6000 })
      await probe.until(() => stream.tokens.includes('a'))
      isHanging = true
      await expect(probe.ended).rejects.toMatchObject({ name: 'StoreError', code: 'STORE_CONFLICT' })
      expect((await (await memory.open('probe')).get('a'))!.leaseUntilMs).toBeGreaterThan(clock.now())
      expect(probe.run.failed.reason).toMatchObject({ code: 'STORE_CONFLICT' })
      await probe.run.close()
      expect({ open: stream.open, timers: clock.pendingTimers }).toEqual({ open: 0, timers: 0 })
    }))

  test('P10: after a late answer of the store the lease counts from when it was asked', () =>
    simulate(async (clock) => {
      const memory = memoryPartitionStore({ clock })
      let calls = 0
      const store = withTable(memory, (table) => ({
        async checkpoint(...args) {
          if (++calls > 1) await new Promise(() => undefined)
          const lost = await table.checkpoint(...args)
          await sleep(clock, 4000)
          return lost
        },
      }))
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const probe = new Probe(clock, stream, { store, leaseMs: 6000 })
      await expect(probe.ended).rejects.toMatchObject({ code: 'STORE_CONFLICT' })
      expect((await (await memory.open('probe')).get('a'))!.leaseUntilMs).toBeGreaterThan(clock.now())
      await probe.run.close()
    }))

  test.each([
    ['while it stores a tick', 1500],
    ['when it stores the last words', 0],
  ])('P11: a close ends although the store does not answer %s', (_, hangsForMs) =>
    simulate(async (clock) => {
      let isHanging = false
      const store = withTable(memoryPartitionStore({ clock }), (table) => ({
        checkpoint: (...args) => (isHanging ? new Promise(() => undefined) : table.checkpoint(...args)),
      }))
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const probe = new Probe(clock, stream, { store })
      await probe.until(() => stream.tokens.includes('a'))
      isHanging = true
      await sleep(clock, hangsForMs)
      const closedMs = clock.now()
      await probe.run.close()
      expect(clock.now() - closedMs).toBeLessThan(10_000)
      expect({ open: stream.open, timers: clock.pendingTimers }).toEqual({ open: 0, timers: 0 })
    }),
  )

  test('P11: a close ends although a query does not heed its signal', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [[{ until: new Promise(() => undefined) }]] })
      const probe = new Probe(clock, stream)
      await probe.until(() => stream.tokens.includes('a'))
      const closedMs = clock.now()
      await probe.run.close()
      expect(clock.now() - closedMs).toBeLessThan(10_000)
    }))

  test('P10: a logger that throws keeps no run alive that cannot store its progress', () =>
    simulate(async (clock) => {
      const store = withTable(memoryPartitionStore({ clock }), () => ({
        checkpoint: () => Promise.reject(new StoreError('down', { retryable: true })),
      }))
      const broken = (): never => {
        throw new Error('the logger broke')
      }
      const logger = { debug: broken, info: broken, warn: broken, error: broken }
      const unheard = unhandledRejections()
      const startMs = clock.now()
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const probe = new Probe(clock, stream, { store, logger, leaseMs: 6000 })
      await expect(probe.ended).rejects.toThrow('the logger broke')
      expect(clock.now() - startMs).toBeLessThan(6000)
      await probe.run.close().catch(() => undefined)
      expect(await unheard()).toEqual([])
      expect({ open: stream.open, timers: clock.pendingTimers }).toEqual({ open: 0, timers: 0 })
    }))

  test('starts now when it is told no start', () =>
    simulate(async (clock) => {
      await sleep(clock, 12_345)
      const now = timestampFromMs(clock.now())
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const source = { start: undefined } as unknown as { readonly start: string }
      const probe = new Probe(clock, stream, { source })
      await probe.until(() => stream.tokens.includes('root'))
      expect(stream.queries[0]).toMatchObject({ token: null, start: now })
      await probe.run.close()
    }))
})

/** What was committed before a mark and came after it. */
function overtaken(probe: Probe, stream: SimulatedStream): string[] {
  return probe.marks.flatMap((mark, index) => {
    const before = new Set(probe.taken.slice(0, probe.takenAtMark[index]).map(({ id }) => id))
    return stream.ledger.changes
      .filter((change) => change.commitTimestamp < mark && !before.has(change.id))
      .map(({ id }) => `${id} came after the mark ${mark}`)
  })
}

function unreachable(): EnvironmentError {
  return new EnvironmentError('cannot be reached', { cause: { code: 14 } })
}
