/** Records per CPU second of a reading process: Millrace, the client library's `runStream`, and bytes without decoding. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { printIdle } from './idle.ts'
import { type Cost, type Order, VARIANTS, type Variant } from './variants.ts'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 9)
/** A reader runs for weeks: what is compiled by now counts, not what is still interpreted. */
const WARM_UP_ROUNDS = 2
const RECORDS = { 1: 200_000, 100: 400_000 } as const
/** The client library slows down with the length of a result; in its favour it reads a shorter one. */
const RUN_STREAM_RECORDS = { 1: 30_000, 100: 30_000 } as const
const PARTITIONS = [1, 8, 64, 256] as const
const COMPARED: ReadonlySet<number> = new Set([1, 8])

type Rows = 1 | 100

interface Run {
  readonly name: string
  readonly variant: Variant
  readonly order: Order
}

const ROWS: readonly Rows[] = [1, 100]
const runs = new Map(ROWS.map((rows) => [rows, runsOf(rows)]))
const streams = new Set([...runs.values()].flat().map(({ order }) => order.stream))
const server = await startServer([...streams, 'Bench_1000_1_0'])
process.env.METADATA_SERVER_DETECTION = 'none'
process.env.SPANNER_EMULATOR_HOST = server.host

try {
  for (const rows of ROWS) await compare(rows)
  await printIdle(server.host)
} finally {
  server.stop()
}
process.exit(0)

function runsOf(rows: Rows): Run[] {
  const run = (variant: Variant, partitions: number, records: number): Run => ({
    name: `${variant}, ${partitions}`,
    variant,
    order: orderOf(rows, partitions, records),
  })
  // What is compared runs one behind the other.
  return PARTITIONS.flatMap((partitions) => [
    run('millrace', partitions, RECORDS[rows]),
    ...(COMPARED.has(partitions)
      ? [
          run('bytes', partitions, RECORDS[rows]),
          run('bytes for await', partitions, RECORDS[rows]),
          run('runStream', partitions, RUN_STREAM_RECORDS[rows]),
        ]
      : []),
  ])
}

function orderOf(rows: Rows, partitions: number, records: number): Order {
  // Whole messages, and about as many records in all whatever the number of partitions.
  const each = Math.ceil(records / partitions / rows) * rows
  return { stream: `Bench_${partitions}_${rows}_${each}`, partitions, rows, records: each * partitions }
}

async function compare(rows: Rows): Promise<void> {
  const rates = await interleaved(runs.get(rows)!)
  // Of each round, whose runs follow each other: a machine that is slow for minutes is slow for both.
  const ratio = (name: string, other: string): string =>
    median(rates.get(name)!.map((rate, round) => rate / rates.get(other)![round]!)).toFixed(2)
  console.log(`\n${rows} row${rows === 1 ? '' : 's'} a message, 1 KB records, ${ROUNDS} interleaved rounds`)
  console.log('records per CPU second, thousand: median (least to most); ratios: median of the rounds')
  for (const [name, all] of rates) {
    const [least, middle, most] = [Math.min(...all), median(all), Math.max(...all)].map((n) => (n / 1000).toFixed(1))
    console.log(`  ${name.padEnd(20)} ${middle!.padStart(7)}  (${least} to ${most})`)
  }
  for (const partitions of COMPARED) {
    const own = `millrace, ${partitions}`
    const against = (variant: Variant): string => `${variant} ${ratio(own, `${variant}, ${partitions}`)}`
    const others = VARIANTS.filter((variant) => variant !== 'millrace')
    console.log(
      `  ${partitions} partition${partitions === 1 ? '' : 's'}: millrace against ${others.map(against).join(', ')}`,
    )
  }
  const flat = PARTITIONS.map((partitions) => ratio(`millrace, ${partitions}`, 'millrace, 1'))
  console.log(`  millrace with ${PARTITIONS.join(', ')} partitions against 1: ${flat.join(', ')}`)
}

/** Each variant has a process of its own, which lives through all rounds; one works at a time. */
async function interleaved(all: readonly Run[]): Promise<Map<string, number[]>> {
  const readers = new Map<Variant, ChildProcess>()
  const rates = new Map(all.map(({ name }) => [name, [] as number[]]))
  try {
    for (const variant of VARIANTS) readers.set(variant, await start('./variants.ts', [variant, server.host]))
    for (let round = -WARM_UP_ROUNDS; round < ROUNDS; round++) {
      for (const { name, variant, order } of all) {
        const { records, cpuSeconds } = await read(readers.get(variant)!, order)
        if (records < order.records) throw new Error(`${name} has read ${records} of ${order.records} records`)
        if (round >= 0) rates.get(name)!.push(records / cpuSeconds)
      }
    }
  } finally {
    for (const child of readers.values()) child.kill()
  }
  return rates
}

async function read(child: ChildProcess, order: Order): Promise<Cost> {
  const ended = new AbortController()
  try {
    const exit = once(child, 'exit', { signal: ended.signal }).then(() => {
      throw new Error('a reading process has ended')
    })
    const answer = once(child, 'message', { signal: ended.signal })
    child.send(order)
    return (await Promise.race([answer, exit]))[0] as Cost
  } finally {
    ended.abort()
  }
}

function median(list: readonly number[]): number {
  return list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)]!
}

async function startServer(names: Iterable<string>): Promise<{ readonly host: string; stop(): void }> {
  const path = fileURLToPath(new URL('./server.ts', import.meta.url))
  const child = fork(path, [[...names].join(',')], { execArgv: ['--conditions=@millrace/source'] })
  const [port] = await once(child, 'message')
  return { host: `127.0.0.1:${port}`, stop: () => child.kill() }
}

async function start(script: string, args: string[]): Promise<ChildProcess> {
  const path = fileURLToPath(new URL(script, import.meta.url))
  const child = fork(path, args, { execArgv: ['--conditions=@millrace/source'] })
  await once(child, 'message')
  return child
}
