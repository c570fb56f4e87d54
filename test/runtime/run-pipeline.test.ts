import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import { skip, stop } from '../../src/core/error-policy.ts'
import { SinkError } from '../../src/core/errors.ts'
import { isMark, operator } from '../../src/core/stage.ts'
import type { Sink } from '../../src/core/types.ts'
import type { ChangeStreamClient } from '../../src/model/change-stream.ts'
import { type Change, changeId } from '../../src/model/data-change-record.ts'
import { map, parMap } from '../../src/operators/index.ts'
import { definePipeline, type PipelineOptions } from '../../src/runtime/define-pipeline.ts'
import { type RunningPipeline, runPipeline } from '../../src/runtime/run-pipeline.ts'
import { from } from '../../src/sources/index.ts'
import { memoryPartitionStore } from '../../src/stores/index.ts'
import { GatedSink, hungSink, inWorld, ListSink, lastCommit } from './pipeline-world.ts'

describe('runPipeline', () => {
  test('P1: carries everything to the sink, ends by itself at the end, and says what it did', () =>
    inWorld(async ({ stream, pipeline, run, commit, clock }) => {
      commit(30)
      const sink = new ListSink<string>()
      const started = clock.now()
      const summary = await runPipeline(
        pipeline<string>({ end: lastCommit(stream), sink, steps: (changes) => changes.pipe(map(changeId)) }),
        run,
      )
      expect(sink.items.toSorted()).toEqual(stream.ledger.changes.map(({ id }) => id).toSorted())
      expect(summary).toEqual({
        pipeline: 'test',
        outcome: 'finished',
        delivered: 30,
        settled: 30,
        skipped: 0,
        written: 30,
        rereads: 0,
        elapsedMs: clock.now() - started,
        lowWatermark: lastCommit(stream),
        unsettled: 0,
      })
      expect(sink.closes).toBe(1)
      expect(clock.pendingTimers).toBe(0)
    }))

  test('D15: a run whose partitions are all finished ends at once with an empty summary', () =>
    inWorld(async ({ stream, pipeline, run, commit }) => {
      commit(3)
      const end = lastCommit(stream)
      await runPipeline(pipeline({ end }), run)
      expect(await runPipeline(pipeline({ end }), run)).toMatchObject({ outcome: 'finished', delivered: 0, written: 0 })
    }))

  test('a delivery is settled when every sink has it', () =>
    inWorld(async ({ pipeline, run, commit, until }) => {
      commit(5)
      const quick = new ListSink<Change>()
      const slow = new GatedSink<Change>()
      const drain = new AbortController()
      let running: RunningPipeline | undefined
      const ended = runPipeline(pipeline({ sink: [quick, slow] }), {
        ...run,
        drain: drain.signal,
        onStart: (started) => {
          running = started
        },
      })
      await until(() => quick.items.length === 5)
      expect(running!.status()).toMatchObject({ state: 'running', settled: 0, inFlight: 5, written: 5 })
      slow.open()
      await until(() => running!.status().settled === 5)
      drain.abort()
      expect(await ended).toMatchObject({ outcome: 'drained', settled: 5, written: 10, unsettled: 0 })
      expect(running!.status().state).toBe('ended')
    }))

  test('one failing sink of several stops the run, and what the other has comes again', () =>
    inWorld(async ({ stream, pipeline, run, commit }) => {
      commit(3)
      const good = new ListSink<Change>()
      const bad: Sink<Change> = {
        name: 'bad',
        write: () => Promise.reject(new Error('no')),
        close: async () => undefined,
      }
      await expect(runPipeline(pipeline({ sink: [good, bad], onError: stop() }), run)).rejects.toMatchObject({
        code: 'SINK_WRITE',
      })
      expect(good.items.length).toBeGreaterThan(0)

      const again = new ListSink<Change>()
      await runPipeline(pipeline({ sink: again, end: lastCommit(stream) }), run)
      expect(again.items.map(changeId).toSorted()).toEqual(stream.ledger.changes.map(({ id }) => id).toSorted())
    }))

  test('P11: a drain finishes what is in flight, stores it, and leaves nothing for the next run', () =>
    inWorld(async ({ stream, pipeline, run, commit, until, clock }) => {
      commit(10)
      const sink = new GatedSink<Change>()
      const drain = new AbortController()
      let running: RunningPipeline | undefined
      const onStart = (started: RunningPipeline): void => {
        running = started
      }
      const ended = runPipeline(pipeline({ sink }), { ...run, drain: drain.signal, onStart })
      await until(() => running!.status().inFlight === 10)
      drain.abort()
      await sleep(clock, 1000)
      expect(running!.status().state).toBe('draining')
      sink.open()
      expect(await ended).toMatchObject({ outcome: 'drained', settled: 10, unsettled: 0 })
      expect(clock.pendingTimers).toBe(0)

      const again = new ListSink<Change>()
      await runPipeline(pipeline({ sink: again, end: stream.now() }), run)
      expect(again.items).toEqual([])
    }))

  test('P11: a drain that takes longer than drainTimeoutMs closes; what was open comes again', () =>
    inWorld(async ({ stream, pipeline, run, commit, until, clock }) => {
      commit(4)
      const drain = new AbortController()
      let running: RunningPipeline | undefined
      const ended = runPipeline(pipeline({ sink: new GatedSink(), drainTimeoutMs: 5000 }), {
        ...run,
        drain: drain.signal,
        onStart: (started) => {
          running = started
        },
      })
      await until(() => running!.status().inFlight === 4)
      const drainedAtMs = clock.now()
      drain.abort()
      expect(await ended).toMatchObject({ outcome: 'drained', settled: 0, unsettled: 4 })
      expect(clock.now() - drainedAtMs).toBe(5000)

      const again = new ListSink<Change>()
      await runPipeline(pipeline({ sink: again, end: lastCommit(stream) }), run)
      expect(again.items).toHaveLength(4)
    }))

  test('P11: a close ends the run at once and counts what was open', () =>
    inWorld(async ({ pipeline, run, commit, until }) => {
      commit(4)
      const close = new AbortController()
      let running: RunningPipeline | undefined
      const ended = runPipeline(pipeline({ sink: new GatedSink() }), {
        ...run,
        close: close.signal,
        onStart: (started) => {
          running = started
        },
      })
      await until(() => running!.status().inFlight === 4)
      close.abort()
      expect(await ended).toMatchObject({ outcome: 'closed', unsettled: 4 })
    }))

  test.each(['drain', 'close'] as const)('P11: a %s that came before the run ends it', (how) =>
    inWorld(async ({ pipeline, run, commit, clock }) => {
      commit(4)
      const sink = new ListSink<Change>()
      const summary = await runPipeline(pipeline({ sink }), { ...run, [how]: AbortSignal.abort() })
      expect(summary).toMatchObject({ outcome: how === 'drain' ? 'drained' : 'closed', delivered: 0 })
      expect(sink.items).toEqual([])
      expect(sink.closes).toBe(1)
      expect(clock.pendingTimers).toBe(0)
    }),
  )

  test('P11: a hung sink is abandoned after the grace time, and the leases are kept', () =>
    inWorld(async ({ pipeline, run, commit, until, clock }) => {
      commit(4)
      const close = new AbortController()
      let running: RunningPipeline | undefined
      const ended = runPipeline(pipeline({ sink: hungSink, leaseMs: 60_000 }), {
        ...run,
        close: close.signal,
        onStart: (started) => {
          running = started
        },
      })
      await until(() => running!.status().inFlight === 4)
      const closedAtMs = clock.now()
      close.abort()
      expect(await ended).toMatchObject({ outcome: 'closed', unsettled: 4 })
      expect(clock.now() - closedAtMs).toBeLessThanOrEqual(10_000)

      // Something may still be written: whoever comes next waits until the leases have run out.
      const again = new ListSink<Change>()
      const drain = new AbortController()
      const next = runPipeline(pipeline({ sink: again }), { ...run, drain: drain.signal, owner: 'next' })
      await until(() => again.items.length === 4)
      expect(clock.now() - closedAtMs).toBeGreaterThan(50_000)
      drain.abort()
      await next
    }))

  test('the error that stopped a run is its rejection; the sink is closed and progress is kept', () =>
    inWorld(async ({ stream, pipeline, run, commit, clock }) => {
      commit(6)
      const failure = new SinkError('disk full')
      const first = new ListSink<Change>()
      let writes = 0
      const sink: Sink<Change> = {
        name: 'failing',
        maxBatchItems: 1,
        lane: (_, key) => key,
        async write(items) {
          if (++writes === 4) throw failure
          await first.write(items)
        },
        close: () => first.close(),
      }
      await expect(runPipeline(pipeline({ sink, onError: stop() }), run)).rejects.toBe(failure)
      expect(first.closes).toBe(1)
      expect(clock.pendingTimers).toBe(0)

      const second = new ListSink<Change>()
      await runPipeline(pipeline({ sink: second, end: lastCommit(stream) }), run)
      const ids = new Set([...first.items, ...second.items].map(changeId))
      expect([...ids].toSorted()).toEqual(stream.ledger.changes.map(({ id }) => id).toSorted())
    }))

  test('steps that throw when they are built fail the run, and the sink is closed', () =>
    inWorld(async ({ pipeline, run }) => {
      const sink = new ListSink<Change>()
      const failure = new TypeError('wrong steps')
      const steps = (): never => {
        throw failure
      }
      await expect(runPipeline(pipeline({ sink, steps }), run)).rejects.toBe(failure)
      expect(sink.closes).toBe(1)
    }))

  test('a failure while the source is idle ends the run as well', () =>
    inWorld(async ({ pipeline, run, commit, clock }) => {
      commit(1)
      const failure = new SinkError('gone')
      const sink: Sink<Change> = {
        name: 'late',
        async write() {
          await sleep(clock, 600_000)
          throw failure
        },
        close: async () => undefined,
      }
      await expect(runPipeline(pipeline({ sink, onError: stop() }), run)).rejects.toBe(failure)
    }))

  test('D19: what is read again after a forgotten ack does not count as open at the end', () =>
    inWorld(async ({ stream, pipeline, run, commit }) => {
      commit(5)
      let forgotten = 0
      const forgetOne = operator<Change, Change>(async function* (source) {
        for await (const item of source) if (isMark(item) || forgotten++ > 0) yield item
      })
      const summary = await runPipeline(
        pipeline<Change>({
          end: lastCommit(stream),
          steps: (changes) => changes.pipe(forgetOne),
          settleTimeoutMs: 5000,
          onSettleTimeout: 'retry',
        }),
        run,
      )
      expect(summary).toMatchObject({ outcome: 'finished', unsettled: 0 })
      expect(summary.delivered).toBeGreaterThan(5)
    }))

  test('maxInFlight 1 handles strictly one at a time', () =>
    inWorld(async ({ stream, pipeline, run, commit, clock }) => {
      commit(25)
      let working = 0
      let most = 0
      const order: string[] = []
      await runPipeline(
        pipeline<Change>({
          end: lastCommit(stream),
          maxInFlight: 1,
          steps: (changes) =>
            changes.pipe(
              parMap(
                async (change) => {
                  most = Math.max(most, ++working)
                  await sleep(clock, 7)
                  working--
                  order.push(changeId(change))
                  return change
                },
                { concurrency: 10, clock },
              ),
            ),
        }),
        run,
      )
      expect(most).toBe(1)
      expect(order).toHaveLength(25)
    }))

  test('P7: a sink stalled for a simulated hour holds memory flat and loses no stream', () =>
    inWorld(async ({ stream, pipeline, run, clock, until, logs }) => {
      const rows = Array.from({ length: 10 }, (_, n) => ({ Id: `row ${n}` }))
      for (const keys of rows) stream.commit([{ table: 'Orders', op: 'insert', keys }])
      expect(new Set(rows.map((keys) => stream.partitionOf('Orders', keys))).size).toBe(2)
      const sink = new GatedSink<Change>()
      const counted = countedClient(stream.client())
      const drain = new AbortController()
      let running: RunningPipeline | undefined
      const ended = runPipeline(pipeline({ sink, client: counted.client, maxInFlight: 50, settleTimeoutMs: 0 }), {
        ...run,
        drain: drain.signal,
        onStart: (started) => {
          running = started
        },
      })
      const samples: { inFlight: number; parts: number; heap: number }[] = []
      for (let minute = 0; minute < 60; minute++) {
        for (let n = 0; n < 120; n++) {
          stream.commit([{ table: 'Orders', op: 'update', keys: rows[n % 10]!, values: { Note: 'x'.repeat(10) } }])
          await sleep(clock, 500)
        }
        const { inFlight } = running!.status()
        samples.push({ inFlight, parts: counted.parts, heap: heapUsed() })
      }
      // From the second minute on nothing moves: not the budget, not the reader. The stream itself grows meanwhile.
      const [first, ...later] = samples.slice(2)
      expect(first!.inFlight).toBe(50)
      for (const { inFlight, parts } of later) {
        expect({ inFlight, parts }).toEqual({ inFlight: first!.inFlight, parts: first!.parts })
      }
      const streamBytes = 3000 * (stream.ledger.changes.length - 240)
      expect(later.at(-1)!.heap - first!.heap).toBeLessThan(streamBytes + 8 * 2 ** 20)

      sink.open()
      await until(() => sink.items.length === stream.ledger.changes.length)
      drain.abort()
      expect(await ended).toMatchObject({ outcome: 'drained', unsettled: 0 })
      expect(new Set(sink.items.map(changeId)).size).toBe(stream.ledger.changes.length)
      expect(logs.filter(({ message }) => message.includes('went silent'))).toEqual([])
    }))

  test('P12: row values never appear in error messages or log fields', () =>
    inWorld(async ({ pipeline, run, commit, logs, stream, clock }) => {
      commit(3, 'planted-secret')
      const end = lastCommit(stream)
      const leaky = async (change: Change): Promise<never> => {
        throw new Error(`cannot save ${JSON.stringify(change)}`)
      }
      const steps = (changes: Parameters<NonNullable<PipelineOptions<Change, never>['steps']>>[0]) =>
        changes.pipe(parMap(leaky, { concurrency: 2, clock }))
      const failing: Sink<Change> = {
        name: 'leaky',
        write: (items) => Promise.reject(new Error(`cannot write ${JSON.stringify(items)}`)),
        close: () => Promise.reject(new Error('planted-secret in close')),
      }
      const messages: string[] = []
      for (const options of [{ steps }, { sink: failing }]) {
        await runPipeline(pipeline<never>({ ...options, onError: stop() } as never), run).catch((error: Error) =>
          messages.push(error.message),
        )
      }
      await runPipeline(pipeline<never>({ steps, onError: skip(), end } as never), run)
      expect(messages).toHaveLength(2)
      expect(messages.join()).not.toContain('planted')
      expect(logs.length).toBeGreaterThan(0)
      expect(JSON.stringify(logs)).not.toContain('planted')
    }))

  test('serves without Spanner too: any iterable through the same sinks and policies', async () => {
    const sink = new ListSink<number>()
    const summary = await runPipeline(
      definePipeline({
        source: from([1, 2, 3, 4]),
        steps: (numbers) =>
          numbers.pipe(
            map((n) => {
              if (n === 3) throw new Error('three')
              return n * 10
            }),
          ),
        sink,
        onError: skip(),
        store: memoryPartitionStore(),
      }),
    )
    expect(sink.items).toEqual([10, 20, 40])
    expect(summary).toMatchObject({ pipeline: 'from', outcome: 'finished', delivered: 4, settled: 4, skipped: 1 })
  })
})

function countedClient(client: ChangeStreamClient): { readonly client: ChangeStreamClient; readonly parts: number } {
  const counted = {
    parts: 0,
    client: {
      describe: (signal) => client.describe(signal),
      close: () => client.close(),
      async *query(query, signal) {
        for await (const part of client.query(query, signal)) {
          counted.parts++
          yield part
        }
      },
    } satisfies ChangeStreamClient,
  }
  return counted
}

/** Without what a collection can free. */
function heapUsed(): number {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  collect()
  return process.memoryUsage().heapUsed
}
