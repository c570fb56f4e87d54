/** What the core costs per record: tracker, budget, deliveries and three operators against a bare generator. */
import { type Failure, type Origin, SourceDelivery } from '../src/core/delivery.ts'
import { type BudgetAccount, InFlightBudget } from '../src/core/in-flight-budget.ts'
import { InFlightTracker } from '../src/core/in-flight-tracker.ts'
import { isMark, type Stage, stage } from '../src/core/stage.ts'
import type { CommitTimestamp, Decision, Delivery } from '../src/core/types.ts'
import { filter, map } from '../src/operators/index.ts'

interface BenchRecord {
  readonly value: { readonly table: string; readonly amount: number }
  readonly key: string
  readonly id: string
}

type Order = (typeof ORDERS)[number]

const ORDERS = ['in order', 'in random order'] as const
const ROUNDS = 7
const RECORDS = 1_000_000
const RECORD_BYTES = 1024

// Few and used again and again: a large heap of prepared records would measure the garbage collector instead.
const records = makeRecords(1000)
const timestamps = makeTimestamps(10_000)
const random = seededRandom(7)

async function compareWithBareGenerator(): Promise<void> {
  const variants = {
    'bare async generator': runBare,
    'arrays of 64': () => runChunks(64),
    'arrays of 1': () => runChunks(1),
    'arrays of 1, for await over items': () => runItems(1),
  }
  const perSecond = await interleaved(variants)
  const bare = perSecond['bare async generator']
  console.log(`Core alone, ${RECORDS} records, median of ${ROUNDS} interleaved rounds\n`)
  for (const [name, rate] of Object.entries(perSecond)) row(name, rate, rate / bare)
}

/**
 * Only `maxInFlight` varies: arrays of one size, the budget kept full. Holding more objects costs more by itself, since
 * caches are missed and the collector copies, so the same loop over plain objects stands beside it.
 */
async function compareWindows(chunkSize: number, windows: readonly number[]): Promise<void> {
  for (const order of ORDERS) {
    const core = windows.map((size) => [`core ${size}`, () => runWindow(size, chunkSize, order)] as const)
    const plain = windows.map((size) => [`plain ${size}`, () => runPlainWindow(size, chunkSize, order)] as const)
    const perSecond: Record<string, number> = await interleaved(Object.fromEntries([...core, ...plain]))
    const nanos = (name: string): number => 1e9 / perSecond[name]!
    const times = (size: number): number => nanos(`core ${size}`) / nanos(`plain ${size}`)
    console.log(`\nCore against plain objects, arrays of ${chunkSize}, settled ${order}\n`)
    for (const size of windows) {
      const pair = [nanos(`core ${size}`), nanos(`plain ${size}`)].map((ns) => `${ns.toFixed(0).padStart(5)} ns`)
      const growth = (times(size) / times(1000)).toFixed(2)
      console.log(`maxInFlight ${String(size).padEnd(8)} core ${pair[0]}  plain ${pair[1]}  against 1000: ${growth}`)
    }
  }
}

/** Runs all variants in turn, several times over, and gives the median of records per CPU second for each. */
async function interleaved<K extends string>(variants: Record<K, () => Promise<number>>): Promise<Record<K, number>> {
  const names = Object.keys(variants) as K[]
  const rates = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<K, number[]>
  for (let round = -2; round < ROUNDS; round++) {
    for (const name of names) {
      globalThis.gc?.()
      const before = process.cpuUsage()
      const count = await variants[name]()
      const { user, system } = process.cpuUsage(before)
      // The first rounds warm the compiler up.
      if (round >= 0) rates[name].push(count / ((user + system) / 1e6))
    }
  }
  const median = (list: number[]): number => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)]!
  return Object.fromEntries(names.map((name) => [name, median(rates[name])])) as Record<K, number>
}

async function runBare(): Promise<number> {
  async function* bare(): AsyncGenerator<BenchRecord> {
    for (let n = 0; n < RECORDS; n++) yield records[n % records.length]!
  }
  let count = 0
  for await (const record of bare()) if (record.value.amount >= 0) count++
  return count
}

async function runChunks(chunkSize: number): Promise<number> {
  let count = 0
  for await (const chunk of pipeline(new CoreSource(1000), RECORDS, chunkSize).chunks()) {
    for (const item of chunk) {
      if (isMark(item)) continue
      item.ack()
      count++
    }
  }
  return count
}

async function runItems(chunkSize: number): Promise<number> {
  let count = 0
  for await (const item of pipeline(new CoreSource(1000), RECORDS, chunkSize)) {
    if (isMark(item)) continue
    item.ack()
    count++
  }
  return count
}

/** Keeps the budget full: what leaves is settled just in time for the next array. */
async function runWindow(maxInFlight: number, chunkSize: number, order: Order): Promise<number> {
  const stream = pipeline(new CoreSource(maxInFlight), RECORDS, chunkSize)
  return await holdAndLetGo(stream.chunks() as AsyncIterable<Delivery<number>[]>, maxInFlight - chunkSize, order)
}

/** The same with objects that owe nothing to anybody. */
async function runPlainWindow(maxInFlight: number, chunkSize: number, order: Order): Promise<number> {
  async function* plain(): AsyncGenerator<PlainObject[]> {
    let chunk: PlainObject[] = []
    for (let n = 0; n < RECORDS; n++) {
      const { value, key, id } = records[n % records.length]!
      chunk.push(new PlainObject(value, key, id, timestamps[Math.floor((n / RECORDS) * timestamps.length)]!))
      if (chunk.length < chunkSize) continue
      yield chunk
      chunk = []
    }
    if (chunk.length > 0) yield chunk
  }
  return await holdAndLetGo(plain(), maxInFlight - chunkSize, order)
}

class PlainObject {
  readonly value: BenchRecord['value']
  readonly key: string
  readonly id: string
  readonly timestamp: string
  isSettled = false

  constructor(value: BenchRecord['value'], key: string, id: string, timestamp: string) {
    this.value = value
    this.key = key
    this.id = id
    this.timestamp = timestamp
  }

  ack(): void {
    this.isSettled = true
  }
}

/** Holds `room` items; each new one takes the place of one that is let go. Every place is used once a round. */
async function holdAndLetGo(
  chunks: AsyncIterable<readonly { ack(): void }[]>,
  room: number,
  order: Order,
): Promise<number> {
  const places = Array.from({ length: room }, (_, place) => place)
  if (order === 'in random order') shuffle(places)
  const open: { ack(): void }[] = []
  let count = 0
  for await (const chunk of chunks) {
    for (const item of chunk) {
      if (room === 0) item.ack()
      else {
        const place = places[count % room]!
        open[place]?.ack()
        open[place] = item
      }
      count++
    }
    if (order === 'in random order' && room > 0 && count % room < chunk.length) shuffle(places)
  }
  for (const item of open) item?.ack()
  return count
}

/** Fisher and Yates, with the same numbers in every run. */
function shuffle(list: number[]): void {
  for (let i = list.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1))
    const swap = list[i]!
    list[i] = list[j]!
    list[j] = swap
  }
}

function pipeline(source: CoreSource, count: number, chunkSize: number): Stage<number> {
  return source.open(count, chunkSize).pipe(
    map((value) => value.amount),
    filter((amount) => amount >= 0),
    map((amount) => amount + 1),
  )
}

/** What a partition reader does for each record, without the reading. */
class CoreSource implements Origin {
  readonly #tracker = new InFlightTracker()
  readonly #account: BudgetAccount

  constructor(maxInFlight: number) {
    this.#account = new InFlightBudget({ maxInFlight, maxInFlightBytes: Number.MAX_SAFE_INTEGER }).open()
  }

  open(count: number, chunkSize: number): Stage<BenchRecord['value']> {
    const tracker = this.#tracker
    const account = this.#account
    const origin = this
    return stage(async function* (signal) {
      let chunk: Delivery<BenchRecord['value']>[] = []
      for (let n = 0; n < count; n++) {
        const { value, key, id } = records[n % records.length]!
        const timestamp = timestamps[Math.floor((n / count) * timestamps.length)]!
        if (!account.tryTake(RECORD_BYTES)) await account.take(RECORD_BYTES, signal)
        chunk.push(new SourceDelivery(value, key, timestamp, id, origin, tracker.enter(timestamp, id, 0)))
        if (chunk.length < chunkSize) continue
        yield chunk
        chunk = []
      }
      if (chunk.length > 0) yield chunk
    })
  }

  acked(sequence: number): void {
    this.#tracker.settle(sequence)
    this.#account.give(RECORD_BYTES)
  }

  nacked(_: number, { error }: Failure): void {
    throw error
  }

  decide(): Decision {
    return 'stop'
  }
}

function makeRecords(count: number): BenchRecord[] {
  return Array.from({ length: count }, (_, n) => ({
    value: { table: 'Orders', amount: n % 1000 },
    key: `Orders{"Id":"${n % 5000}"}`,
    id: `tx${n}/00000000/0`,
  }))
}

function makeTimestamps(count: number): CommitTimestamp[] {
  return Array.from({ length: count }, (_, n) => `2026-01-01T00:00:00.${String(n).padStart(9, '0')}Z`)
}

/** mulberry32: small, fast, the same numbers in every run. */
function seededRandom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

function row(name: string, perSecond: number, ratio: number): void {
  console.log(`${name.padEnd(36)}${(perSecond / 1e6).toFixed(2).padStart(8)} M/s  ratio ${ratio.toFixed(2)}`)
}

await compareWithBareGenerator()
await compareWindows(1, [1, 10, 100, 1_000, 10_000, 100_000])
await compareWindows(64, [100, 1_000, 10_000, 100_000])
