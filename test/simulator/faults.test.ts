import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import { SourceError } from '../../src/core/errors.ts'
import type { ChangeStreamClient, PartitionQuery, QueryPart } from '../../src/model/change-stream.ts'
import { timestampFromMs } from '../../src/model/commit-timestamp.ts'
import { changeId, changesOf } from '../../src/model/data-change-record.ts'
import {
  GRPC_CODES,
  type GrpcCode,
  randomWorkload,
  SimulatedStream,
  type SimulatedStreamOptions,
  VirtualClock,
} from '../../src/simulator/index.ts'
import { collect, neverAborted, readPatiently } from './patient-reader.ts'

const RETRYABLE: readonly GrpcCode[] = [
  'UNAVAILABLE',
  'DEADLINE_EXCEEDED',
  'INTERNAL',
  'RESOURCE_EXHAUSTED',
  'ABORTED',
  'CANCELLED',
  'UNKNOWN',
]

interface Scene {
  readonly clock: VirtualClock
  readonly stream: SimulatedStream
  readonly client: ChangeStreamClient
  /** Reads one ended partition with ten data records, one per message, and one child record. */
  readonly query: PartitionQuery
}

function scene(options: Partial<SimulatedStreamOptions> = {}): Scene {
  const clock = new VirtualClock({ maxSimulatedMs: 86_400_000 })
  const stream = new SimulatedStream({
    seed: 1,
    clock,
    initialPartitions: 1,
    maxPartRecords: 1,
    resumeTokenChance: 1,
    ...options,
  })
  stream.defineTable({ name: 'T', columns: [{ name: 'Id', type: 'INT64', isPrimaryKey: true }] })
  const { token } = stream.livePartitions()[0]!
  const start = stream.now()
  for (let Id = 0; Id < 10; Id++) stream.commit([{ table: 'T', op: 'insert', keys: { Id } }])
  stream.move(token)
  return { clock, stream, client: stream.client(), query: { token, start, end: null, heartbeatMs: 1000 } }
}

/** Parts until the query ends, and the error if it ended with one. */
async function outcome(
  client: ChangeStreamClient,
  query: PartitionQuery,
): Promise<{ parts: QueryPart[]; error: unknown }> {
  const parts: QueryPart[] = []
  try {
    for await (const part of client.query(query, neverAborted)) parts.push(part)
    return { parts, error: undefined }
  } catch (error) {
    return { parts, error }
  }
}

const kindsOf = (parts: readonly QueryPart[]): string[] => parts.flatMap((part) => part.records.map((r) => r.kind))
const DATA = new Array(10).fill('data')

describe('injectFaults', () => {
  test.each(Object.keys(GRPC_CODES) as GrpcCode[])('ends a query with %s', async (code) => {
    const { clock, stream, client, query } = scene()
    stream.injectFaults([{ message: 3, fault: { kind: 'error', code } }])
    const { parts, error } = await clock.run(() => outcome(client, query))
    expect(parts).toHaveLength(2)
    expect(error).toBeInstanceOf(SourceError)
    expect(error).toMatchObject({ retryable: RETRYABLE.includes(code), partition: query.token })
    expect((error as SourceError).cause).toMatchObject({ code: GRPC_CODES[code], status: code })
    expect(stream.ledger.faults).toMatchObject([{ kind: 'error', code, token: query.token, query: 1, message: 3 }])
    expect(stream.ledger.faultCounts).toMatchObject({ error: 1, stall: 0 })
  })

  test.each([
    ['before the first message', 1, []],
    ['in the middle', 6, DATA.slice(0, 5)],
    ['instead of the first child record', 'children', DATA],
    ['instead of the clean end', 'end', [...DATA, 'children']],
  ] as const)('breaks a query %s, once', async (_, message, expected) => {
    const { clock, stream, client, query } = scene({ maxPartRecords: 1 })
    stream.injectFaults([{ message, fault: { kind: 'error', code: 'UNAVAILABLE' } }])
    await clock.run(async () => {
      const broken = await outcome(client, query)
      expect(kindsOf(broken.parts)).toEqual(expected)
      expect(broken.error).toBeInstanceOf(SourceError)
      const whole = await outcome(client, query)
      expect(kindsOf(whole.parts)).toEqual([...DATA, 'children'])
      expect(whole.error).toBeUndefined()
    })
  })

  test('keeps child records out of the message before when one of them is to fail', async () => {
    const { clock, stream, client, query } = scene({ maxPartRecords: 100 })
    stream.injectFaults([{ message: 'children', fault: { kind: 'error', code: 'INTERNAL' } }])
    const { parts } = await clock.run(() => outcome(client, query))
    expect(kindsOf(parts)).toEqual(DATA)
  })

  test('strikes the query that was named, by token and number', async () => {
    const { clock, stream, client, query } = scene()
    const [child] = stream.livePartitions()
    stream.injectFaults([
      { token: query.token, query: 2, fault: { kind: 'error', code: 'ABORTED' } },
      { token: null, query: 1, fault: { kind: 'error', code: 'INTERNAL' } },
      { query: 5, fault: { kind: 'early-end' } },
    ])
    await clock.run(async () => {
      const root = { ...query, token: null }
      expect((await outcome(client, query)).error).toBeUndefined()
      expect((await outcome(client, query)).error).toMatchObject({ cause: { status: 'ABORTED' } })
      expect((await outcome(client, root)).error).toMatchObject({ cause: { status: 'INTERNAL' } })
      expect((await outcome(client, root)).parts).toHaveLength(1)
      expect(await outcome(client, { ...query, token: child!.token, start: child!.start })).toEqual({
        parts: [],
        error: undefined,
      })
    })
  })

  test('stalls: nothing comes any more until the query is cancelled, healed or not', async () => {
    const { clock, stream, client, query } = scene()
    stream.injectFaults([{ message: 3, fault: { kind: 'stall' } }])
    await clock.run(async () => {
      const abort = new AbortController()
      let parts = 0
      const reading = (async () => {
        for await (const _ of client.query(query, abort.signal)) parts++
      })()
      await sleep(clock, 600_000)
      stream.heal()
      await sleep(clock, 600_000)
      expect(parts).toBe(2)
      expect(stream.openQueries).toBe(1)
      const reason = new Error('stalled for too long')
      abort.abort(reason)
      await expect(reading).rejects.toBe(reason)
      expect(stream.openQueries).toBe(0)
    })
  })

  test('ends early without child records, but never after one of them', async () => {
    const { clock, stream, client, query } = scene()
    stream.injectFaults([
      { message: 4, fault: { kind: 'early-end' } },
      { message: 'end', fault: { kind: 'early-end' } },
    ])
    await clock.run(async () => {
      expect(await outcome(client, query)).toMatchObject({ parts: { length: 3 }, error: undefined })
      expect(kindsOf((await outcome(client, query)).parts)).toEqual([...DATA, 'children'])
    })
    expect(stream.ledger.faultCounts['early-end']).toBe(1)
  })

  test('does not end a query early between two child records, also when it continues by token', async () => {
    const { clock, stream, client } = scene({ seed: 4 })
    const { token, start } = stream.livePartitions()[0]!
    stream.split(token, 6)
    await clock.run(async () => {
      const query = { token, start, end: null, heartbeatMs: 1000 }
      const whole = await outcome(client, query)
      expect(whole.parts.length).toBeGreaterThan(1)
      stream.injectFaults({ earlyEnds: 1 })
      const resumeToken = whole.parts[0]!.resumeToken!
      const rest = await outcome(client, { ...query, resumeToken })
      expect(rest.parts).toHaveLength(whole.parts.length - 1)
    })
  })

  test('does not end a query early once its end has passed: that end would be true', async () => {
    const { clock, stream, client, query } = scene()
    stream.injectFaults({ earlyEnds: 1 })
    await clock.run(async () => {
      await sleep(clock, 1000)
      expect((await outcome(client, { ...query, end: stream.now() })).parts).toHaveLength(11)
      expect((await outcome(client, query)).parts).toHaveLength(0)
    })
  })

  test('returns the last records again after a resume', async () => {
    const { clock, stream, client, query } = scene()
    stream.injectFaults([{ fault: { kind: 'duplicate-tail', records: 2 } }])
    await clock.run(async () => {
      const { parts } = await outcome(client, query)
      const ids = (list: readonly QueryPart[]): string[] =>
        list.flatMap(({ records }) =>
          records.flatMap((entry) => (entry.kind === 'data' ? changesOf(entry.record).map(changeId) : [])),
        )
      const all = ids(parts)
      const resumed = await outcome(client, { ...query, resumeToken: parts[5]!.resumeToken! })
      expect(ids(resumed.parts)).toEqual(all.slice(4))
      const again = await outcome(client, { ...query, resumeToken: parts[5]!.resumeToken! })
      expect(ids(again.parts)).toEqual(all.slice(6))
    })
  })

  test('lets the first message take long', async () => {
    const { clock, stream, client, query } = scene()
    stream.injectFaults([{ fault: { kind: 'slow-start', delayMs: 45_000 } }])
    await clock.run(async () => {
      const beginMs = clock.now()
      await outcome(client, query)
      expect(clock.now() - beginMs).toBeGreaterThanOrEqual(45_000)
      expect(clock.now() - beginMs).toBeLessThan(45_100)
    })
  })

  test('kills all open queries at once with UNAVAILABLE, stalled ones as well', async () => {
    const { clock, stream, client, query } = scene()
    const [live] = stream.livePartitions()
    stream.injectFaults([
      { query: 1, fault: { kind: 'stall' } },
      { query: 3, message: 5, fault: { kind: 'kill-connection' } },
    ])
    await clock.run(async () => {
      const others = [query, { ...query, token: live!.token, start: live!.start }].map((q) => outcome(client, q))
      await sleep(clock, 10_000)
      expect(stream.openQueries).toBe(2)
      const killer = await outcome(client, query)
      expect(killer.parts).toHaveLength(4)
      for (const { error } of [killer, ...(await Promise.all(others))]) {
        expect(error).toMatchObject({ retryable: true, cause: { code: 14 } })
      }
      expect(stream.openQueries).toBe(0)
    })
  })

  test('kills a query whose reader is busy elsewhere', async () => {
    const { clock, stream, client, query } = scene()
    await clock.run(async () => {
      const iterator = client.query(query, neverAborted)[Symbol.asyncIterator]()
      await iterator.next()
      stream.killConnections()
      await expect(iterator.next()).rejects.toMatchObject({ cause: { status: 'UNAVAILABLE' } })
    })
  })

  test('refuses plans that make no sense', () => {
    const { stream } = scene()
    expect(() => stream.injectFaults({ errors: 2 })).toThrow('errors must be a chance from 0 to 1, got 2')
    expect(() => stream.injectFaults({ codes: ['OK' as GrpcCode] })).toThrow('no gRPC code OK')
  })

  test('P1: a patient reader loses nothing through any mix of faults by chance, and each kind happens', async () => {
    const counts: Record<string, number> = {}
    await fc.assert(
      fc.asyncProperty(fc.integer(), async (seed) => {
        const clock = new VirtualClock({ maxSimulatedMs: 30 * 86_400_000 })
        const stream = new SimulatedStream({ seed, clock, retentionMs: 30 * 86_400_000 })
        stream.injectFaults({
          errors: 0.1,
          stalls: 0.02,
          earlyEnds: 0.05,
          duplicateTails: 0.3,
          slowStarts: 0.05,
          kills: 0.01,
        })
        await clock.run(async () => {
          const start = stream.now()
          const end = timestampFromMs(clock.now() + 3000)
          const work = randomWorkload(stream, { seed, transactions: 100, keys: 8, topologyChance: 0.08 })
          const { changes } = await readPatiently(stream, start, end)
          await work
          const due = stream.ledger.changes.filter((change) => change.commitTimestamp <= end)
          expect(new Set(changes.map(changeId))).toEqual(new Set(due.map((change) => change.id)))
        })
        for (const [kind, count] of Object.entries(stream.ledger.faultCounts))
          counts[kind] = (counts[kind] ?? 0) + count
      }),
      { numRuns: 60 },
    )
    for (const [kind, count] of Object.entries(counts)) expect(count, kind).toBeGreaterThan(0)
  })
})

describe('heal', () => {
  test('ends all faults for good', async () => {
    const { clock, stream, client, query } = scene()
    stream.injectFaults({ errors: 1 })
    stream.injectFaults([{ fault: { kind: 'stall' } }])
    stream.heal()
    expect(await clock.run(() => collect(client, query))).toHaveLength(11)
    expect(stream.ledger.faults).toEqual([])
  })
})
