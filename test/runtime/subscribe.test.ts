import { describe, expect, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import { retry, skip, stop } from '../../src/core/error-policy.ts'
import { type Change, changeId, rowKey } from '../../src/model/data-change-record.ts'
import { type HandlerContext, type SubscribeOptions, subscribe } from '../../src/runtime/subscribe.ts'
import { SeededRandom, SimulatedStream, VirtualClock } from '../../src/simulator/index.ts'
import { from, spannerChangeStream } from '../../src/sources/index.ts'
import { memoryPartitionStore } from '../../src/stores/index.ts'

const memory = { store: memoryPartitionStore() }

interface Subscribed {
  readonly clock: VirtualClock
  readonly stream: SimulatedStream
  run(
    handler: (change: Change, context: HandlerContext) => unknown,
    options?: SubscribeOptions<Change>,
  ): ReturnType<typeof subscribe>
}

/** A finite stream with few keys, many changes each, and a split in the middle. */
async function simulated<R>(body: (world: Subscribed) => Promise<R>): Promise<R> {
  const clock = new VirtualClock({ maxSimulatedMs: 3_600_000 })
  const stream = new SimulatedStream({ seed: 9, clock })
  stream.defineTable({
    name: 'Orders',
    columns: [
      { name: 'Id', type: 'INT64', isPrimaryKey: true },
      { name: 'Total', type: 'INT64' },
    ],
  })
  for (let n = 0; n < 120; n++) {
    if (n === 60) stream.split(stream.livePartitions()[0]!.token)
    const keys = { Id: String(n % 7) }
    stream.commit([
      { table: 'Orders', op: stream.row('Orders', keys) ? 'update' : 'insert', keys, values: { Total: String(n) } },
    ])
  }
  const end = stream.ledger.changes.at(-1)!.commitTimestamp
  const source = spannerChangeStream({
    database: 'projects/p/instances/i/databases/d',
    stream: stream.name,
    start: stream.createdAt,
    end,
    client: stream.client(),
  })
  const random = new SeededRandom(9)
  const store = memoryPartitionStore({ clock })
  return await clock.run(() =>
    body({
      clock,
      stream,
      run: (handler, options) => subscribe(source, handler, { clock, random: () => random.next(), store, ...options }),
    }),
  )
}

function inCommitOrderPerKey(handled: readonly Change[], stream: SimulatedStream): void {
  for (const key of new Set(stream.ledger.changes.map((change) => change.key))) {
    const committed = stream.ledger.changes.filter((change) => change.key === key).map(({ id }) => id)
    expect(handled.filter(({ table, keys }) => rowKey(table, keys) === key).map(changeId)).toEqual(committed)
  }
}

describe('subscribe', () => {
  test('D1: returning is the ack: the run resolves when everything is handled', async () => {
    const seen: number[] = []
    const summary = await subscribe(from([1, 2, 3]), (n) => seen.push(n), memory)
    expect(seen).toEqual([1, 2, 3])
    expect(summary).toMatchObject({ outcome: 'finished', delivered: 3, settled: 3 })
  })

  test('D3: by default one call at a time, in order', () =>
    simulated(async ({ run, clock, stream }) => {
      let running = 0
      let most = 0
      const handled: Change[] = []
      await run(async (change) => {
        most = Math.max(most, ++running)
        await sleep(clock, 5)
        handled.push(change)
        running--
      })
      expect(most).toBe(1)
      inCommitOrderPerKey(handled, stream)
    }))

  test('D2 P3: at maxInFlight 50 calls run in parallel, and those of one key keep commit order and never overlap', () =>
    simulated(async ({ run, clock, stream }) => {
      const random = new SeededRandom(77)
      const running = new Map<string, number>()
      let most = 0
      const handled: Change[] = []
      const summary = await run(
        async (change) => {
          const key = rowKey(change.table, change.keys)
          running.set(key, (running.get(key) ?? 0) + 1)
          most = Math.max(
            most,
            [...running.values()].reduce((a, b) => a + b),
          )
          expect(running.get(key)).toBe(1)
          await sleep(clock, random.int(50))
          handled.push(change)
          running.set(key, 0)
          if (random.chance(0.1)) throw new Error('again') // the value comes again, in its place
          handled.splice(handled.lastIndexOf(change), 1, change)
        },
        { maxInFlight: 50, onError: retry({ attempts: 20 }) },
      )
      expect(most).toBeGreaterThan(3)
      const firsts = handled.filter((change, index) => handled.indexOf(change) === index)
      inCommitOrderPerKey(firsts, stream)
      expect(summary).toMatchObject({ outcome: 'finished', settled: stream.ledger.changes.length, unsettled: 0 })
    }))

  test('D1: the context holds signal, partition and attempt', () =>
    simulated(async ({ run, stream }) => {
      const contexts: HandlerContext[] = []
      const attempts: number[] = []
      await run(
        (_, context) => {
          contexts.push(context)
          attempts.push(context.attempt)
          if (attempts.length < 3) throw new Error('not yet')
        },
        { onError: retry({ attempts: 5 }) },
      )
      expect(attempts.slice(0, 4)).toEqual([1, 2, 3, 1])
      const tokens = new Set(stream.lineage().map(({ token }) => token))
      for (const { signal, partition } of contexts) {
        expect(signal).toBeInstanceOf(AbortSignal)
        expect(tokens.has(partition)).toBe(true)
      }
    }))

  test('D5: throwing asks the policy: stop rejects with what was thrown as the cause', async () => {
    const failure = new Error('cannot save')
    const handled: number[] = []
    const run = subscribe(
      from([1, 2, 3]),
      (n) => {
        if (n === 2) throw failure
        handled.push(n)
      },
      { ...memory, onError: stop() },
    )
    await expect(run).rejects.toMatchObject({ code: 'OPERATOR_FAILED', cause: failure })
    expect(handled).toEqual([1])
  })

  test.each([1, 5, 10])('P2: a stop rejects the run, also when all %i values have been read before', (count) =>
    simulated(async ({ clock }) => {
      const failure = new Error('cannot save')
      const handled: number[] = []
      const run = subscribe(
        from(Array.from({ length: count }, (_, n) => n)),
        async (n) => {
          await sleep(clock, 5)
          if (n === 0) throw failure
          handled.push(n)
        },
        { ...memory, clock, onError: stop(), maxInFlight: 10 },
      )
      await expect(run).rejects.toMatchObject({ code: 'OPERATOR_FAILED', cause: failure })
      expect(handled.length).toBeLessThan(10)
    }),
  )

  test('P2: a stop during a drain rejects the run, and what failed comes again', () =>
    simulated(async ({ run, clock, stream }) => {
      const failure = new Error('cannot save')
      const drain = new AbortController()
      const first = stream.ledger.changes[0]!
      const running = run(
        async (change) => {
          drain.abort()
          await sleep(clock, 500)
          if (changeId(change) === first.id) throw failure
        },
        { maxInFlight: 10, drain: drain.signal, onError: stop() },
      )
      await expect(running).rejects.toMatchObject({ code: 'OPERATOR_FAILED', cause: failure })

      const handled: Change[] = []
      await run((change) => handled.push(change))
      expect(handled.map(changeId)).toContain(first.id)
    }))

  test('D5: throwing asks the policy: skip goes on without the value', async () => {
    const handled: number[] = []
    const summary = await subscribe(
      from([1, 2, 3]),
      (n) => {
        if (n === 2) throw new Error('cannot save')
        handled.push(n)
      },
      { ...memory, onError: skip() },
    )
    expect(handled).toEqual([1, 3])
    expect(summary).toMatchObject({ skipped: 1, settled: 3 })
  })

  test('D5: a function as policy gets value, partition and attempt', () =>
    simulated(async ({ run, stream }) => {
      const asked: { value: unknown; partition: string; attempt: number }[] = []
      const poison = stream.ledger.changes[10]!
      await run(
        (change) => {
          if (changeId(change) === poison.id) throw new Error('poison')
        },
        {
          onError: (_, context) => {
            asked.push(context)
            return context.attempt < 3 ? { retryInMs: 10 } : 'skip'
          },
        },
      )
      expect(new Set(asked.map(({ attempt }) => attempt))).toEqual(new Set([1, 2, 3]))
      for (const { value, partition } of asked) {
        expect(changeId(value as Change)).toBe(poison.id)
        expect(partition).toBe(poison.partitionToken)
      }
    }))

  test('P11: a close aborts the signal of the handlers at work', () =>
    simulated(async ({ run, clock }) => {
      const close = new AbortController()
      let isAborted = false
      const running = run(
        (_, { signal }) =>
          new Promise((_, reject) => {
            signal.addEventListener('abort', () => {
              isAborted = true
              reject(signal.reason)
            })
          }),
        { close: close.signal },
      )
      await sleep(clock, 1000)
      close.abort()
      expect(await running).toMatchObject({ outcome: 'closed', settled: 0 })
      expect(isAborted).toBe(true)
    }))

  test('P11: a drain waits for the handlers at work', () =>
    simulated(async ({ run, clock }) => {
      const drain = new AbortController()
      let done = 0
      const running = run(
        async () => {
          await sleep(clock, 10_000)
          done++
        },
        { drain: drain.signal },
      )
      await sleep(clock, 5000)
      drain.abort()
      expect(await running).toMatchObject({ outcome: 'drained', settled: 1, unsettled: 0 })
      expect(done).toBe(1)
    }))

  test('refuses what a pipeline refuses', async () => {
    await expect(subscribe(from([1]), () => undefined, { ...memory, maxInFlight: 0 })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
    })
    await expect(subscribe(from([1]), 'handler' as never, memory)).rejects.toMatchObject({ code: 'CONFIG_INVALID' })
  })
})
