import { AsyncIterableX, from as fromForeign } from 'ix/asynciterable'
import { describe, expect, expectTypeOf, test } from 'vitest'
import {
  asStage,
  type Chunk,
  chunkOperator,
  isMark,
  mark,
  type Operator,
  operator,
  type Stage,
  stage,
} from '../../src/core/stage.ts'
import { batch, filter, flatMap, map, parMap, tap } from '../../src/operators/index.ts'
import { operatorLaws, range } from '../support/operator-laws.ts'
import { collect, RecordingOrigin, RecordingSource, timeOf } from '../support/recording-origin.ts'

const never = new AbortController().signal

async function chunkSizes(chunks: AsyncIterable<Chunk<unknown>>): Promise<number[]> {
  const sizes: number[] = []
  for await (const chunk of chunks) sizes.push(chunk.length)
  return sizes
}

describe('Stage', () => {
  test('gives the same items one by one and in arrays', async () => {
    const source = new RecordingSource({ values: range(5), chunkSize: 2 })
    expect(await chunkSizes(source.stage.chunks())).toEqual([2, 2, 1])
    expect((await collect(source.stage)).map((item) => !isMark(item) && item.value)).toEqual(range(5))
    expect(source.opened).toBe(2)
  })

  test('is a stream of ix, with its operators', () => {
    expect(stage(async function* () {})).toBeInstanceOf(AsyncIterableX)
  })

  test('ending the iteration early closes what it reads from', async () => {
    const source = new RecordingSource({ values: range(5), chunkSize: 2 })
    for await (const _ of source.stage) break
    for await (const _ of source.stage.chunks()) break
    expect(source.closed).toBe(2)
  })

  test('gives the signal to what it reads from', async () => {
    const source = new RecordingSource({ values: [1] })
    const { signal } = new AbortController()
    await chunkSizes(source.stage.pipe(map(String), tap(String)).chunks(signal))
    expect(source.signal).toBe(signal)
  })

  test('pipe without operators is the stage itself', () => {
    const { stage: alone } = new RecordingSource({ values: [1] })
    expect(alone.pipe()).toBe(alone)
  })

  test('a chain has the type of its last operator', () => {
    const source = stage<{ readonly table: string; readonly id: number }>(async function* () {})
    const chain = source.pipe(
      filter((change) => change.table === 'Orders'),
      map((change) => change.id),
      tap((id) => id.toFixed()),
      flatMap((id) => [String(id)]),
      parMap(async (text) => text.length, { concurrency: 2 }),
      batch({ maxItems: 10 }),
    )
    expectTypeOf(chain).toEqualTypeOf<Stage<number[]>>()
    expectTypeOf(source.pipe(map((change) => change.id))).toEqualTypeOf<Stage<number>>()
  })

  test('a chain whose types do not fit does not compile', () => {
    const source = stage<number>(async function* () {})
    const onlyTexts = filter((value: string) => value === '')
    const toNumbers = map((value: number) => value + 1)
    const toLists = batch<number>()
    // @ts-expect-error numbers do not fit a callback for texts
    source.pipe(onlyTexts)
    // @ts-expect-error nor do they behind another operator
    source.pipe(toNumbers, onlyTexts)
    // @ts-expect-error a batch is a list
    source.pipe(toLists, toNumbers)
    // @ts-expect-error an async test would always be true
    filter(async () => false)
  })
})

describe('mark', () => {
  test('is told from deliveries', () => {
    expect(isMark(mark(timeOf(1)))).toBe(true)
    expect(isMark(new RecordingOrigin().make({ isMark: true }))).toBe(false)
  })
})

operatorLaws('an operator made with operator()', {
  operator: 'map',
  make: (probe, clock) => {
    const calling = map<number, number>(
      (value) => {
        probe(value)
        return value
      },
      { clock },
    )
    const passing = operator<number, number>(async function* (source) {
      for await (const item of source) yield item
    })
    return (source) => passing(calling(source))
  },
  becomes: (value) => [value],
  read: (output) => [output as number],
  maxReadAhead: 1,
  refused: [],
})

describe('operator', () => {
  test('hands items over one by one', async () => {
    const source = new RecordingSource({ values: range(3), chunkSize: 3 })
    const passing: Operator<number, number> = operator(async function* (items) {
      yield* items
    })
    expect(await chunkSizes(source.stage.pipe(passing).chunks())).toEqual([1, 1, 1])
  })
})

describe('chunkOperator', () => {
  test('hands arrays over as they are', async () => {
    const source = new RecordingSource({ values: range(5), chunkSize: 3 })
    const passing = chunkOperator<number, number>(async function* (chunks) {
      yield* chunks
    })
    expect(await chunkSizes(source.stage.pipe(passing).chunks())).toEqual([3, 2])
  })
})

describe('asStage', () => {
  test('gives the arrays of a stage and single items of anything else', async () => {
    const source = new RecordingSource({ values: range(4), chunkSize: 2 })
    expect(await chunkSizes(asStage(source.stage).chunks(never))).toEqual([2, 2])
    async function* foreign(): AsyncGenerator<ReturnType<typeof mark>> {
      yield mark(timeOf(1))
      yield mark(timeOf(2))
    }
    expect(await chunkSizes(asStage(foreign()).chunks(never))).toEqual([1, 1])
  })

  // Fails as long as `instanceof Stage` holds for every stream of ix, which answers it by a tag.
  test('gives single items of a foreign ix stream', async () => {
    expect(await chunkSizes(asStage(fromForeign([mark(timeOf(1)), mark(timeOf(2))])).chunks(never))).toEqual([1, 1])
  })
})
