import fc from 'fast-check'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import { retry, skip } from '../../src/core/error-policy.ts'
import { isMark, type Mark, mark, type Operator, stage } from '../../src/core/stage.ts'
import { type ParMapContext, type ParMapOptions, parMap } from '../../src/operators/index.ts'
import { operatorLaws, range } from '../support/operator-laws.ts'
import { RecordingClock, settled } from '../support/recording-clock.ts'
import { drain, RecordingOrigin, RecordingSource, timeOf } from '../support/recording-origin.ts'

const orders = ['none', 'key', 'source'] as const

for (const order of orders) {
  operatorLaws(`parMap in order '${order}'`, {
    operator: 'parMap',
    make: (probe, clock) =>
      parMap(
        (value) => {
          probe(value)
          return value
        },
        { concurrency: 4, order, clock },
      ),
    becomes: (value) => [value],
    read: (output) => [output as number],
    maxReadAhead: 10,
    refused: [
      { option: 'callback', call: () => parMap(1 as never, { concurrency: 1 }) },
      { option: 'concurrency', call: () => parMap(String, {} as never) },
      { option: 'concurrency', call: () => parMap(String, undefined as never) },
      { option: 'concurrency', call: () => parMap(String, { concurrency: 0 }) },
      { option: 'order', call: () => parMap(String, { concurrency: 1, order: 'keys' as never }) },
      { option: 'concurency', call: () => parMap(String, { concurency: 1 } as never) },
    ],
  })
}

/** Runs values with given delays and keys on a fake clock; notes how many run at once and what leaves. */
async function timedRun(
  jobs: readonly { readonly key: number; readonly delayMs: number; readonly failures?: number }[],
  options: Omit<ParMapOptions, 'clock'>,
  { chunkSize = 3, markEvery = 0 }: { readonly chunkSize?: number; readonly markEvery?: number } = {},
): Promise<{
  left: number[]
  maxRunning: number
  overtaken: number[]
  source: RecordingSource<number>
}> {
  const clock = new RecordingClock()
  const values: (number | Mark)[] = []
  for (const index of range(jobs.length)) {
    values.push(index)
    if (markEvery > 0 && (index + 1) % markEvery === 0) values.push(mark(timeOf(index + 1)))
  }
  const key = (index: number): string => String(jobs[index]!.key)
  const source = new RecordingSource({ values, chunkSize, key, policy: retry({ attempts: 100 }) })
  const left: number[] = []
  const overtaken: number[] = []
  const failures = new Map(jobs.map((job, index) => [index, job.failures ?? 0]))
  let running = 0
  let maxRunning = 0
  const work = async (index: number): Promise<number> => {
    maxRunning = Math.max(maxRunning, ++running)
    await sleep(clock, jobs[index]!.delayMs)
    running--
    const remaining = failures.get(index)!
    failures.set(index, remaining - 1)
    if (remaining > 0) throw new Error('not yet')
    return index
  }
  await clock.runUntil(
    (async () => {
      for await (const item of source.stage.pipe(parMap(work, { ...options, clock }))) {
        if (isMark(item))
          overtaken.push(...range(jobs.length).filter((i) => timeOf(i) < item.timestamp && !left.includes(i)))
        else {
          left.push(item.value)
          item.ack()
        }
      }
    })(),
  )
  expect(clock.waiting).toBe(0)
  return { left, maxRunning, overtaken, source }
}

const jobs = fc.array(
  fc.record({
    key: fc.integer({ min: 0, max: 4 }),
    delayMs: fc.integer({ min: 0, max: 50 }),
    failures: fc.constantFrom(0, 0, 0, 1, 2),
  }),
  { maxLength: 60 },
)
const shape = fc.record({
  concurrency: fc.integer({ min: 1, max: 8 }),
  chunkSize: fc.integer({ min: 1, max: 20 }),
  markEvery: fc.integer({ min: 0, max: 4 }),
})

describe('parMap', () => {
  test.each(orders)("P3: keeps its promises under random delays and retries, in order '%s'", async (order) => {
    await fc.assert(
      fc.asyncProperty(jobs, shape, async (list, { concurrency, ...chunking }) => {
        const { left, maxRunning, overtaken, source } = await timedRun(list, { concurrency, order }, chunking)
        expect(left.toSorted((a, b) => a - b)).toEqual(range(list.length))
        expect(maxRunning).toBeLessThanOrEqual(concurrency)
        expect(overtaken).toEqual([])
        expect([...source.origin.settlements.values()]).toEqual(list.map(() => 1))
        if (order === 'source') expect(left).toEqual(range(list.length))
        if (order !== 'key') return
        for (const key of range(5)) {
          const ofKey = left.filter((index) => list[index]!.key === key)
          expect(ofKey).toEqual(ofKey.toSorted((a, b) => a - b))
        }
      }),
      { numRuns: 60 },
    )
  })

  test('P3: never runs two values of one key at the same time', async () => {
    const running = new Set<number>()
    const clock = new RecordingClock()
    const source = new RecordingSource({ values: range(40), chunkSize: 40, key: (value) => String(value % 3) })
    const work = async (value: number): Promise<void> => {
      expect(running.has(value % 3)).toBe(false)
      running.add(value % 3)
      await sleep(clock, value % 7)
      running.delete(value % 3)
    }
    await clock.runUntil(drain(source.stage.pipe(parMap(work, { concurrency: 20 }))))
    expect(source.origin.acks).toHaveLength(40)
    expect(source.origin.nacks).toEqual([])
  })

  test('runs different keys in parallel, up to the limit', async () => {
    const list = range(12).map((key) => ({ key, delayMs: 10 }))
    expect((await timedRun(list, { concurrency: 4 })).maxRunning).toBe(4)
  })

  test('lets results of other keys pass one that takes long', async () => {
    const list = [{ key: 0, delayMs: 1000 }, ...range(5).map(() => ({ key: 1, delayMs: 1 }))]
    expect((await timedRun(list, { concurrency: 4 })).left).toEqual([1, 2, 3, 4, 5, 0])
  })

  test('keeps the order of the source while work overlaps', async () => {
    const list = [30, 20, 10].map((delayMs, key) => ({ key, delayMs }))
    const { left, maxRunning } = await timedRun(list, { concurrency: 3, order: 'source' })
    expect({ left, maxRunning }).toEqual({ left: [0, 1, 2], maxRunning: 3 })
  })

  test('P3: a retry waits inside the lane of its key, and others go on', async () => {
    const list = [
      { key: 0, delayMs: 1, failures: 3 },
      { key: 0, delayMs: 1 },
      { key: 1, delayMs: 1 },
    ]
    expect((await timedRun(list, { concurrency: 3 })).left).toEqual([2, 0, 1])
  })

  test('holds marks back behind the slowest value before them, and gives the latest', async () => {
    const clock = new RecordingClock()
    const values = [0, mark(timeOf(1)), 1, mark(timeOf(2)), 2, mark(timeOf(3))]
    const source = new RecordingSource({ values, chunkSize: 6 })
    const work = (value: number): Promise<void> => sleep(clock, value === 0 ? 100 : 1)
    const out: string[] = []
    await clock.runUntil(
      (async () => {
        for await (const item of source.stage.pipe(parMap(work, { concurrency: 3, clock }))) {
          out.push(isMark(item) ? `mark ${item.timestamp.slice(-2, -1)}` : item.id)
        }
      })(),
    )
    expect(out).toEqual(['r1', 'r2', 'r0', 'mark 3'])
  })

  test('P7: reads on for other keys while marks pile up behind one value', async () => {
    const clock = new RecordingClock()
    const values = [0, ...range(500).flatMap((value) => [mark(timeOf(value)), value + 1])]
    const source = new RecordingSource({ values, after: 'idle' })
    const work = (value: number): Promise<void> | undefined => (value === 0 ? sleep(clock, 1000) : undefined)
    const iterator = source.stage
      .pipe(parMap(work, { concurrency: 2, clock }))
      .chunks()
      [Symbol.asyncIterator]()
    let left = 0
    while (left < 500) left += (await iterator.next()).value!.length
    expect(source.reads).toBe(values.length)
    const last = await clock.runUntil(iterator.next())
    expect(last.value).toHaveLength(2)
    expect(last.value![1]).toEqual(mark(timeOf(499)))
    await iterator.return!()
  })

  test('an early stop aborts the signal of the callbacks and starts no more', async () => {
    const signals: AbortSignal[] = []
    const source = new RecordingSource({ values: range(100), chunkSize: 10 })
    const work = (value: number, { signal }: { signal: AbortSignal }): Promise<number> | number => {
      signals.push(signal)
      if (value === 0) return 0
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    }
    for await (const _ of source.stage.pipe(parMap(work, { concurrency: 3 }))) break
    await settled()
    expect(signals.length).toBeLessThanOrEqual(4)
    expect(signals.every((signal) => signal.aborted)).toBe(true)
    expect(source.closed).toBe(1)
    expect(source.origin.settlements.size).toBe(0)
  })

  test('P3: an early stop waits for running callbacks, so that none goes on behind the next run', async () => {
    const source = new RecordingSource({ values: [0, 1] })
    let hasReturned = false
    const work = async (value: number, { signal }: ParMapContext): Promise<number> => {
      if (value === 0) return 0
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      await settled()
      hasReturned = true
      return 1
    }
    for await (const _ of source.stage.pipe(parMap(work, { concurrency: 2 }))) break
    expect(hasReturned).toBe(true)
    expect(source.closed).toBe(1)
  })

  test('starts nothing more when a callback ends after an early stop', async () => {
    const started: number[] = []
    const source = new RecordingSource({ values: range(10), chunkSize: 10 })
    const work = (value: number, { signal }: ParMapContext): Promise<unknown> | undefined => {
      started.push(value)
      if (value === 0) return undefined
      return new Promise((resolve) => signal.addEventListener('abort', resolve))
    }
    for await (const _ of source.stage.pipe(parMap(work, { concurrency: 1 }))) break
    await settled()
    expect(started).toEqual([0, 1])
  })

  test('reads on when everything is given up', async () => {
    const source = new RecordingSource({ values: range(50), chunkSize: 10, policy: skip() })
    const failing = parMap(() => Promise.reject(new Error('no')), { concurrency: 1 })
    expect(await drain(source.stage.pipe(failing))).toEqual([])
    expect(source.origin.nacks).toHaveLength(50)
  })

  test('an error of the source while it is closed reaches the consumer who stopped early', async () => {
    const error = new Error('cannot close')
    const origin = new RecordingOrigin()
    const source = stage<number>(async function* () {
      try {
        for (const value of range(100)) yield [origin.make(value)]
      } finally {
        await settled()
        // biome-ignore lint/correctness/noUnsafeFinally: a close that fails is the case in question
        throw error
      }
    })
    const work = (value: number, { signal }: { signal: AbortSignal }): Promise<number> | number =>
      value === 0 ? 0 : new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
    const stopping = (async () => {
      for await (const _ of source.pipe(parMap(work, { concurrency: 2 }))) break
    })()
    await expect(stopping).rejects.toBe(error)
  })

  test('the signal stays as it is when the stream ends by itself', async () => {
    let seen: AbortSignal | undefined
    const source = new RecordingSource({ values: [0] })
    const work = (_: number, { signal }: { signal: AbortSignal }): void => {
      seen = signal
    }
    await drain(source.stage.pipe(parMap(work, { concurrency: 1 })))
    expect(seen?.aborted).toBe(false)
  })

  test.each(orders)("an abort that comes with a nack lets nothing behind it start, in order '%s'", async (order) => {
    const controller = new AbortController()
    const reason = new Error('stopped')
    const started: number[] = []
    const policy = {
      decide: () => {
        controller.abort(reason)
        return 'stop' as const
      },
    }
    const source = new RecordingSource({ values: range(10), chunkSize: 10, key: () => 'one', policy })
    const work = (value: number): void => {
      started.push(value)
      throw new Error('no')
    }
    const reading = (async () => {
      for await (const _ of source.stage.pipe(parMap(work, { concurrency: 4, order })).chunks(controller.signal))
        await settled()
    })()
    await expect(reading).rejects.toBe(reason)
    expect(started).toEqual([0])
  })

  test('P7: a key with a long queue holds up others only beyond the bound', async () => {
    const clock = new RecordingClock()
    const started: number[] = []
    const source = new RecordingSource({ values: range(1000), key: (value) => (value === 7 ? 'other' : 'busy') })
    const work = (value: number, { signal }: ParMapContext): Promise<void> => {
      started.push(value)
      return sleep(clock, 1000, signal)
    }
    const iterator = source.stage.pipe(parMap(work, { concurrency: 4, clock }))[Symbol.asyncIterator]()
    const first = iterator.next()
    await clock.advance(10)
    expect(started).toEqual([0, 7])
    expect(source.reads).toBeLessThanOrEqual(8)
    await clock.runUntil(first)
    await iterator.return!(undefined)
  })

  test('awaits what the callback returns, in its type too', () => {
    expectTypeOf(parMap(async (value: number) => `${value}`, { concurrency: 1 })).toEqualTypeOf<
      Operator<number, string>
    >()
    expectTypeOf(parMap((value: number) => `${value}`, { concurrency: 1 })).toEqualTypeOf<Operator<number, string>>()
  })
})
