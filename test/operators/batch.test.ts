import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import { skip } from '../../src/core/error-policy.ts'
import { type Item, isMark, type Mark, mark, stage } from '../../src/core/stage.ts'
import type { Delivery } from '../../src/core/types.ts'
import { batch } from '../../src/operators/index.ts'
import { operatorLaws, range } from '../support/operator-laws.ts'
import { RecordingClock } from '../support/recording-clock.ts'
import { collect, drain, RecordingOrigin, RecordingSource, timeOf } from '../support/recording-origin.ts'

operatorLaws('batch', {
  operator: 'batch',
  make: (probe, clock) =>
    batch<number>({
      maxItems: 4,
      maxBytes: 1000,
      sizeOf: (value) => {
        probe(value)
        return 1
      },
      clock,
    }),
  becomes: (value) => [value],
  read: (output) => output as number[],
  maxReadAhead: 9,
  refused: [
    { option: 'maxItems', call: () => batch({ maxItems: 0 }) },
    { option: 'maxBytes', call: () => batch({ maxBytes: -1, sizeOf: () => 1 }) },
    { option: 'sizeOf', call: () => batch({ maxBytes: 10 }) },
    { option: 'sizeOf', call: () => batch({ sizeOf: 1 as never }) },
    { option: 'maxWaitMs', call: () => batch({ maxWaitMs: Number.POSITIVE_INFINITY }) },
    { option: 'maxItem', call: () => batch({ maxItem: 1 } as never) },
  ],
})

describe('batch', () => {
  test('fills batches of maxItems and gives the rest at the end', async () => {
    const source = new RecordingSource({ values: range(7), chunkSize: 5 })
    expect(await drain(source.stage.pipe(batch({ maxItems: 3 })))).toEqual([[0, 1, 2], [3, 4, 5], [6]])
    expect(source.origin.acks).toEqual(range(7))
  })

  test('has a hundred values at most unless told otherwise', async () => {
    const source = new RecordingSource({ values: range(250), chunkSize: 250 })
    expect((await drain(source.stage.pipe(batch()))).map((values) => values.length)).toEqual([100, 100, 50])
  })

  test('does not exceed maxBytes, except with a single value', async () => {
    const source = new RecordingSource({ values: [4, 4, 4, 30, 1, 9, 1] })
    const out = await drain(source.stage.pipe(batch<number>({ maxBytes: 10, sizeOf: (value) => value })))
    expect(out).toEqual([[4, 4], [4], [30], [1, 9], [1]])
  })

  test('P12: takes a size that is no number for a failing callback', async () => {
    const source = new RecordingSource({ values: [1, 2], policy: skip() })
    const sizeOf = (value: number): number => (value === 1 ? Number.NaN : 1)
    expect(await drain(source.stage.pipe(batch({ maxBytes: 10, sizeOf })))).toEqual([[2]])
    expect(source.origin.nacks.map(({ id }) => id)).toEqual(['r0'])
  })

  test('flushes by time, counted from the first value, while the source is idle', async () => {
    const clock = new RecordingClock()
    const origin = new RecordingOrigin()
    const source = stage<number>(async function* () {
      await sleep(clock, 50)
      yield [origin.make(0)]
      await sleep(clock, 150)
      yield [origin.make(1)]
      await sleep(clock, 10_000)
      yield [origin.make(2)]
    })
    const out: { readonly at: number; readonly values: number[] }[] = []
    await clock.runUntil(
      (async () => {
        for await (const item of source.pipe(batch<number>({ maxWaitMs: 200, clock }))) {
          if (!isMark(item)) out.push({ at: clock.now(), values: item.value })
        }
      })(),
    )
    expect(out).toEqual([
      { at: 250, values: [0, 1] },
      { at: 10_200, values: [2] },
    ])
    expect(clock.waiting).toBe(0)
  })

  test('waits one second unless told otherwise', async () => {
    const clock = new RecordingClock()
    const source = new RecordingSource({ values: [0], after: 'idle' })
    const iterator = source.stage.pipe(batch({ clock }))[Symbol.asyncIterator]()
    await clock.runUntil(iterator.next())
    expect(clock.now()).toBe(1000)
    await iterator.return!(undefined)
  })

  test('lets a mark leave right behind the batch that was open when it came', async () => {
    const values = [mark(timeOf(0)), 0, mark(timeOf(1)), 1, mark(timeOf(2)), 2, mark(timeOf(3))]
    const source = new RecordingSource({ values, chunkSize: 7 })
    const out = await collect(source.stage.pipe(batch({ maxItems: 2 })))
    expect(out.map((item) => (isMark(item) ? item.timestamp : item.value))).toEqual([
      timeOf(0),
      [0, 1],
      timeOf(1),
      timeOf(2),
      [2],
      timeOf(3),
    ])
  })

  test('settles its parts together', async () => {
    const source = new RecordingSource({ values: range(4), chunkSize: 4 })
    const [first, second] = (await collect(source.stage.pipe(batch({ maxItems: 2 })))) as Delivery<number[]>[]
    second!.nack(new Error('no'))
    expect(source.origin.nacks.map(({ id }) => id)).toEqual(['r2', 'r3'])
    first!.ack()
    expect(source.origin.acks).toEqual([0, 1])
  })

  test('loses, repeats and reorders nothing under random timing', async () => {
    const step = fc.record({
      waitMs: fc.integer({ min: 0, max: 30 }),
      size: fc.integer({ min: 0, max: 6 }),
      hasMark: fc.boolean(),
    })
    const limits = fc.record({
      maxItems: fc.integer({ min: 1, max: 8 }),
      maxBytes: fc.integer({ min: 1, max: 20 }),
      maxWaitMs: fc.integer({ min: 0, max: 40 }),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), limits, fc.nat(30), async (steps, options, consumerMs) => {
        const clock = new RecordingClock()
        const origin = new RecordingOrigin()
        const entered: number[] = []
        const source = stage<number>(async function* () {
          for (const { waitMs, size, hasMark } of steps) {
            await sleep(clock, waitMs)
            const chunk: Item<number>[] = range(size).map(() => origin.make(origin.made))
            for (const _ of chunk) entered.push(clock.now())
            if (hasMark) chunk.push(mark(timeOf(origin.made)))
            if (chunk.length > 0) yield chunk
          }
        })
        const left: number[] = []
        const marks: Mark[] = []
        const sizeOf = (value: number): number => value % 7
        await clock.runUntil(
          (async () => {
            for await (const item of source.pipe(batch<number>({ ...options, sizeOf, clock }))) {
              if (isMark(item)) {
                marks.push(item)
                expect(timeOf(left.length) >= item.timestamp).toBe(true)
                continue
              }
              const bytes = item.value.reduce((sum, value) => sum + sizeOf(value), 0)
              expect(item.value.length).toBeLessThanOrEqual(options.maxItems)
              if (item.value.length > 1) expect(bytes).toBeLessThanOrEqual(options.maxBytes)
              left.push(...item.value)
              item.ack()
              if (consumerMs > 0) await sleep(clock, consumerMs)
              else expect(clock.now() - entered[item.value[0]!]!).toBeLessThanOrEqual(options.maxWaitMs)
            }
          })(),
        )
        expect(left).toEqual(range(origin.made))
        expect([...origin.settlements.values()]).toEqual(left.map(() => 1))
        const lastMark = steps.findLastIndex(({ hasMark }) => hasMark)
        const before = steps.slice(0, lastMark + 1).reduce((sum, { size }) => sum + size, 0)
        expect(marks.at(-1)).toEqual(lastMark < 0 ? undefined : mark(timeOf(before)))
        expect(clock.waiting).toBe(0)
      }),
      { numRuns: 100 },
    )
  })
})
