import { describe, expect, test } from 'vitest'
import { type ErrorPolicy, errorPolicy, retry, stop } from '../../src/core/error-policy.ts'
import { SinkError } from '../../src/core/errors.ts'
import type { Sink } from '../../src/core/types.ts'
import { SinkLanes } from '../../src/runtime/sink-lanes.ts'
import { RecordingClock, settled } from '../support/recording-clock.ts'
import { RecordingOrigin } from '../support/recording-origin.ts'

/** Every write waits until the test lets it end. */
class ManualSink implements Sink<string> {
  readonly name = 'manualSink'
  readonly writes: (PromiseWithResolvers<void> & { readonly items: readonly string[] })[] = []
  readonly lane?: (item: string) => string
  readonly maxBatchItems?: number

  constructor({ lane, maxBatchItems }: { lane?: (item: string) => string; maxBatchItems?: number } = {}) {
    if (lane) this.lane = lane
    if (maxBatchItems) this.maxBatchItems = maxBatchItems
  }

  write(items: readonly string[]): Promise<void> {
    const write = { ...Promise.withResolvers<void>(), items: [...items] }
    this.writes.push(write)
    return write.promise
  }

  close(): Promise<void> {
    return Promise.resolve()
  }

  get items(): string[] {
    return this.writes.map(({ items }) => items.join(' '))
  }
}

interface Bench {
  readonly clock: RecordingClock
  readonly origin: RecordingOrigin
  readonly abort: AbortController
  readonly lanes: SinkLanes<string>
  readonly failures: unknown[]
  written: number
  /** Adds values; the key is the first letter. */
  add(...values: string[]): void
}

function bench(sink: Sink<string>, policy: ErrorPolicy = stop()): Bench {
  const clock = new RecordingClock()
  const origin = new RecordingOrigin(policy)
  const abort = new AbortController()
  const failures: unknown[] = []
  const made: Bench = {
    clock,
    origin,
    abort,
    failures,
    written: 0,
    lanes: new SinkLanes(sink, {
      clock,
      signal: abort.signal,
      onWritten: (items) => {
        made.written += items
      },
      onFailed: (error) => failures.push(error),
    }),
    add: (...values) => made.lanes.add(values.map((value) => origin.make(value, value[0]!))),
  }
  return made
}

const byKey = (item: string): string => item[0]!

describe('SinkLanes', () => {
  test('lanes are written in parallel, and one never overtakes itself', async () => {
    const sink = new ManualSink({ lane: byKey, maxBatchItems: 1 })
    const { add, origin } = bench(sink)
    add('a1', 'b1', 'a2', 'c1', 'b2')
    await settled()
    expect(sink.items).toEqual(['a1', 'b1', 'c1'])
    sink.writes[1]!.resolve()
    await settled()
    expect(sink.items).toEqual(['a1', 'b1', 'c1', 'b2'])
    expect(origin.acks).toEqual([1])
    sink.writes[0]!.resolve()
    await settled()
    expect(sink.items.at(-1)).toBe('a2')
  })

  test('a sink without lanes gets everything in order, one write at a time, as large as allowed', async () => {
    const sink = new ManualSink({ maxBatchItems: 3 })
    const { add, lanes } = bench(sink)
    add('a1', 'b1', 'a2', 'c1')
    add('d1')
    await settled()
    expect(sink.items).toEqual(['a1 b1 a2'])
    sink.writes[0]!.resolve()
    await settled()
    expect(sink.items).toEqual(['a1 b1 a2', 'c1 d1'])
    expect(lanes.pending).toBe(2)
  })

  test('an item is acked when the sink has it, not before', async () => {
    const sink = new ManualSink()
    const made = bench(sink)
    made.add('a1', 'b1')
    await settled()
    expect([made.origin.acks, made.written]).toEqual([[], 0])
    sink.writes[0]!.resolve()
    await settled()
    expect([made.origin.acks, made.written, made.lanes.pending]).toEqual([[0, 1], 2, 0])
  })

  test('P3: a failed write is tried again in place, and what comes later waits behind it', async () => {
    const sink = new ManualSink({ lane: byKey, maxBatchItems: 1 })
    const { add, clock, origin } = bench(
      sink,
      errorPolicy((_, { attempt }) => ({ retryInMs: 100 * attempt })),
    )
    add('a1', 'a2', 'b1')
    await settled()
    sink.writes[0]!.reject(new Error('busy'))
    sink.writes[1]!.resolve()
    await clock.advance(99)
    expect(sink.items).toEqual(['a1', 'b1'])
    await clock.advance(1)
    expect(sink.items).toEqual(['a1', 'b1', 'a1'])
    sink.writes[2]!.reject(new Error('busy'))
    await clock.advance(200)
    sink.writes[3]!.resolve()
    await settled()
    expect(sink.items).toEqual(['a1', 'b1', 'a1', 'a1', 'a2'])
    expect(origin.acks).toEqual([2, 0])
  })

  test('P3: of half a batch the failed items are written again, with those of their keys that follow', async () => {
    const sink = new ManualSink()
    const made = bench(
      sink,
      errorPolicy(() => ({ retryInMs: 10 })),
    )
    made.add('a1', 'b1', 'a2', 'c1', 'a3')
    await settled()
    // a2 failed; a3 was not tried, since it follows a2.
    sink.writes[0]!.reject(new SinkError('half', { retryable: true, failedItems: [2] }))
    await settled()
    expect(made.origin.acks).toEqual([0, 1, 3])
    expect(made.written).toBe(3)
    await made.clock.advance(10)
    expect(sink.items).toEqual(['a1 b1 a2 c1 a3', 'a2 a3'])
    sink.writes[1]!.resolve()
    await settled()
    expect(made.origin.acks).toEqual([0, 1, 3, 2, 4])
  })

  test('skip gives up the bad item alone', async () => {
    const bad = new Set(['b1'])
    const written: string[] = []
    const sink: Sink<string> = {
      name: 'picky',
      async write(items) {
        if (items.some((item) => bad.has(item))) throw new Error('refused')
        written.push(...items)
      },
      close: () => Promise.resolve(),
    }
    const made = bench(
      sink,
      errorPolicy((_, { attempt }) => (attempt < 2 ? { retryInMs: 5 } : 'skip')),
    )
    made.add('a1', 'b1', 'c1')
    await made.clock.advance(100)
    expect(written).toEqual(['a1', 'c1'])
    expect(made.origin.nacks.map(({ value, id }) => [value, id])).toEqual([['b1', 'r1']])
    expect(made.origin.acks).toEqual([0, 2])
    expect(made.failures).toEqual([])
  })

  test('after a skip the items that are written one by one get all their tries', async () => {
    const tries = new Map<string, number>()
    const written: string[] = []
    const sink: Sink<string> = {
      name: 'picky',
      async write(items) {
        if (items.includes('bad')) throw new Error('refused')
        const [item] = items
        if (items.length > 1 || item === undefined) throw new Error('only one by one')
        tries.set(item, (tries.get(item) ?? 0) + 1)
        if (item === 'good' && tries.get(item) === 1) throw new Error('a passing trouble')
        written.push(item)
      },
      close: () => Promise.resolve(),
    }
    const made = bench(sink, retry({ attempts: 3 }).thenSkip())
    made.add('fine', 'bad', 'good')
    await made.clock.advance(10_000)
    expect(written).toEqual(['fine', 'good'])
    expect(made.origin.nacks).toMatchObject([{ value: 'bad', attempt: 3, decision: 'skip' }])
    expect(made.origin.acks).toEqual([0, 2])
  })

  test('P12: a lane() that throws fails with a SinkError that names the sink and hides the item', () => {
    const cause = new RangeError('planted-value')
    const { lanes, origin } = bench({
      name: 'laneless',
      lane() {
        throw cause
      },
      write: () => Promise.resolve(),
      close: () => Promise.resolve(),
    })
    const add = (): void => lanes.add([origin.make('planted-value')])
    expect(add).toThrow(new SinkError('laneless: lane() threw RangeError', { cause }))
  })

  test('stop nacks the batch, tells once, and writes nothing more', async () => {
    const sink = new ManualSink({ maxBatchItems: 2 })
    const made = bench(sink)
    made.add('a1', 'b1', 'c1')
    await settled()
    const cause = new Error('planted-value')
    sink.writes[0]!.reject(cause)
    await expect(made.lanes.below(1)).rejects.toMatchObject({ code: 'SINK_WRITE', cause })
    await made.lanes.stopped()
    expect(made.failures).toHaveLength(1)
    expect((made.failures[0] as Error).message).toBe('manualSink: writing failed')
    expect(made.origin.nacks.map(({ value }) => value)).toEqual(['a1', 'b1'])
    expect(sink.items).toEqual(['a1 b1'])
  })

  test('below waits for room and no longer', async () => {
    const sink = new ManualSink({ maxBatchItems: 1 })
    const { add, lanes } = bench(sink)
    add('a1', 'b1', 'c1')
    let hasRoom = false
    const room = lanes.below(2).then(() => {
      hasRoom = true
    })
    await settled()
    sink.writes[0]!.resolve()
    await settled()
    expect(hasRoom).toBe(false)
    sink.writes[1]!.resolve()
    await room
    await lanes.below(2)
  })

  test('P11: after an abort nothing new is written, and stopped waits for the write under way', async () => {
    const sink = new ManualSink({ maxBatchItems: 1 })
    const { add, abort, lanes, origin } = bench(sink)
    add('a1', 'b1')
    await settled()
    abort.abort(new Error('closed'))
    let isStopped = false
    const stopped = lanes.stopped().then(() => {
      isStopped = true
    })
    await settled()
    expect(isStopped).toBe(false)
    sink.writes[0]!.resolve()
    await stopped
    expect(sink.items).toEqual(['a1'])
    expect(origin.acks).toEqual([0])
  })

  test('P11: an abort ends the wait for the next try', async () => {
    const sink = new ManualSink()
    const { add, abort, clock, lanes } = bench(
      sink,
      errorPolicy(() => ({ retryInMs: 60_000 })),
    )
    add('a1')
    await settled()
    sink.writes[0]!.reject(new Error('busy'))
    await settled()
    abort.abort(new Error('closed'))
    await lanes.stopped()
    expect(clock.waiting).toBe(0)
    expect(sink.items).toEqual(['a1'])
  })

  test('a lane that is empty is forgotten: as many keys as there may ever be cost nothing', async () => {
    const sink = new ManualSink({ lane: byKey })
    const { add } = bench(sink)
    add('a1')
    await settled()
    sink.writes[0]!.resolve()
    await settled()
    add('a2')
    await settled()
    expect(sink.items).toEqual(['a1', 'a2'])
  })
})
