/** How a run ends when something fails, hangs or was written wrongly. */
import { describe, expect, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import { skip, stop } from '../../src/core/error-policy.ts'
import { type Item, isMark, operator, type Stage } from '../../src/core/stage.ts'
import type { Delivery, Sink } from '../../src/core/types.ts'
import type { ChangeStreamClient } from '../../src/model/change-stream.ts'
import type { Change } from '../../src/model/data-change-record.ts'
import { map, parMap } from '../../src/operators/index.ts'
import { definePipeline } from '../../src/runtime/define-pipeline.ts'
import { type RunningPipeline, runPipeline } from '../../src/runtime/run-pipeline.ts'
import { subscribe } from '../../src/runtime/subscribe.ts'
import { from } from '../../src/sources/index.ts'
import { GatedSink, hungSink, inWorld, ListSink, lastCommit, type World } from './pipeline-world.ts'

const failure = new Error('cannot save')
const noteOf = (change: Change): string => String(change.newValues.Note)
const idOf = (change: Change): string => String(change.keys.Id)

describe('runPipeline, when a value stops it', () => {
  // At every place: what the reader hands over together, and what comes after it, may differ in kind.
  const places = [0, 1, 2, 3, 4, 5, 6, 7, 8]
  test.each(['map', 'parMap'] as const)(
    'P3: later values of its key are neither handled nor written (%s), and all come again in order',
    async (kind) => {
      for (const place of places) await inWorld((world) => stopsAt(place, kind, world))
    },
  )

  test.each(['map', 'parMap'] as const)('P3: the same for a source without Spanner (%s)', (kind) =>
    inWorld(async ({ run, store, clock }) => {
      const handled: number[] = []
      const save = (n: number): number => {
        handled.push(n)
        if (n === 3) throw failure
        return n
      }
      const step =
        kind === 'map' ? map(save) : parMap(async (n: number) => save(n), { concurrency: 4, order: 'key', clock })
      const sink = new ListSink<number>()
      const source = from([0, 1, 2, 3, 4, 5, 6], { key: () => 'one key' })
      const failing = definePipeline({ source, store, steps: (numbers) => numbers.pipe(step), sink, onError: stop() })
      await expect(runPipeline(failing, run)).rejects.toMatchObject({ cause: failure })
      expect(handled).toEqual([0, 1, 2, 3])
      expect([0, 1, 2].slice(0, sink.items.length)).toEqual(sink.items)
    }),
  )

  test('P2: a failure behind the end of the source rejects the run as well', () =>
    inWorld(async ({ run, store }) => {
      const holdAndFail = operator<number, number>(async function* (source) {
        const held: Delivery<number>[] = []
        for await (const item of source) {
          if (isMark(item)) yield item
          else held.push(item)
        }
        for (const delivery of held) delivery.nack(failure)
      })
      const steps = (numbers: Stage<number>): Stage<number> => numbers.pipe(holdAndFail)
      const failing = definePipeline({ source: from([1, 2]), store, steps, sink: new ListSink(), onError: stop() })
      await expect(runPipeline(failing, run)).rejects.toBe(failure)
    }))

  test.each(['map', 'parMap', 'sink'] as const)('onError is asked once for one failure (%s)', (where) =>
    inWorld(async ({ stream, pipeline, run, commit, clock }) => {
      commit(3)
      const asked: number[] = []
      const fails = (change: Change): Change => {
        if (idOf(change) === 'row 1') throw failure
        return change
      }
      const sink = new ListSink<Change>()
      const picky: Sink<Change> = {
        name: 'picky',
        maxBatchItems: 1,
        async write(items) {
          await sink.write(items.map(fails))
        },
        close: () => sink.close(),
      }
      const steps = {
        map: map(fails),
        parMap: parMap(async (change: Change) => fails(change), { concurrency: 2, clock }),
        sink: map((change: Change) => change),
      }
      const summary = await runPipeline(
        pipeline<Change>({
          end: lastCommit(stream),
          steps: (changes) => changes.pipe(steps[where]),
          sink: where === 'sink' ? picky : sink,
          // Whoever asks twice gets another answer.
          onError: (_, { attempt }) => {
            asked.push(attempt)
            return asked.length === 1 ? 'skip' : 'stop'
          },
        }),
        run,
      )
      expect(asked).toEqual([1])
      expect(summary).toMatchObject({ outcome: 'finished', skipped: 1 })
      expect(sink.items.map(idOf).toSorted()).toEqual(['row 0', 'row 2'])
    }),
  )
})

describe('runPipeline, when it has failed', () => {
  const broken: Sink<Change> = {
    name: 'broken',
    write: () => Promise.reject(failure),
    close: () => Promise.resolve(),
  }
  const halfBroken: Sink<Change> = {
    name: 'halfBroken',
    lane: (_, key) => key,
    write: ([change]) => hangOrFail(change!),
    close: () => Promise.resolve(),
  }
  const shapes: Readonly<Record<string, (world: World) => Promise<unknown>>> = {
    'a sink before the one that failed': ({ pipeline, run }) =>
      runPipeline(pipeline({ sink: [hungSink, broken], onError: stop() }), run),
    'a sink behind the one that failed': ({ pipeline, run }) =>
      runPipeline(pipeline({ sink: [broken, hungSink], onError: stop() }), run),
    'another lane of the sink': ({ pipeline, run }) =>
      runPipeline(pipeline({ sink: halfBroken, onError: stop() }), run),
    'another callback': ({ pipeline, run, store }) => {
      const { source } = pipeline({})
      return subscribe(source, hangOrFail, { ...run, name: 'test', store, onError: stop(), maxInFlight: 10 })
    },
  }

  test.each(Object.entries(shapes))('P11: ends although %s hangs, and keeps its leases', (_, start) =>
    inWorld(async (world) => {
      const { pipeline, run, commit, clock, until } = world
      commit(20)
      const startedMs = clock.now()
      const cause = await start({ ...world, run: { ...run, owner: 'failing' } }).catch((error: Error) => error.cause)
      expect(cause).toBe(failure)
      const endedMs = clock.now()
      expect(endedMs - startedMs).toBeLessThan(10_000)

      // What hangs may still come to write: whoever comes next waits until the leases have run out.
      const drain = new AbortController()
      const sink = new ListSink<Change>()
      let next: RunningPipeline | undefined
      const following = runPipeline(pipeline({ sink }), {
        ...run,
        owner: 'next',
        drain: drain.signal,
        onStart: (started) => {
          next = started
        },
      })
      await until(() => next!.status().state === 'standby')
      expect(next!.status().standbyFor).toBe('failing')
      await until(() => ['row 3', 'row 4'].every((id) => sink.items.map(idOf).includes(id)))
      expect(clock.now() - endedMs).toBeGreaterThan(5000)
      drain.abort()
      await following
    }),
  )

  test('an onStart that throws fails the run, and the sinks are closed', () =>
    inWorld(async ({ pipeline, run, clock }) => {
      const sink = new ListSink<Change>()
      const onStart = (): never => {
        throw failure
      }
      await expect(runPipeline(pipeline({ sink }), { ...run, onStart })).rejects.toBe(failure)
      expect(sink.closes).toBe(1)
      expect(clock.pendingTimers).toBe(0)
    }))

  test('P12: a lane() that throws is a SinkError of that sink, without row content', () =>
    inWorld(async ({ pipeline, run, commit, logs }) => {
      commit(3, 'planted-secret')
      const sink: Sink<Change> = {
        name: 'laneless',
        lane(change) {
          throw new TypeError(`no lane for ${noteOf(change)}`)
        },
        write: () => Promise.resolve(),
        close: () => Promise.resolve(),
      }
      await expect(runPipeline(pipeline({ sink, onError: skip() }), run)).rejects.toMatchObject({
        name: 'SinkError',
        code: 'SINK_WRITE',
        message: 'laneless: lane() threw TypeError',
        cause: expect.any(TypeError),
      })
      expect(JSON.stringify(logs)).not.toContain('planted')
    }))
})

describe('runPipeline, when it is closed', () => {
  test('P11: a sink whose close() hangs is left behind and named', () =>
    inWorld(async ({ pipeline, run, commit, clock, until, logs }) => {
      commit(3)
      const sink = new ListSink<Change>()
      sink.close = () => new Promise(() => undefined)
      const close = new AbortController()
      const ended = runPipeline(pipeline({ sink }), { ...run, close: close.signal })
      await until(() => sink.items.length === 3)
      const closedMs = clock.now()
      close.abort()
      expect(await ended).toMatchObject({ outcome: 'closed', written: 3 })
      expect(clock.now() - closedMs).toBeLessThan(10_000)
      expect(logs.map(({ message }) => message)).toContainEqual(expect.stringMatching(/^listSink did not close/))
    }))

  test.each(['drain', 'close'] as const)('P11: a %s ends a run whose client ignores its signal', (how) =>
    inWorld(async ({ stream, pipeline, run, clock }) => {
      const simulated = stream.client()
      const client: ChangeStreamClient = {
        describe: () => new Promise(() => undefined),
        query: (query, signal) => simulated.query(query, signal),
        close: () => simulated.close(),
      }
      const stopped = new AbortController()
      const ended = runPipeline(pipeline({ client }), { ...run, [how]: stopped.signal })
      await sleep(clock, 100)
      const stoppedMs = clock.now()
      stopped.abort()
      expect(await ended).toMatchObject({ outcome: how === 'drain' ? 'drained' : 'closed', delivered: 0 })
      expect(clock.now() - stoppedMs).toBeLessThan(10_000)
    }),
  )

  test("P7: with onSettleTimeout 'retry' a sink that is stuck for long does not let repeats pile up", () =>
    inWorld(async ({ pipeline, run, commit, clock, until }) => {
      commit(300)
      const sink = new GatedSink<Change>()
      const drain = new AbortController()
      let running: RunningPipeline | undefined
      const ended = runPipeline(
        pipeline({ sink, maxInFlight: 50, settleTimeoutMs: 1000, onSettleTimeout: 'retry', drainTimeoutMs: 600_000 }),
        {
          ...run,
          drain: drain.signal,
          onStart: (started) => {
            running = started
          },
        },
      )
      await sleep(clock, 900_000)
      // So often was it all handed out again: none of that may still be held.
      expect(running!.status().delivered).toBeGreaterThan(5000)
      sink.open()
      drain.abort()
      await until(() => running!.status().state === 'ended')
      await ended
      expect(sink.items.length).toBeLessThanOrEqual(300 + 3 * 50)
    }))
})

describe('runPipeline, given steps', () => {
  test('that return nothing: refuses them with a hint', () =>
    inWorld(async ({ pipeline, run }) => {
      const sink = new ListSink<Change>()
      const steps = (() => undefined) as never
      await expect(runPipeline(pipeline({ sink, steps }), run)).rejects.toMatchObject({
        name: 'ConfigError',
        message: 'definePipeline: steps must return the stream',
        hint: expect.stringContaining('return'),
      })
      expect(sink.closes).toBe(1)
    }))

  test('that return any async iterable of items: it carries them', () =>
    inWorld(async ({ stream, pipeline, run, commit }) => {
      commit(5)
      const sink = new ListSink<Change>()
      const steps = async function* (changes: AsyncIterable<Item<Change>>) {
        yield* changes
      }
      const summary = await runPipeline(pipeline({ end: lastCommit(stream), sink, steps: steps as never }), run)
      expect(summary).toMatchObject({ outcome: 'finished', settled: 5, written: 5 })
    }))
})

/** One row is changed ten times, and the change at `place` fails. */
async function stopsAt(place: number, kind: 'map' | 'parMap', world: World): Promise<void> {
  const { stream, pipeline, run, commitOneRow, clock } = world
  commitOneRow(10)
  const notes = Array.from({ length: 10 }, (_, n) => String(n))
  const handled: string[] = []
  const save = (change: Change): string => {
    handled.push(noteOf(change))
    if (noteOf(change) === String(place)) throw failure
    return noteOf(change)
  }
  const step =
    kind === 'map' ? map(save) : parMap(async (change: Change) => save(change), { concurrency: 4, order: 'key', clock })
  const first = new ListSink<string>()
  const failing = pipeline<string>({ steps: (changes) => changes.pipe(step), sink: first, onError: stop() })
  await expect(runPipeline(failing, run)).rejects.toMatchObject({ code: 'OPERATOR_FAILED', cause: failure })
  expect(handled, `place ${place}`).toEqual(notes.slice(0, place + 1))
  expect(first.items, `place ${place}`).toEqual(notes.slice(0, Math.min(place, first.items.length)))

  const second = new ListSink<string>()
  const end = lastCommit(stream)
  await runPipeline(pipeline<string>({ end, steps: (changes) => changes.pipe(map(noteOf)), sink: second }), run)
  expect(second.items, `place ${place}`).toEqual(notes.slice(first.items.length))
}

/** Row 3 fails, row 4 hangs and ignores every signal, the others are fine. */
function hangOrFail(change: Change): Promise<void> {
  if (idOf(change) === 'row 3') return Promise.reject(failure)
  if (idOf(change) === 'row 4') return new Promise(() => undefined)
  return Promise.resolve()
}
