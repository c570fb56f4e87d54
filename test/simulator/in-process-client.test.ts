import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import { ClosedError, ConfigError, SourceError } from '../../src/core/errors.ts'
import type { PartitionQuery, QueryPart } from '../../src/model/change-stream.ts'
import { timestampFromMs, timestampToMs } from '../../src/model/commit-timestamp.ts'
import { changeId, changesOf, rowKey } from '../../src/model/data-change-record.ts'
import {
  randomWorkload,
  SimulatedStream,
  type SimulatedStreamOptions,
  VirtualClock,
} from '../../src/simulator/index.ts'
import { collect, neverAborted, readPatiently } from './patient-reader.ts'

const DAY_MS = 86_400_000

function shop(options: Partial<SimulatedStreamOptions> = {}): { clock: VirtualClock; stream: SimulatedStream } {
  const clock = new VirtualClock({ maxSimulatedMs: 30 * DAY_MS })
  const stream = new SimulatedStream({ seed: 1, clock, initialPartitions: 1, ...options })
  stream.defineTable({ name: 'T', columns: [{ name: 'Id', type: 'INT64', isPrimaryKey: true }] })
  return { clock, stream }
}

const insert = (Id: number) => ({ table: 'T', op: 'insert', keys: { Id } }) as const

function idsOf(parts: readonly QueryPart[]): string[] {
  return parts.flatMap(({ records }) =>
    records.flatMap((entry) => (entry.kind === 'data' ? changesOf(entry.record).map(changeId) : [])),
  )
}

/** Parts of a query until `count` of them came or it ended. */
async function take(
  stream: SimulatedStream,
  query: PartitionQuery,
  count = Number.POSITIVE_INFINITY,
): Promise<QueryPart[]> {
  const parts: QueryPart[] = []
  for await (const part of stream.client().query(query, neverAborted)) {
    parts.push(part)
    if (parts.length >= count) break
  }
  return parts
}

describe('client', () => {
  test('P1, P3: reading all partitions parents first gives exactly the ledger, in order per row', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer(), async (seed) => {
        const clock = new VirtualClock({ maxSimulatedMs: DAY_MS })
        const stream = new SimulatedStream({ seed, clock })
        await clock.run(async () => {
          const start = stream.now()
          const work = randomWorkload(stream, { seed, transactions: 120, keys: 10, topologyChance: 0.1 })
          const end = timestampFromMs(clock.now() + 2000)
          const { changes } = await readPatiently(stream, start, end)
          await work
          expectLedger(stream, changes, end)
        })
      }),
      { numRuns: 60 },
    )
  })

  test('gives commits in order as they come, and heartbeats that never lie', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer(), async (seed) => {
        const clock = new VirtualClock({ maxSimulatedMs: DAY_MS })
        const stream = new SimulatedStream({ seed, clock, tieChance: 0.4, latencyMs: [1, 3000] })
        await clock.run(async () => {
          const start = stream.now()
          const end = timestampFromMs(clock.now() + 60_000)
          const { token } = stream.livePartitions()[0]!
          const work = randomWorkload(stream, { seed, transactions: 60, pauseMs: 2000, topologyChance: 0 })
          let latest = start
          let heartbeat = ''
          const returned = new Set<string>()
          const heartbeats: { timestamp: string; returned: ReadonlySet<string> }[] = []
          for await (const { records } of stream
            .client()
            .query({ token, start, end, heartbeatMs: 500 }, neverAborted)) {
            for (const entry of records) {
              if (entry.kind !== 'data' && entry.kind !== 'heartbeat') continue
              const time = entry.kind === 'data' ? entry.record.commitTimestamp : entry.record.timestamp
              expect(time >= latest).toBe(true)
              expect(time > heartbeat).toBe(true)
              latest = time
              if (entry.kind === 'data') for (const change of changesOf(entry.record)) returned.add(changeId(change))
              else {
                heartbeat = time
                heartbeats.push({ timestamp: time, returned: new Set(returned) })
              }
            }
          }
          await work
          expect(heartbeats.length).toBeGreaterThan(5)
          for (const { timestamp, returned } of heartbeats) {
            const due = stream.ledger.changes.filter(
              (c) => c.partitionToken === token && c.commitTimestamp <= timestamp,
            )
            expect(returned).toEqual(new Set(due.map((change) => change.id)))
          }
        })
      }),
      { numRuns: 30 },
    )
  })

  test('sends a heartbeat each time that a partition was quiet for so long', async () => {
    const { clock, stream } = shop()
    await clock.run(async () => {
      const { token } = stream.livePartitions()[0]!
      const beginMs = clock.now()
      const times: number[] = []
      for await (const { records } of stream
        .client()
        .query({ token, start: stream.now(), end: null, heartbeatMs: 1000 }, neverAborted)) {
        expect(records).toHaveLength(1)
        const [entry] = records
        if (entry!.kind !== 'heartbeat') expect.fail('is not a heartbeat')
        else expect(timestampToMs(entry!.record.timestamp)).toBe(clock.now())
        times.push(clock.now() - beginMs)
        if (times.length === 3) break
      }
      const [first] = times as [number]
      expect(times).toEqual([first, first + 1000, first + 2000])
      expect(first).toBeLessThanOrEqual(1020)
    })
    expect(stream.openQueries).toBe(0)
  })

  test('returns everything at the start timestamp, and everything at the end timestamp', async () => {
    const { clock, stream } = shop({ tieChance: 0 })
    await clock.run(async () => {
      stream.commit([insert(1)])
      await sleep(clock, 10)
      const at = stream.commit([insert(2)])
      stream.commit([insert(3)], { tie: true })
      stream.commit([insert(4)], { tie: true })
      await sleep(clock, 10)
      stream.commit([insert(5)])
      await sleep(clock, 1000)
      const { token } = stream.livePartitions()[0]!
      const parts = await take(stream, { token, start: at, end: at, heartbeatMs: 1000 })
      expect(idsOf(parts).toSorted()).toEqual(
        stream.ledger.changes
          .slice(1, 4)
          .map((change) => change.id)
          .toSorted(),
      )
    })
  })

  test('continues behind any part by its resume token', async () => {
    const { clock, stream } = shop({ resumeTokenChance: 1, maxPartRecords: 3 })
    await clock.run(async () => {
      const start = stream.now()
      for (let id = 0; id < 30; id++) stream.commit([insert(id)])
      const { token } = stream.livePartitions()[0]!
      stream.split(token, 4)
      const query = { token, start, end: null, heartbeatMs: 1000 }
      const whole = await take(stream, query)
      const all = whole.flatMap((part) => part.records)
      for (const [index, { resumeToken }] of whole.entries()) {
        const rest = await take(stream, { ...query, resumeToken: resumeToken! })
        const before = whole.slice(0, index + 1).flatMap((part) => part.records)
        expect([...before, ...rest.flatMap((part) => part.records)]).toEqual(all)
      }
    })
  })

  test('continues the first query by its resume token', async () => {
    const { clock, stream } = shop({ resumeTokenChance: 1, maxPartRecords: 1, initialPartitions: 12 })
    await clock.run(async () => {
      const query = { token: null, start: stream.now(), end: null, heartbeatMs: 1000 }
      const whole = await take(stream, query)
      expect(whole.length).toBeGreaterThan(1)
      stream.move(stream.livePartitions()[0]!.token)
      const rest = await take(stream, { ...query, resumeToken: whole[0]!.resumeToken! })
      expect(rest.flatMap((part) => part.records)).toEqual(whole.slice(1).flatMap((part) => part.records))
    })
  })

  test('names the partitions that were live at the start of a first query, with that start', async () => {
    const { clock, stream } = shop()
    await clock.run(async () => {
      const early = stream.now()
      const [first] = stream.livePartitions()
      await sleep(clock, 1000)
      const children = stream.split(first!.token, 2)
      const { end } = stream.lineage()[0]!
      await sleep(clock, 1000)
      const tokensAt = async (start: string): Promise<string[]> => {
        const records = await collect(stream.client(), { token: null, start, end: null, heartbeatMs: 1000 })
        return records.flatMap((entry) => {
          if (entry.kind !== 'children') return []
          expect(entry.record.startTimestamp).toBe(start)
          return entry.record.children.map((child) => {
            expect(child.parentTokens).toEqual([])
            return child.token
          })
        })
      }
      expect(await tokensAt(early)).toEqual([first!.token])
      expect(await tokensAt(end!)).toEqual(children)
      expect(await tokensAt(stream.now())).toEqual(children)
    })
  })

  test('fixes the partitions of a start that is now: a split in the same instant comes after it', async () => {
    const { clock, stream } = shop({ latencyMs: [0, 0] })
    await clock.run(async () => {
      const start = stream.now()
      await collect(stream.client(), { token: null, start, end: null, heartbeatMs: 1000 })
      const { token } = stream.livePartitions()[0]!
      stream.split(token)
      expect(clock.now()).toBe(timestampToMs(start))
      expect(stream.lineage()[0]!.end! > start).toBe(true)
      const records = await collect(stream.client(), { token, start, end: null, heartbeatMs: 1000 })
      expect(records.every((entry) => entry.kind === 'children')).toBe(true)
    })
  })

  test('returns the child records again for a start at the end of a partition', async () => {
    const { clock, stream } = shop()
    await clock.run(async () => {
      stream.commit([insert(1)])
      const { token } = stream.livePartitions()[0]!
      const children = stream.split(token, 3)
      const at = stream.lineage()[0]!.end!
      stream.commit([insert(2)])
      const records = await collect(stream.client(), { token, start: at, end: null, heartbeatMs: 1000 })
      expect(records.every((entry) => entry.kind === 'children')).toBe(true)
      const announced = records.flatMap((entry) => (entry.kind === 'children' ? entry.record.children : []))
      expect(announced.map((child) => child.token)).toEqual(children)
    })
  })

  test('waits for a start that is less than ten minutes ahead', async () => {
    const { clock, stream } = shop()
    await clock.run(async () => {
      const startMs = clock.now() + 300_000
      const { token } = stream.livePartitions()[0]!
      await take(stream, { token, start: timestampFromMs(startMs), end: null, heartbeatMs: 1000 }, 1)
      expect(clock.now()).toBeGreaterThanOrEqual(startMs)
    })
  })

  test('ends cleanly when the end timestamp has passed, not earlier', async () => {
    const { clock, stream } = shop()
    await clock.run(async () => {
      const endMs = clock.now() + 5000
      const { token } = stream.livePartitions()[0]!
      const end = timestampFromMs(endMs)
      const records = await collect(stream.client(), { token, start: stream.now(), end, heartbeatMs: 1000 })
      expect(clock.now()).toBeGreaterThan(endMs)
      expect(clock.now()).toBeLessThan(endMs + 100)
      expect(records.length).toBeGreaterThanOrEqual(4)
      // Nothing can be committed up to the end any more: the query has said so.
      expect(stream.commit([insert(1)]) > end).toBe(true)
    })
  })

  describe('refuses', () => {
    const ago = (stream: SimulatedStream, ms: number): string => timestampFromMs(stream.clock.now() - ms)
    const cases: [name: string, code: string, change: (stream: SimulatedStream) => Partial<PartitionQuery>][] = [
      ['a start before the creation', 'OUT_OF_RANGE', (s) => ({ start: ago(s, 9 * DAY_MS) })],
      [
        'a start before the creation in a first query',
        'OUT_OF_RANGE',
        (s) => ({ token: null, start: ago(s, 9 * DAY_MS) }),
      ],
      ['a start older than the retention', 'OUT_OF_RANGE', (s) => ({ start: ago(s, 1.5 * DAY_MS) })],
      ['a start more than ten minutes ahead', 'OUT_OF_RANGE', (s) => ({ start: ago(s, -601_000) })],
      ['a start after the end of the partition', 'OUT_OF_RANGE', (s) => ({ token: s.lineage()[0]!.token })],
      ['a start before the partition', 'OUT_OF_RANGE', (s) => ({ start: ago(s, DAY_MS / 2 + 1) })],
      ['a heartbeat below 100 ms', 'OUT_OF_RANGE', () => ({ heartbeatMs: 99 })],
      ['a heartbeat above 300 s', 'OUT_OF_RANGE', () => ({ heartbeatMs: 300_001 })],
      ['a start after the end', 'INVALID_ARGUMENT', (s) => ({ end: ago(s, 1) })],
      ['an unknown token', 'INVALID_ARGUMENT', () => ({ token: 'nobody' })],
      ['a resume token that is none', 'INVALID_ARGUMENT', () => ({ resumeToken: Uint8Array.of(1, 2, 3) })],
    ]
    test.each(cases)('%s with %s', async (_, status, change) => {
      const { clock, stream } = shop({ retentionMs: DAY_MS })
      await clock.run(async () => {
        await sleep(clock, 2 * DAY_MS)
        stream.move(stream.livePartitions()[0]!.token)
        await sleep(clock, DAY_MS / 2)
        const { token } = stream.livePartitions()[0]!
        const query = { token, start: stream.now(), end: null, heartbeatMs: 1000, ...change(stream) }
        const error = await collect(stream.client(), query).catch((thrown: unknown) => thrown)
        expect(error).toBeInstanceOf(SourceError)
        expect(error).toMatchObject({ retryable: false, cause: { status }, partition: query.token ?? undefined })
        expect(stream.openQueries).toBe(0)
      })
    })

    test('a resume token of another query', async () => {
      const { clock, stream } = shop({ resumeTokenChance: 1 })
      await clock.run(async () => {
        const query = { token: stream.livePartitions()[0]!.token, start: stream.now(), end: null, heartbeatMs: 1000 }
        const [part] = await take(stream, query, 1)
        const other = { ...query, start: stream.now(), resumeToken: part!.resumeToken! }
        await expect(collect(stream.client(), other)).rejects.toThrow('INVALID_ARGUMENT')
      })
    })
  })

  test('opens nothing before the first next and reads no further than asked', async () => {
    const { clock, stream } = shop({ maxPartRecords: 1 })
    await clock.run(async () => {
      const start = stream.now()
      for (let id = 0; id < 10; id++) stream.commit([insert(id)])
      const query = { token: stream.livePartitions()[0]!.token, start, end: null, heartbeatMs: 1000 }
      const iterator = stream.client().query(query, neverAborted)[Symbol.asyncIterator]()
      expect(stream.openQueries).toBe(0)
      await iterator.next()
      expect(stream.openQueries).toBe(1)
      const waitedMs = clock.now()
      await sleep(clock, 10_000)
      const { value } = await iterator.next()
      expect(clock.now()).toBe(waitedMs + 10_000)
      expect(value.records[0].kind).toBe('data')
      await iterator.return?.()
      expect(stream.openQueries).toBe(0)
      expect(await iterator.next()).toEqual({ done: true, value: undefined })
    })
  })

  test('ends a waiting next by return, by abort with its reason, and by close', async () => {
    const { clock, stream } = shop()
    await clock.run(async () => {
      const query = { token: stream.livePartitions()[0]!.token, start: stream.now(), end: null, heartbeatMs: 300_000 }
      const returned = stream.client().query(query, neverAborted)[Symbol.asyncIterator]()
      const waiting = returned.next()
      await sleep(clock, 1000)
      await returned.return?.()
      expect(await waiting).toEqual({ done: true, value: undefined })

      const abort = new AbortController()
      const reason = new Error('enough')
      const aborted = stream.client().query(query, abort.signal)[Symbol.asyncIterator]().next()
      clock.after(1000, () => abort.abort(reason))
      await expect(aborted).rejects.toBe(reason)

      const client = stream.client()
      const closed = client.query(query, neverAborted)[Symbol.asyncIterator]().next()
      await sleep(clock, 1000)
      await client.close()
      await client.close()
      expect(await closed).toEqual({ done: true, value: undefined })
      await expect(collect(client, query)).rejects.toBeInstanceOf(ClosedError)
      expect(stream.openQueries).toBe(0)
    })
  })

  test('describes the stream and refuses one that does not exist', async () => {
    const { clock, stream } = shop({ retentionMs: DAY_MS })
    expect(await stream.client().describe(neverAborted)).toMatchObject({ retentionMs: DAY_MS })
    const wrong = stream.client({ stream: 'Nope' })
    await expect(wrong.describe(neverAborted)).rejects.toBeInstanceOf(ConfigError)
    await expect(wrong.describe(neverAborted)).rejects.toThrow('there is no change stream Nope')
    const query = { token: null, start: stream.now(), end: null, heartbeatMs: 1000 }
    await expect(clock.run(() => collect(wrong, query))).rejects.toThrow('INVALID_ARGUMENT')
  })
})

function expectLedger(
  stream: SimulatedStream,
  changes: Awaited<ReturnType<typeof readPatiently>>['changes'],
  end: string,
): void {
  const due = stream.ledger.changes.filter((change) => change.commitTimestamp <= end)
  expect(due.length).toBeGreaterThan(0)
  const byKey = <T extends { key: string }>(list: readonly T[]): Record<string, T[]> =>
    Object.fromEntries(Map.groupBy(list, (item) => item.key))
  const read = changes.map((change) => {
    const { table, op, keys, newValues, oldValues, commitTimestamp, record } = change
    const key = rowKey(table, keys)
    const partitionToken = record.partitionToken
    return { id: changeId(change), key, table, op, keys, newValues, oldValues, commitTimestamp, partitionToken }
  })
  expect(byKey(read)).toEqual(byKey(due))
}
