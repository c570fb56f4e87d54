/** What every operator keeps, whatever it does with the values. */
import { from as fromForeign } from 'ix/asynciterable'
import { describe, expect, test, vi } from 'vitest'
import type { Clock } from '../../src/core/clock.ts'
import { retry, skip, stop } from '../../src/core/error-policy.ts'
import { ConfigError, OperatorError } from '../../src/core/errors.ts'
import { isMark, type Mark, mark, type Operator, Stage } from '../../src/core/stage.ts'
import type { Delivery } from '../../src/core/types.ts'
import { RecordingClock, settled } from './recording-clock.ts'
import { drain, RecordingOrigin, RecordingSource, type RecordingSourceOptions, timeOf } from './recording-origin.ts'

export interface OperatorUnderTest {
  /** The operator's own name, as its errors carry it. */
  readonly operator: string
  /** Makes the operator; its callback must call `probe` with each value before it does anything else. */
  make(probe: (value: number) => void, clock: Clock): Operator<number, unknown>
  /** The numbers that a value becomes, and the numbers in one output. */
  becomes(value: number): number[]
  read(output: unknown): number[]
  /** Most items that are read of a source of single items while the consumer holds one output and takes no more. */
  readonly maxReadAhead: number
  /** Calls that must be refused, and the option that the error names. */
  readonly refused: readonly { readonly option: string; readonly call: () => unknown }[]
}

export function operatorLaws(name: string, subject: OperatorUnderTest): void {
  const { becomes, read } = subject

  interface Run {
    readonly source: RecordingSource<number>
    readonly clock: RecordingClock
    readonly stream: Stage<unknown>
  }
  function open(
    options: RecordingSourceOptions<number> & { readonly probe?: (value: number) => void },
    clock: RecordingClock = new RecordingClock(),
  ): Run {
    const source = new RecordingSource(options)
    const apply = subject.make(options.probe ?? (() => undefined), clock)
    return { source, clock, stream: source.stage.pipe(apply) }
  }
  async function numbersOf({ stream, clock }: Run): Promise<number[]> {
    return (await clock.runUntil(drain(stream))).flatMap(read)
  }
  function expectAllSettledOnce(origin: RecordingOrigin): void {
    expect(origin.settlements.size).toBe(origin.made)
    expect([...origin.settlements.values()].every((times) => times === 1)).toBe(true)
  }

  describe(`${name} keeps the operator laws`, () => {
    test('an empty source gives an empty stream', async () => {
      const run = open({ values: [] })
      expect(await numbersOf(run)).toEqual([])
      expect(run.source.closed).toBe(1)
      expect(run.clock.waiting).toBe(0)
    })

    test('one value gives what it becomes', async () => {
      const run = open({ values: [2] })
      expect(await numbersOf(run)).toEqual(becomes(2))
      expectAllSettledOnce(run.source.origin)
    })

    test.each([1, 7, 64, 1000])('many values in arrays of %i come out complete and in order', async (chunkSize) => {
      const run = open({ values: range(300), chunkSize })
      expect(await numbersOf(run)).toEqual(range(300).flatMap(becomes))
      expect(run.clock.waiting).toBe(0)
    })

    test('no array that is handed over is empty', async () => {
      const run = open({ values: range(50), chunkSize: 1 })
      const sizes: number[] = []
      await run.clock.runUntil(
        (async () => {
          for await (const chunk of run.stream.chunks()) sizes.push(chunk.length)
        })(),
      )
      expect(Math.min(...sizes)).toBeGreaterThan(0)
    })

    test('everything that goes in is settled exactly once', async () => {
      const run = open({ values: range(300), chunkSize: 10 })
      await numbersOf(run)
      expect(run.source.origin.made).toBe(300)
      expectAllSettledOnce(run.source.origin)
      expect(run.source.origin.nacks).toEqual([])
    })

    test('a failing source ends the stream with its own error', async () => {
      const error = new Error('broken')
      const run = open({ values: range(50), chunkSize: 5, after: { error } })
      await expect(numbersOf(run)).rejects.toBe(error)
      expect(run.source.closed).toBe(1)
      expect(run.clock.waiting).toBe(0)
      expect(Math.max(...run.source.origin.settlements.values(), 1)).toBe(1)
    })

    test('P3: a failing callback under stop is nacked and ends the stream with its error', async () => {
      const cause = new Error('no threes')
      const probe = (value: number): void => {
        if (value === 3) throw cause
      }
      const run = open({ values: range(8), chunkSize: 8, policy: stop(), probe })
      const error = await numbersOf(run).catch((thrown: unknown) => thrown)
      expect(error).toBeInstanceOf(OperatorError)
      expect(error).toMatchObject({ operator: subject.operator, cause })
      expect(run.source.origin.nacks).toMatchObject([{ id: 'r3', error, attempt: 1 }])
    })

    test('a failing callback under skip is nacked and does not come out', async () => {
      const cause = new Error('no threes')
      const probe = (value: number): void => {
        if (value === 3) throw cause
      }
      const run = open({ values: range(8), chunkSize: 8, policy: skip(), probe })
      expect(await numbersOf(run)).toEqual([0, 1, 2, 4, 5, 6, 7].flatMap(becomes))
      expectAllSettledOnce(run.source.origin)
      expect(run.source.origin.nacks).toHaveLength(1)
      const [{ id, error, attempt }] = run.source.origin.nacks as [(typeof run.source.origin.nacks)[number]]
      expect({ id, attempt }).toEqual({ id: 'r3', attempt: 1 })
      expect(error).toBeInstanceOf(OperatorError)
      expect(error).toMatchObject({ operator: subject.operator, cause })
    })

    test('a callback that fails for a while is tried again until it succeeds', async () => {
      const calls = new Map<number, number>()
      const probe = (value: number): void => {
        calls.set(value, (calls.get(value) ?? 0) + 1)
        if (value === 4 && calls.get(value)! < 3) throw new Error('not yet')
      }
      const run = open({ values: range(10), chunkSize: 10, policy: retry({ attempts: 3 }), probe })
      expect(new Set(await numbersOf(run))).toEqual(new Set(range(10).flatMap(becomes)))
      expect(calls.get(4)).toBe(3)
      expect(run.source.origin.nacks).toEqual([])
      expectAllSettledOnce(run.source.origin)
      expect(run.clock.waiting).toBe(0)
    })

    test('a policy that throws ends the stream with that error and closes the source', async () => {
      const error = new Error('bad policy')
      const policy = {
        decide: (): never => {
          throw error
        },
      }
      const probe = (value: number): void => {
        if (value === 3) throw new Error('no threes')
      }
      const run = open({ values: range(8), chunkSize: 8, policy, probe, after: 'idle' })
      await expect(numbersOf(run)).rejects.toBe(error)
      expect(run.source.closed).toBe(1)
      expect(run.clock.waiting).toBe(0)
    })

    test('results that are ready leave before the wait of a retry', async () => {
      const probe = (value: number): void => {
        if (value === 4) throw new Error('for ever')
      }
      const policy = { decide: () => ({ retryInMs: 3_600_000 }) }
      const run = open({ values: range(5), chunkSize: 5, policy, probe })
      const numbers: number[] = []
      const iterator = run.stream[Symbol.asyncIterator]()
      const reading = (async () => {
        for (let next = await iterator.next(); !next.done; next = await iterator.next()) {
          if (!isMark(next.value)) numbers.push(...read(next.value.value))
        }
      })()
      await run.clock.advance(10_000)
      expect(numbers).toEqual(range(4).flatMap(becomes))
      // Only so that nothing is left behind: the next try is given up, and the source ends.
      policy.decide = () => 'skip' as never
      await run.clock.runUntil(reading)
      expect(run.clock.waiting).toBe(0)
    })

    test('an early stop closes the source and leaves the rest unsettled', async () => {
      const run = open({ values: counting(1_000_000) })
      await run.clock.runUntil(
        (async () => {
          for await (const item of run.stream) {
            if (!isMark(item)) item.ack()
            break
          }
        })(),
      )
      expect(run.source.closed).toBe(1)
      expect(run.clock.waiting).toBe(0)
      const settledBefore = run.source.origin.settlements.size
      await run.clock.advance(60_000)
      expect(run.source.origin.settlements.size).toBe(settledBefore)
    })

    test('an early stop closes a source that is idle', async () => {
      const run = open({ values: [2], after: 'idle' })
      const iterator = run.stream[Symbol.asyncIterator]()
      await run.clock.runUntil(iterator.next())
      await run.clock.runUntil(iterator.return!(undefined))
      expect(run.source.closed).toBe(1)
      expect(run.clock.waiting).toBe(0)
    })

    test('an abort ends a waiting stream with the reason of the signal', async () => {
      const controller = new AbortController()
      const reason = new Error('enough')
      const run = open({ values: [1], after: 'idle' })
      const reading = (async () => {
        for await (const _ of run.stream.chunks(controller.signal)) await settled()
      })()
      const outcome = expect(reading).rejects.toBe(reason)
      await run.clock.advance(10_000)
      controller.abort(reason)
      await run.clock.runUntil(outcome)
      expect(run.source.closed).toBe(1)
      expect(run.source.signal?.reason).toBe(reason)
      expect(run.clock.waiting).toBe(0)
    })

    test('a signal that is aborted already ends the stream with its reason', async () => {
      const reason = new Error('too late')
      const run = open({ values: [], after: 'idle' })
      const reading = (async () => {
        for await (const _ of run.stream.chunks(AbortSignal.abort(reason))) await settled()
      })()
      await expect(run.clock.runUntil(reading)).rejects.toBe(reason)
    })

    test('no listener stays on the signal', async () => {
      const { signal } = new AbortController()
      const added = vi.spyOn(signal, 'addEventListener')
      const removed = vi.spyOn(signal, 'removeEventListener')
      const run = open({ values: range(10), chunkSize: 3 })
      let chunks = 0
      await run.clock.runUntil(
        (async () => {
          for await (const _ of run.stream.chunks(signal)) chunks++
        })(),
      )
      expect(chunks).toBeGreaterThan(0)
      expect(removed).toHaveBeenCalledTimes(added.mock.calls.length)
    })

    test.each([1, 64])('P7: a consumer that takes no more stops the reading, arrays of %i', async (chunkSize) => {
      const run = open({ values: counting(1_000_000), chunkSize })
      const iterator = run.stream.chunks()[Symbol.asyncIterator]()
      await run.clock.runUntil(iterator.next())
      await run.clock.advance(60_000)
      expect(run.source.reads).toBeLessThanOrEqual(subject.maxReadAhead + 2 * (chunkSize - 1))
      await run.clock.runUntil(iterator.return!(undefined))
    })

    test('nothing is read before the first next', async () => {
      const run = open({ values: range(3) })
      const iterator = run.stream[Symbol.asyncIterator]()
      await settled()
      expect(run.source.opened).toBe(0)
      await run.clock.runUntil(iterator.next())
      expect(run.source.opened).toBe(1)
      await run.clock.runUntil(iterator.return!(undefined))
    })

    test('it can be iterated again if its source can', async () => {
      const run = open({ values: range(20), chunkSize: 3 })
      const first = await numbersOf(run)
      expect(await numbersOf(run)).toEqual(first)
      expect(run.source.opened).toBe(2)
      expectAllSettledOnce(run.source.origin)
    })

    test.each([1, 4, 1000])('a mark never overtakes what came before it, arrays of %i', async (chunkSize) => {
      const values: (number | Mark)[] = []
      for (const value of range(60)) {
        values.push(value)
        if (value % 5 === 4) values.push(mark(timeOf(value + 1)))
        if (value % 20 === 9) values.push(mark(timeOf(value + 1)))
      }
      const run = open({ values, chunkSize })
      const seen: number[] = []
      const marks: Mark[] = []
      await run.clock.runUntil(
        (async () => {
          for await (const item of run.stream) {
            if (!isMark(item)) {
              seen.push(...read(item.value))
              continue
            }
            marks.push(item)
            const before = range(60).filter((value) => timeOf(value) < item.timestamp)
            expect(seen).toEqual(expect.arrayContaining(before.flatMap(becomes)))
          }
        })(),
      )
      expect(seen).toEqual(range(60).flatMap(becomes))
      expect(marks.at(-1)).toEqual(mark(timeOf(60)))
    })

    test('marks pass a stream that has nothing else', async () => {
      const run = open({ values: [mark(timeOf(1)), mark(timeOf(2))], after: 'idle' })
      const iterator = run.stream[Symbol.asyncIterator]()
      expect((await run.clock.runUntil(iterator.next())).value).toEqual(mark(timeOf(1)))
      expect((await run.clock.runUntil(iterator.next())).value).toEqual(mark(timeOf(2)))
      await run.clock.runUntil(iterator.return!(undefined))
    })

    test('a result that is ready leaves while the source is idle', async () => {
      const run = open({ values: [...range(3), mark(timeOf(3))], chunkSize: 2, after: 'idle' })
      const iterator = run.stream[Symbol.asyncIterator]()
      const numbers: number[] = []
      let lastMark: Mark | undefined
      while (lastMark === undefined) {
        const { value } = await run.clock.runUntil(iterator.next())
        if (isMark(value!)) lastMark = value
        else numbers.push(...read((value as Delivery<unknown>).value))
      }
      expect(numbers).toEqual(range(3).flatMap(becomes))
      await run.clock.runUntil(iterator.return!(undefined))
    })

    test('it works in the pipe of a foreign ix stream', async () => {
      const clock = new RecordingClock()
      const origin = new RecordingOrigin()
      const foreign = fromForeign(range(20).map((value) => origin.make(value)))
      const stream = foreign.pipe(subject.make(() => undefined, clock)) as Stage<unknown>
      expect(stream).toBeInstanceOf(Stage)
      const values = await clock.runUntil(drain(stream))
      expect(values.flatMap(read)).toEqual(range(20).flatMap(becomes))
      expectAllSettledOnce(origin)
    })

    test('an early stop does not wait for a foreign source that never answers', async () => {
      const clock = new RecordingClock()
      const origin = new RecordingOrigin()
      async function* silentAfterOne(): AsyncGenerator<Delivery<number>> {
        yield origin.make(2)
        await new Promise(() => undefined)
      }
      const iterator = subject
        .make(
          () => undefined,
          clock,
        )(silentAfterOne())
        [Symbol.asyncIterator]()
      await clock.runUntil(iterator.next())
      expect(await clock.runUntil(iterator.return!(undefined))).toEqual({ done: true, value: undefined })
    })

    test.each(subject.refused)('P12: refuses a wrong $option when it is called', ({ option, call }) => {
      expect(call).toThrow(ConfigError)
      expect(call).toThrow(new RegExp(`^${subject.operator}: .*${option}`))
    })
  })
}

export function range(length: number): number[] {
  return Array.from({ length }, (_, index) => index)
}

function* counting(end: number): Generator<number> {
  for (let value = 0; value < end; value++) yield value
}
