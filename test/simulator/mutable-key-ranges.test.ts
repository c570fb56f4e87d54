import { describe, expect, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import type { SourceError } from '../../src/core/errors.ts'
import { type CommitTimestamp, timestampFromMs } from '../../src/model/commit-timestamp.ts'
import type { ChangeStreamRecord } from '../../src/model/data-change-record.ts'
import { SeededRandom, SimulatedStream, type SimulatedStreamOptions, VirtualClock } from '../../src/simulator/index.ts'
import { collect } from './patient-reader.ts'

function shop(options: Partial<SimulatedStreamOptions> = {}): { clock: VirtualClock; stream: SimulatedStream } {
  const clock = new VirtualClock()
  const stream = new SimulatedStream({ seed: 3, clock, mode: 'mutable', tieChance: 0.5, ...options })
  stream.defineTable({ name: 'Orders', columns: [{ name: 'Id', type: 'INT64', isPrimaryKey: true }] })
  return { clock, stream }
}

const KEYS = Array.from({ length: 60 }, (_, id) => ({ Id: String(id) }))

/** Every kind of move, with commits between them. */
async function live({ clock, stream }: ReturnType<typeof shop>, steps = 120, rows = 1): Promise<void> {
  const random = new SeededRandom(1)
  for (let step = 0; step < steps; step++) {
    const written = new Set(Array.from({ length: rows }, () => KEYS[random.int(KEYS.length)]!))
    stream.commit(
      [...written].map((keys) => {
        const exists = stream.row('Orders', keys) !== undefined
        return { table: 'Orders', op: exists ? 'delete' : 'insert', keys }
      }),
    )
    const tokens = stream.livePartitions().map(({ token }) => token)
    const [a, b, c] = [tokens[0]!, tokens.at(-1)!, tokens[1]!]
    const kind = random.int(6)
    if (kind === 0 && tokens.length < 6) stream.split(a, 2 + random.int(2))
    else if (kind === 1) stream.move(b)
    else if (kind === 2 && tokens.length > 2) stream.merge(a, b)
    else if (kind === 3 && a !== b) stream.moveRange(a, b)
    else if (kind === 4 && a !== b) stream.swapRanges(a, b)
    else if (kind === 5 && tokens.length > 2) stream.rotateRanges([a, b, c])
    await sleep(clock, random.int(3))
  }
  await sleep(clock, 1000)
}

function timeAndSequence({ kind, record }: ChangeStreamRecord): [time: string, sequence: string] {
  if (kind === 'heartbeat') return [record.timestamp, '']
  if (kind === 'start' || kind === 'children') return [record.startTimestamp, record.recordSequence]
  return [kind === 'end' ? record.endTimestamp : record.commitTimestamp, record.recordSequence]
}

describe('mutable key ranges', () => {
  test('the records of a partition are numbered at each time, across their kinds; its end is the last of them', () => {
    const shopping = shop()
    const { clock, stream } = shopping
    return clock.run(async () => {
      await live(shopping)
      let shared = 0
      for (const { token, start } of stream.lineage()) {
        const records = await collect(stream.client(), { token, start, end: stream.now(), heartbeatMs: 100_000 })
        const places = records.map((record) => timeAndSequence(record).join('/'))
        expect(places).toEqual([...new Set(places)].toSorted())
        expect(records.map(({ kind }) => kind).indexOf('end') + 1 || records.length).toBe(records.length)
        const times = records.filter(({ kind }) => kind === 'data').map((record) => timeAndSequence(record)[0])
        shared += records.filter(
          (record) => record.kind === 'event' && times.includes(record.record.commitTimestamp),
        ).length
      }
      expect(shared).toBeGreaterThan(0)
    })
  })

  test('a heartbeat never has the time of another record', () => {
    const shopping = shop()
    const { clock, stream } = shopping
    return clock.run(async () => {
      const { token, start } = stream.livePartitions()[0]!
      const end = timestampFromMs(clock.now() + 60_000)
      const reading = collect(stream.client(), { token, start, end, heartbeatMs: 100 })
      await live(shopping, 300)
      const records = await reading
      const heartbeats = records.filter(({ kind }) => kind === 'heartbeat').map((record) => timeAndSequence(record)[0])
      const others = records.filter(({ kind }) => kind !== 'heartbeat').map((record) => timeAndSequence(record)[0])
      expect(heartbeats.length).toBeGreaterThan(0)
      expect(heartbeats.filter((time) => others.includes(time))).toEqual([])
    })
  })

  test('each key is in exactly one partition at a time, and goes only where an event says so', () => {
    const shopping = shop()
    const { clock, stream } = shopping
    return clock.run(async () => {
      // Nearly all rows each time: what happens between two changes of one of them is little.
      await live(shopping, 120, 150)
      const moves = await movesOf(stream)
      let moved = 0
      const holders = new Map<string, Holder>()
      for (const { key, partitionToken, commitTimestamp } of stream.ledger.changes) {
        const { start, end } = stream.lineage().find(({ token }) => token === partitionToken)!
        expect(commitTimestamp >= start && (end === null || commitTimestamp <= end)).toBe(true)
        const holder = { token: partitionToken, time: commitTimestamp }
        const before = holders.get(key)
        if (before !== undefined && before.token !== partitionToken) {
          // Perhaps over several partitions, between two of its changes.
          expect(isReachable(before, holder, moves)).toBe(true)
          moved++
        }
        holders.set(key, holder)
      }
      expect(moved).toBeGreaterThan(100)
      for (const keys of KEYS) {
        expect(stream.livePartitions().map(({ token }) => token)).toContain(stream.partitionOf('Orders', keys))
      }
    })
  })

  test('both sides of a move say so at one time', () => {
    const { clock, stream } = shop({ tieChance: 0, initialPartitions: 3 })
    return clock.run(async () => {
      const [a, b, c] = stream.livePartitions().map(({ token }) => token) as [string, string, string]
      stream.rotateRanges([a, b, c])
      await sleep(clock, 1000)
      const events = await Promise.all(
        [a, b, c].map(async (token) => {
          const query = { token, start: stream.createdAt, end: stream.now(), heartbeatMs: 100_000 }
          return (await collect(stream.client(), query))[0]!.record
        }),
      )
      expect(events).toMatchObject([
        { token: a, moveInFrom: [c], moveOutTo: [b] },
        { token: b, moveInFrom: [a], moveOutTo: [c] },
        { token: c, moveInFrom: [b], moveOutTo: [a] },
      ])
      expect(new Set(events.map((event) => (event as { commitTimestamp: string }).commitTimestamp)).size).toBe(1)
    })
  })

  test.each([
    ['no end', null, 'INVALID_ARGUMENT'],
    ['an end 31 minutes ahead', 31, 'INVALID_ARGUMENT'],
    ['an end 30 minutes ahead', 30, undefined],
  ])('a query with %s: %s', (_, minutes, code) => {
    const { clock, stream } = shop()
    return clock.run(async () => {
      const { token, start } = stream.livePartitions()[0]!
      const end = minutes === null ? null : timestampFromMs(clock.now() + minutes * 60_000)
      const reading = stream.client().query({ token, start, end, heartbeatMs: 1000 }, new AbortController().signal)
      const first = reading[Symbol.asyncIterator]().next()
      const status = await first.then(
        () => undefined,
        (error: unknown) => (error as SourceError).status,
      )
      expect(status).toBe(code)
    })
  })

  test('ranges do not move between partitions that keep theirs', () => {
    const { stream } = shop({ mode: 'immutable' })
    const [a, b] = stream.livePartitions().map(({ token }) => token) as [string, string]
    expect(() => stream.moveRange(a, b)).toThrow(/mutable/)
    expect(() => stream.rotateRanges([a, b])).toThrow(/mutable/)
    expect(() => shop().stream.rotateRanges(['x'])).toThrow(/two or more/)
  })
})

interface Holder {
  readonly token: string
  readonly time: CommitTimestamp
}

interface Move {
  readonly from: string
  readonly to: string
  readonly time: CommitTimestamp
}

/** What the event records say, in order of time. Each move stands in the records of both sides. */
async function movesOf(stream: SimulatedStream): Promise<Move[]> {
  const given: Move[] = []
  const taken: Move[] = []
  for (const { token, start } of stream.lineage()) {
    for (const { kind, record } of await collect(stream.client(), {
      token,
      start,
      end: stream.now(),
      heartbeatMs: 1e5,
    })) {
      if (kind !== 'event') continue
      const time = record.commitTimestamp
      for (const to of record.moveOutTo) given.push({ from: token, to, time })
      for (const from of record.moveInFrom) taken.push({ from, to: token, time })
    }
  }
  const inOrder = (moves: readonly Move[]): Move[] =>
    moves.toSorted((a, b) => `${a.time} ${a.from} ${a.to}`.localeCompare(`${b.time} ${b.from} ${b.to}`))
  expect(inOrder(given)).toEqual(inOrder(taken))
  return inOrder(given)
}

/** Whether a key can have come from one partition to the other by then; one step at a time. */
function isReachable(from: Holder, to: Holder, moves: readonly Move[]): boolean {
  const between = moves.filter(({ time }) => time >= from.time && time <= to.time)
  let reached = new Set([from.token])
  for (const time of new Set(between.map((move) => move.time))) {
    const steps = between.filter((move) => move.time === time && reached.has(move.from))
    reached = new Set([...reached, ...steps.map((move) => move.to)])
  }
  return reached.has(to.token)
}
