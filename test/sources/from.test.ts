import { describe, expect, test } from 'vitest'
import { errorPolicy, skip, stop } from '../../src/core/error-policy.ts'
import { ConfigError } from '../../src/core/errors.ts'
import { type Chunk, type Item, isMark } from '../../src/core/stage.ts'
import { type Delivery, silentLogger } from '../../src/core/types.ts'
import { map } from '../../src/operators/index.ts'
import { from } from '../../src/sources/index.ts'
import { aloneContext, type SourceContext } from '../../src/sources/source.ts'
import { RecordingClock, settled } from '../support/recording-clock.ts'
import { drain } from '../support/recording-origin.ts'
import { unhandledRejections } from '../support/unhandled-rejections.ts'

function context(options: Partial<SourceContext> = {}): SourceContext {
  return { ...aloneContext('test'), policy: errorPolicy(stop()), ...options }
}

function limited(maxInFlight: number): SourceContext {
  return context({ limits: { maxInFlight, maxInFlightBytes: 1e9 } })
}

function* naturals(onRead: (n: number) => void = () => undefined): Generator<number> {
  for (let n = 0; ; n++) {
    onRead(n)
    yield n
  }
}

/** Yields the values, then nothing more until it is closed. */
function idleAfter<T>(values: readonly T[]): AsyncIterable<T> & { readonly closes: number } {
  const state = { closes: 0 }
  return {
    get closes() {
      return state.closes
    },
    [Symbol.asyncIterator]() {
      const rest = [...values]
      return {
        next: () =>
          rest.length > 0
            ? Promise.resolve({ done: false as const, value: rest.shift()! })
            : new Promise<IteratorResult<T>>(() => undefined),
        return: () => {
          state.closes++
          return Promise.resolve({ done: true as const, value: undefined })
        },
      }
    },
  }
}

/** An async iterator that cannot be closed: what is taken of it is gone. */
function asAsync<T>(values: Iterator<T>): AsyncIterator<T> {
  return { next: () => Promise.resolve(values.next()) }
}

/** Takes so many deliveries without settling them. */
async function take<T>(chunks: AsyncIterator<Chunk<T>>, count: number): Promise<Delivery<T>[]> {
  const taken: Item<T>[] = []
  while (taken.length < count) taken.push(...((await chunks.next()).value as Chunk<T>))
  return taken.filter((item): item is Delivery<T> => !isMark(item))
}

describe('from', () => {
  test.each([
    ['a list', () => [1, 2, 3]],
    ['a set', () => new Set([1, 2, 3])],
    [
      'an async generator',
      () =>
        (async function* () {
          yield* [1, 2, 3]
        })(),
    ],
  ])('gives the values of %s in order', async (_, values) => {
    expect(await drain(from(values() as Iterable<number>))).toEqual([1, 2, 3])
  })

  test('an empty iterable ends at once', async () => {
    expect(await drain(from([]))).toEqual([])
  })

  test('hundreds of values all arrive, in order', async () => {
    const values = Array.from({ length: 1000 }, (_, n) => n)
    expect(await drain(from(values).pipe(map((n) => n)))).toEqual(values)
  })

  test.each([[undefined], [null], [7], ['text'], [{}]])('refuses %j', (values) => {
    expect(() => from(values as unknown as Iterable<number>)).toThrow(ConfigError)
  })

  test('reads nothing before it is iterated, and a list can be iterated again', async () => {
    let reads = 0
    const source = from(naturals(() => reads++))
    await settled()
    expect(reads).toBe(0)
    const list = from(['a', 'b'])
    expect(await drain(list)).toEqual(await drain(list))
    expect(source.defaultName).toBe('from')
  })

  test('gives each value its own key and its position as id, unless it is told otherwise', async () => {
    const seen: Delivery<string>[] = []
    for await (const item of from(['x', 'y'])) if (!isMark(item)) seen.push(item)
    expect(seen.map(({ id, key }) => [id, key])).toEqual([
      ['0', '0'],
      ['1', '1'],
    ])
    const told = from(['x', 'y'], {
      key: (value) => `key of ${value}`,
      id: (_, index) => `id ${index}`,
      timestamp: () => '2026-01-01T00:00:00.000000001Z',
    })
    for await (const item of told) {
      if (isMark(item)) continue
      expect(item).toMatchObject({ key: `key of ${item.value}`, timestamp: '2026-01-01T00:00:00.000000001Z' })
    }
  })

  test.each([
    ['sync', (onRead: (n: number) => void) => naturals(onRead)],
    [
      'async',
      (onRead: (n: number) => void) =>
        (async function* () {
          yield* naturals(onRead)
        })(),
    ],
  ])('P7: %s: at most maxInFlight are read ahead of settlement', async (_, values) => {
    let reads = 0
    const run = from(values(() => reads++) as Iterable<number>).open(limited(5))
    const chunks = run.stream.chunks()[Symbol.asyncIterator]()
    const taken = await take(chunks, 5)
    const next = chunks.next()
    await settled()
    expect(reads).toBeLessThanOrEqual(6) // one more waits for room
    expect(run.status().inFlight).toBe(5)
    taken[3]!.ack()
    expect(((await next).value as Chunk<number>).map((item) => (item as Delivery<number>).value)).toEqual([5])
    await run.close()
  })

  test('closes its iterable when the consumer stops early', async () => {
    let isClosed = false
    const values = (async function* () {
      try {
        yield* naturals()
      } finally {
        isClosed = true
      }
    })()
    for await (const item of from(values)) if (!isMark(item) && item.value === 3) break
    expect(isClosed).toBe(true)
  })

  test('P11: a drain ends an idle async iterable without waiting for it', async () => {
    const values = idleAfter([1, 2])
    const run = from(values).open(context())
    const seen: number[] = []
    const reading = (async () => {
      for await (const item of run.stream) if (!isMark(item)) seen.push(item.value)
    })()
    await settled()
    run.drain()
    await reading
    expect(seen).toEqual([1, 2])
    expect(values.closes).toBe(1)
    await run.close()
  })

  test('P11: a drain ends a sync iterable that waits for room', async () => {
    const run = from(naturals()).open(limited(2))
    const chunks = run.stream.chunks()[Symbol.asyncIterator]()
    await take(chunks, 2)
    const next = chunks.next()
    run.drain()
    expect(await next).toMatchObject({ done: true })
    await run.close()
  })

  test.each([
    ['sync', (values: IterableIterator<number>) => values],
    ['async', (values: IterableIterator<number>) => ({ [Symbol.asyncIterator]: () => asAsync(values) })],
  ])('P1: %s: a drain while there is no room takes no value that it does not hand out', async (_, asIterable) => {
    const values = [0, 1, 2, 3, 4, 5].values()
    const run = from(asIterable(values) as Iterable<number>).open(limited(2))
    const chunks = run.stream.chunks()[Symbol.asyncIterator]()
    const taken = await take(chunks, 2)
    const next = chunks.next()
    await settled()
    run.drain()
    expect(await next).toMatchObject({ done: true })
    expect(taken.map(({ value }) => value)).toEqual([0, 1])
    expect(values.next().value).toBe(2)
    expect(run.status()).toMatchObject({ delivered: 2, inFlight: 2 })
    await run.close()
  })

  test.each(['before', 'after'] as const)(
    'P11: an iterable that fails behind a drain harms nobody, drained %s the first read',
    async (when) => {
      const unheard = unhandledRejections()
      const failing = Promise.withResolvers<IteratorResult<number>>()
      const run = from({ [Symbol.asyncIterator]: () => ({ next: () => failing.promise }) }).open(context())
      if (when === 'before') run.drain()
      const next = run.stream.chunks()[Symbol.asyncIterator]().next()
      await settled()
      run.drain()
      expect(await next).toMatchObject({ done: true })
      failing.reject(new Error('upstream failed'))
      await run.close()
      expect(await unheard()).toEqual([])
    },
  )

  test.each(['warn', 'retry', 'stop'] as const)(
    "P7: a forgotten ack is reported by its id (onSettleTimeout '%s')",
    async (onSettleTimeout) => {
      const clock = new RecordingClock()
      const warnings: string[] = []
      const warn = (message: string): number => warnings.push(message)
      const logger = { ...silentLogger, warn }
      const run = from(idleAfter(['x', 'y', 'z'])).open(
        context({ clock, logger, settleTimeoutMs: 5000, onSettleTimeout }),
      )
      const chunks = run.stream.chunks()[Symbol.asyncIterator]()
      const [first] = await take(chunks, 3)
      first!.ack()
      const ended = expect(chunks.next())[onSettleTimeout === 'stop' ? 'rejects' : 'resolves'].toBeDefined()
      await clock.advance(60_000)
      const named = /^change 1 has not been settled for \d+ ms$/
      if (onSettleTimeout === 'stop') {
        expect(run.failed.reason).toMatchObject({ code: 'SETTLE_TIMEOUT', message: expect.stringMatching(named) })
      } else {
        expect(warnings).toEqual([expect.stringMatching(named)])
      }
      await run.close()
      await ended
      expect(clock.waiting).toBe(0)
    },
  )

  test('an abort ends the stream with its reason', async () => {
    const abort = new AbortController()
    const reading = (async () => {
      for await (const _ of from(idleAfter([1])).chunks(abort.signal)) await settled()
    })()
    await settled()
    const reason = new Error('enough')
    abort.abort(reason)
    await expect(reading).rejects.toBe(reason)
  })

  test('an error of the iterable is the error of the stream', async () => {
    const failure = new Error('broken')
    const values = (function* () {
      yield 1
      throw failure
    })()
    await expect(drain(from(values))).rejects.toBe(failure)
  })

  test('a failed value stops the run, also after the last one was read', async () => {
    const run = from([1]).open(context())
    const chunks = run.stream.chunks()[Symbol.asyncIterator]()
    const [only] = await take(chunks, 1)
    const failure = new Error('no')
    only!.nack(failure)
    await expect(chunks.next()).rejects.toBe(failure)
    expect(run.status()).toMatchObject({ settled: 0, inFlight: 1 })
    await run.close()
  })

  test('a skipped value is settled and counted', async () => {
    const run = from([1]).open(context({ policy: errorPolicy(skip()) }))
    const chunks = run.stream.chunks()[Symbol.asyncIterator]()
    const [only] = await take(chunks, 1)
    only!.nack(new Error('no'))
    only!.ack()
    expect(run.status()).toMatchObject({ delivered: 1, settled: 1, skipped: 1, inFlight: 0 })
    await run.close()
  })
})
