import { describe, expect, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import { skip, stop } from '../../src/core/error-policy.ts'
import type { Delivery } from '../../src/core/types.ts'
import type { Change } from '../../src/model/data-change-record.ts'
import { ackAll, type DeliveriesOptions, deliveries } from '../../src/runtime/deliveries.ts'
import { SeededRandom, VirtualClock } from '../../src/simulator/index.ts'
import { from, spannerChangeStream } from '../../src/sources/index.ts'
import { aloneContext, Source } from '../../src/sources/source.ts'
import { memoryPartitionStore } from '../../src/stores/index.ts'
import {
  type Answer,
  at,
  data,
  heartbeat,
  part,
  roots,
  ScriptedStream,
} from '../sources/spanner-change-stream/scripted-stream.ts'

/** Reads deliveries on its own, so that a test may settle them in any order. */
class Reader<T> {
  readonly taken: Delivery<T>[] = []
  readonly done: Promise<void>
  readonly #clock: VirtualClock
  #isStopped = false

  constructor(clock: VirtualClock, source: Source<T>, options: DeliveriesOptions<T> = {}) {
    this.#clock = clock
    this.done = this.#read(
      deliveries(source, { clock, store: memoryPartitionStore({ clock }), onError: stop(), ...options }),
    )
    this.done.catch(() => undefined)
  }

  get values(): T[] {
    return this.taken.map(({ value }) => value)
  }

  /** Leaves the loop at the next delivery. */
  stop(): void {
    this.#isStopped = true
  }

  /** The latest delivery of a value. */
  of(value: T): Delivery<T> {
    const found = this.taken.findLast((delivery) => delivery.value === value)
    if (found === undefined) throw new Error(`${String(value)} was not handed out`)
    return found
  }

  async has(count: number): Promise<void> {
    while (this.taken.length < count) await sleep(this.#clock, 1)
  }

  async #read(stream: AsyncIterable<Delivery<T>>): Promise<void> {
    for await (const delivery of stream) {
      if (this.#isStopped) break
      this.taken.push(delivery)
    }
  }
}

/** Values such as `a1`: the letter is the key. */
const keyed = (...values: string[]): Source<string> => from(values, { key: (value) => value[0]! })

async function simulate<R>(body: (clock: VirtualClock) => Promise<R>): Promise<R> {
  const clock = new VirtualClock({ maxSimulatedMs: 3_600_000 })
  return await clock.run(() => body(clock))
}

/** Settles what is open in random order, fails some of it, and returns what came out of order. */
async function settleAtRandom(seed: number): Promise<string[]> {
  const random = new SeededRandom(seed)
  const values = Array.from({ length: 30 }, (_, n) => `${'abc'[random.int(3)]}${n}`)
  let now = 0
  const work = new Map<string, { handedOut: number; acked: number; failures: number }>()
  await simulate(async (clock) => {
    const reader = new Reader(clock, keyed(...values), { maxInFlight: 1 + random.int(12) })
    let isDone = false
    void reader.done.then(() => {
      isDone = true
    })
    let seen = 0
    const open: Delivery<string>[] = []
    while (!isDone) {
      for (; seen < reader.taken.length; seen++) {
        const delivery = reader.taken[seen]!
        open.push(delivery)
        const { failures = 0 } = work.get(delivery.value) ?? {}
        work.set(delivery.value, { handedOut: now++, acked: Number.POSITIVE_INFINITY, failures })
      }
      const delivery = random.chance(0.7) ? open.splice(random.int(open.length || 1), 1)[0] : undefined
      if (delivery === undefined) await sleep(clock, random.int(5))
      else if (random.chance(0.3)) {
        work.get(delivery.value)!.failures++
        delivery.nack(new Error('busy'), { retryInMs: random.int(20) })
      } else {
        work.get(delivery.value)!.acked = now++
        delivery.ack()
      }
    }
  })
  return values.flatMap((later, index) =>
    values.slice(0, index).flatMap((earlier) => {
      const [first, second] = [work.get(earlier)!, work.get(later)!]
      if (earlier[0] !== later[0]) return []
      // What failed must be done again before the last work on a later value begins.
      const isInOrder = second.handedOut > (first.failures > 0 ? first.acked : first.handedOut)
      return isInOrder ? [] : [`${later} was handed out too early for ${earlier}`]
    }),
  )
}

function orders(clock: VirtualClock, answers: readonly (readonly Answer[])[]): Source<Change> {
  return spannerChangeStream({
    database: 'projects/p/instances/i/databases/d',
    stream: 'S',
    start: at(0),
    heartbeatMs: 300_000,
    client: new ScriptedStream(clock, { root: roots('a'), a: answers }),
  })
}

describe('deliveries', () => {
  test('D16: hands everything out and takes settlements late and in any order', () =>
    simulate(async (clock) => {
      const reader = new Reader(clock, keyed('a1', 'b1', 'a2', 'b2'))
      await reader.has(4)
      for (const value of ['b2', 'a1', 'b1', 'a2']) reader.of(value).ack()
      await reader.done
      expect(reader.values).toEqual(['a1', 'b1', 'a2', 'b2'])
    }))

  test('D18: ackAll acks every delivery of a list', () =>
    simulate(async (clock) => {
      const reader = new Reader(clock, keyed('a1', 'b1', 'a2'))
      await reader.has(3)
      ackAll(new Set(reader.taken))
      await reader.done
      expect(reader.taken.every(({ isSettled }) => isSettled)).toBe(true)
    }))

  test('D10: at most maxInFlight are open at once', () =>
    simulate(async (clock) => {
      const reader = new Reader(clock, keyed('a1', 'b1', 'a2', 'b2', 'a3'), { maxInFlight: 2 })
      await reader.has(2)
      await sleep(clock, 1000)
      expect(reader.values).toEqual(['a1', 'b1'])
      reader.of('b1').ack()
      await reader.has(3)
      for (const value of ['a1', 'a2']) reader.of(value).ack()
      await reader.has(5)
      ackAll(reader.taken)
      await reader.done
    }))

  test('D17: nack with retryInMs hands the value out again after that time', () =>
    simulate(async (clock) => {
      const reader = new Reader(clock, keyed('a1'))
      await reader.has(1)
      const nackedAtMs = clock.now()
      reader.of('a1').nack(new Error('busy'), { retryInMs: 5000 })
      await reader.has(2)
      expect(clock.now() - nackedAtMs).toBeGreaterThanOrEqual(5000)
      expect(reader.values).toEqual(['a1', 'a1'])
      reader.of('a1').ack()
      await reader.done
    }))

  test('D17 P3: later values of the key wait for it, other keys do not', () =>
    simulate(async (clock) => {
      const reader = new Reader(clock, keyed('a1', 'b1', 'a2', 'b2', 'a3'), { maxInFlight: 3 })
      await reader.has(3)
      reader.of('a2').nack(new Error('busy'), { retryInMs: 5000 })
      reader.of('a1').ack()
      reader.of('b1').ack()
      await reader.has(4)
      await sleep(clock, 4000)
      expect(reader.values).toEqual(['a1', 'b1', 'a2', 'b2'])
      await reader.has(5)
      expect(reader.values.at(-1)).toBe('a2')
      await sleep(clock, 4000)
      expect(reader.values).toHaveLength(5)
      reader.of('a2').ack()
      await reader.has(6)
      expect(reader.values.at(-1)).toBe('a3')
      ackAll(reader.taken)
      await reader.done
    }))

  test('D17 P3: later ones that were handed out and acked already come again behind it', () =>
    simulate(async (clock) => {
      const reader = new Reader(clock, keyed('a1', 'a2', 'a3', 'b1'))
      await reader.has(4)
      reader.of('a1').nack(new Error('busy'), { retryInMs: 100 })
      ackAll([reader.of('a3'), reader.of('a2'), reader.of('b1')])
      await reader.has(5)
      reader.of('a1').ack()
      await reader.has(6)
      reader.of('a2').ack()
      await reader.has(7)
      reader.of('a3').ack()
      await reader.done
      expect(reader.values).toEqual(['a1', 'a2', 'a3', 'b1', 'a1', 'a2', 'a3'])
    }))

  test('D17 P3: later ones that were acked before it failed come again, too', () =>
    simulate(async (clock) => {
      const reader = new Reader(clock, keyed('a1', 'a2', 'b1'))
      await reader.has(3)
      ackAll([reader.of('a2'), reader.of('b1')])
      reader.of('a1').nack(new Error('busy'), { retryInMs: 100 })
      await reader.has(4)
      reader.of('a1').ack()
      await reader.has(5)
      reader.of('a2').ack()
      await reader.done
      expect(reader.values).toEqual(['a1', 'a2', 'b1', 'a1', 'a2'])
    }))

  test('D17 P3: later ones that are acked only after it was done again come again, too', () =>
    simulate(async (clock) => {
      const reader = new Reader(clock, keyed('a1', 'a2'))
      await reader.has(2)
      // a2 is worked on while a1 is away, and reported late: its work may be older than that on a1.
      const early = reader.of('a2')
      reader.of('a1').nack(new Error('busy'), { retryInMs: 100 })
      await reader.has(3)
      reader.of('a1').ack()
      await sleep(clock, 1000)
      early.ack()
      await reader.has(4)
      expect(reader.values).toEqual(['a1', 'a2', 'a1', 'a2'])
      reader.of('a2').ack()
      await reader.done
    }))

  test('D17 P3: an older value of the same key that fails meanwhile goes first', () =>
    simulate(async (clock) => {
      const reader = new Reader(clock, keyed('a1', 'a2', 'a3'))
      await reader.has(3)
      reader.of('a2').nack(new Error('busy'), { retryInMs: 1000 })
      reader.of('a1').nack(new Error('busy'), { retryInMs: 5000 })
      reader.of('a3').ack()
      await reader.has(4)
      expect(reader.values.at(-1)).toBe('a1')
      for (const value of ['a1', 'a2', 'a3']) {
        await reader.has(3 + Number(value[1]))
        expect(reader.values.at(-1)).toBe(value)
        reader.of(value).ack()
      }
      await reader.done
    }))

  test('D16 D17 P3: whatever is settled in whatever order, the last work on the values of a key is in order', async () => {
    for (let seed = 1; seed <= 300; seed++) expect(await settleAtRandom(seed), `seed ${seed}`).toEqual([])
  })

  test('D5: nack without a time asks the policy', () =>
    simulate(async (clock) => {
      const failure = new Error('no')
      const stopped = new Reader(clock, keyed('a1', 'b1'))
      await stopped.has(2)
      stopped.of('a1').nack(failure)
      await expect(stopped.done).rejects.toBe(failure)

      const attempts: number[] = []
      const retried = new Reader(clock, keyed('a1', 'a2'), {
        onError: (_, { attempt }) => {
          attempts.push(attempt)
          return attempt < 3 ? { retryInMs: 10 } : 'skip'
        },
      })
      for (let times = 1; times <= 3; times++) {
        while (retried.values.filter((value) => value === 'a1').length < times) await sleep(clock, 1)
        retried.of('a1').nack(failure)
      }
      while (!retried.of('a2').isSettled) {
        retried.of('a2').ack()
        await sleep(clock, 1)
      }
      await retried.done
      expect(attempts).toEqual([1, 2, 3])

      const skipped = new Reader(clock, keyed('a1'), { onError: skip() })
      await skipped.has(1)
      skipped.of('a1').nack(failure)
      await skipped.done
    }))

  test('P3: after a stop nothing more is handed out, also of what was ready with it', () =>
    simulate(async (clock) => {
      const failure = new Error('no')
      const seen: string[] = []
      const options = { clock, store: memoryPartitionStore({ clock }), onError: stop() }
      const reading = (async () => {
        for await (const delivery of deliveries(keyed('a1', 'a2', 'b1', 'a3'), options)) {
          seen.push(delivery.value)
          if (delivery.value === 'a2') delivery.nack(failure)
          else delivery.ack()
        }
      })()
      await expect(reading).rejects.toBe(failure)
      expect(seen).toEqual(['a1', 'a2'])
    }))

  test('P3: a value that stops the run after it came again lets none of those behind it come again', () =>
    simulate(async (clock) => {
      const failure = new Error('no')
      const reader = new Reader(clock, keyed('a1', 'a2', 'a3', 'a4'), { maxInFlight: 3 })
      await reader.has(3)
      reader.of('a1').nack(new Error('busy'), { retryInMs: 100 })
      ackAll([reader.of('a2'), reader.of('a3')])
      await reader.has(4)
      reader.of('a1').nack(failure)
      await expect(reader.done).rejects.toBe(failure)
      expect(reader.values).toEqual(['a1', 'a2', 'a3', 'a1'])
    }))

  test('closes the store that it opened, also if the source cannot be closed', async () => {
    const failure = new Error('cannot be closed')
    let closes = 0
    const source = from(['a1'])
    const stubborn = new Source<string>(
      'stubborn',
      (context) => {
        const { store } = context
        const closeStore = store.close.bind(store)
        store.close = () => {
          closes++
          return closeStore()
        }
        const run = source.open(context)
        return {
          stream: run.stream,
          failed: run.failed,
          drain: () => run.drain(),
          status: () => run.status(),
          async close() {
            await run.close()
            throw failure
          },
        }
      },
      () => aloneContext('stubborn'),
    )
    const reading = (async () => {
      for await (const delivery of deliveries(stubborn)) delivery.ack()
    })()
    await expect(reading).rejects.toBe(failure)
    expect(closes).toBe(1)
  })

  test('a second settlement changes nothing', () =>
    simulate(async (clock) => {
      const reader = new Reader(clock, keyed('a1', 'b1'))
      await reader.has(2)
      const first = reader.of('a1')
      first.ack()
      first.nack(new Error('too late'), { retryInMs: 1 })
      reader.of('b1').ack()
      await reader.done
      expect(reader.values).toEqual(['a1', 'b1'])
    }))

  test('P6: leaving the loop stores the progress made so far', () =>
    simulate(async (clock) => {
      const store = memoryPartitionStore({ clock })
      const records = [data(10, 'one'), data(20, 'two'), data(30, 'three')]
      const first: string[] = []
      for await (const delivery of deliveries(orders(clock, [[part(...records)]]), { clock, store, owner: 'first' })) {
        first.push(delivery.id.split('/')[0]!)
        if (first.length < 3) delivery.ack()
        else break
      }
      const second: string[] = []
      for await (const delivery of deliveries(orders(clock, [[part(...records)]]), { clock, store, owner: 'second' })) {
        second.push(delivery.id.split('/')[0]!)
        break
      }
      expect({ first, second }).toEqual({ first: ['one', 'two', 'three'], second: ['three'] })
      expect(clock.pendingTimers).toBe(0)
    }))

  test('an abort ends the iteration with its reason', () =>
    simulate(async (clock) => {
      const abort = new AbortController()
      const reader = new Reader(clock, orders(clock, [[part(data(10, 'one'))]]), { signal: abort.signal })
      await reader.has(1)
      const reason = new Error('enough')
      abort.abort(reason)
      await expect(reader.done).rejects.toBe(reason)
      expect(clock.pendingTimers).toBe(0)
    }))

  test('an abort ends the iteration also when only settlements are waited for', () =>
    simulate(async (clock) => {
      const abort = new AbortController()
      const reader = new Reader(clock, keyed('a1'), { signal: abort.signal })
      await reader.has(1)
      await sleep(clock, 1000)
      const reason = new Error('enough')
      abort.abort(reason)
      await expect(reader.done).rejects.toBe(reason)
    }))

  test('D19 P3: a forgotten value behind one that came again is handed out again, too', () =>
    simulate(async (clock) => {
      const all = part(data(10, 'one', ['x']), data(20, 'two', ['x']))
      const reader = new Reader(clock, orders(clock, [[all], [all], [all]]), {
        settleTimeoutMs: 5000,
        onSettleTimeout: 'retry',
      })
      const name = ({ id }: Delivery<Change>): string => id.split('/')[0]!
      await reader.has(2)
      reader.taken[0]!.nack(new Error('busy'), { retryInMs: 100 })
      await reader.has(3)
      reader.taken[2]!.ack()
      await reader.has(4)
      expect(reader.taken.map(name)).toEqual(['one', 'two', 'one', 'two'])
      // The same with the one that came again.
      reader.taken[3]!.nack(new Error('busy'), { retryInMs: 100 })
      await reader.has(6)
      expect(reader.taken.map(name).slice(4)).toEqual(['two', 'two'])
      reader.stop()
    }))

  test("D19 P7: a forgotten ack under 'retry': everything behind the last settled position comes again, in order", () =>
    simulate(async (clock) => {
      const all = part(
        data(10, 'one', ['x']),
        data(20, 'two', ['x']),
        data(30, 'three', ['y']),
        data(40, 'four', ['x']),
      )
      const warnings: string[] = []
      const log = (message: string): number => warnings.push(message)
      const reader = new Reader(clock, orders(clock, [[all], [all, part(heartbeat(99))]]), {
        settleTimeoutMs: 5000,
        onSettleTimeout: 'retry',
        logger: { debug: () => undefined, info: () => undefined, warn: log, error: log },
      })
      await reader.has(4)
      const name = ({ id }: Delivery<Change>): string => id.split('/')[0]!
      for (const delivery of reader.taken) if (name(delivery) !== 'two') delivery.ack()
      await reader.has(7)
      expect(reader.taken.map(name)).toEqual(['one', 'two', 'three', 'four', 'two', 'three', 'four'])
      expect(warnings[0]).toContain('change two/00000000/0 of partition a')
      reader.stop()
    }))
})
