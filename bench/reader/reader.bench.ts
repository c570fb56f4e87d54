/** Records per CPU second of a reading process: Millrace, the client library's `runStream`, and bytes without decoding. */
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Database } from '@google-cloud/spanner'
import { Client, credentials, Metadata } from '@grpc/grpc-js'
import { isMark } from '../../src/core/stage.ts'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { readStatement } from '../../src/sources/spanner-change-stream/connection/read-statement.ts'
import { HOLD_MS } from './hold.ts'
import { printIdle } from './idle.ts'

const START = '2026-11-18T00:00:00.000000000Z'
const DATABASE = 'projects/p/instances/i/databases/d'
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 5)
const RECORDS = { 1: 100_000, 100: 200_000 } as const
/** The client library slows down with the length of a result; in its favour it reads a shorter one. */
const RUN_STREAM_RECORDS = { 1: 50_000, 100: 40_000 } as const
const PARTITIONS = [1, 8, 64, 256] as const

type Rows = 1 | 100

process.env.METADATA_SERVER_DETECTION = 'none'
const cases = ([1, 100] as const).flatMap((rows) => PARTITIONS.map((partitions) => ({ rows, partitions })))
const server = await startServer([...cases.map(({ rows, partitions }) => streamOf(rows, partitions)), 'Bench_1000_1_0'])
process.env.SPANNER_EMULATOR_HOST = server.host
const { Spanner, protos } = await import('@google-cloud/spanner')
const spanner = new Spanner({ projectId: 'p' })
const database = spanner.instance('i').database('d')
const raw = new Client(server.host, credentials.createInsecure())

try {
  for (const rows of [1, 100] as const) await compare(rows)
  if (process.env.BENCH_ONLY === undefined) await printIdle(server.host)
} finally {
  server.stop()
}
process.exit(0)

async function compare(rows: Rows): Promise<void> {
  const variants: Record<string, () => Promise<number>> = {}
  for (const partitions of PARTITIONS) {
    variants[`millrace, ${partitions}`] = () => readMillrace(streamOf(rows, partitions), RECORDS[rows])
  }
  for (const partitions of [1, 8] as const) {
    variants[`runStream, ${partitions}`] = () =>
      each(partitions, (n) => readRunStream(streamOf(rows, partitions, RUN_STREAM_RECORDS), n))
    const stream = streamOf(rows, partitions)
    variants[`bytes, ${partitions}`] = () => each(partitions, (n) => readBytes(stream, n, rows, 'events'))
    variants[`bytes for await, ${partitions}`] = () => each(partitions, (n) => readBytes(stream, n, rows, 'for await'))
  }
  const rates = await interleaved(variants)
  console.log(`\n${rows} row${rows === 1 ? '' : 's'} a message, 1 KB records, median of ${ROUNDS} interleaved rounds`)
  console.log('records per CPU second, thousand')
  for (const [name, rate] of Object.entries(rates))
    console.log(`  ${name.padEnd(20)} ${(rate / 1000).toFixed(1).padStart(7)}`)
  for (const partitions of [1, 8]) {
    const own = rates[`millrace, ${partitions}`]!
    console.log(
      `  ${partitions} partition${partitions === 1 ? ' ' : 's'}: millrace / runStream ${(own / rates[`runStream, ${partitions}`]!).toFixed(2)}, ` +
        `millrace / bytes ${(own / rates[`bytes, ${partitions}`]!).toFixed(2)}, ` +
        `millrace / bytes for await ${(own / rates[`bytes for await, ${partitions}`]!).toFixed(2)}`,
    )
  }
  const flat = PARTITIONS.map((partitions) => (rates[`millrace, ${partitions}`]! / rates['millrace, 1']!).toFixed(2))
  console.log(`  millrace with ${PARTITIONS.join(', ')} partitions against 1: ${flat.join(', ')}`)
}

function streamOf(rows: Rows, partitions: number, records: Readonly<Record<Rows, number>> = RECORDS): string {
  // Whole messages, and about as many records in all whatever the number of partitions.
  return `Bench_${partitions}_${rows}_${Math.ceil(records[rows] / partitions / rows) * rows}`
}

/** (a) The source as a user reads it: reader, tracker, budget, deliveries of `Change`, each acked. */
async function readMillrace(stream: string, atLeast: number): Promise<number> {
  const source = spannerChangeStream({
    database: DATABASE,
    stream,
    start: START,
    heartbeatMs: HOLD_MS,
    emulatorHost: server.host,
  })
  let count = 0
  for await (const chunk of source.chunks()) {
    for (const item of chunk) {
      if (isMark(item)) continue
      if (item.value.keys.Id === undefined) throw new Error('a change without its key')
      item.ack()
      count++
    }
    if (count >= atLeast) break
  }
  return count
}

/** (b) The client library's own way, as its documentation shows it. */
async function readRunStream(stream: string, token: string): Promise<number> {
  const { sql } = readStatement(stream, 'googlesql', 'immutable', query(token))
  const rows = (database as Database).runStream({
    sql: sql!,
    params: { start: START, end: null, token, heartbeat: '1000' },
    types: { start: 'timestamp', end: 'timestamp', token: 'string', heartbeat: 'int64' },
    json: true,
    gaxOptions: { retryRequestOptions: { noResponseRetries: 0 } },
  })
  let count = 0
  for await (const row of rows) {
    const [record] = (row as { ChangeRecord: { data_change_record: { mods: { keys: { Id: string } }[] }[] }[] })
      .ChangeRecord
    if (record?.data_change_record[0]?.mods[0]?.keys.Id === undefined) throw new Error('a record without its key')
    count++
  }
  return count
}

/** (c) What grpc-js alone costs: the messages as bytes, not looked at, by events or with `for await`. */
async function readBytes(stream: string, token: string, rows: number, how: 'events' | 'for await'): Promise<number> {
  const v1 = protos.google.spanner.v1
  const statement = readStatement(stream, 'googlesql', 'immutable', query(token))
  const request = v1.ExecuteSqlRequest.encode(v1.ExecuteSqlRequest.fromObject({ ...statement, session: 's' })).finish()
  const call = raw.makeServerStreamRequest(
    '/google.spanner.v1.Spanner/ExecuteStreamingSql',
    (bytes: Uint8Array) => Buffer.from(bytes),
    (bytes: Buffer) => bytes,
    request,
    new Metadata(),
    {},
  )
  let messages = 0
  if (how === 'for await') for await (const _ of call) messages++
  else {
    call.on('data', () => messages++)
    await new Promise((resolve, reject) => call.on('error', reject).on('end', resolve))
  }
  // The first message is the metadata.
  return (messages - 1) * rows
}

async function each(partitions: number, read: (token: string) => Promise<number>): Promise<number> {
  const counts = await Promise.all(Array.from({ length: partitions }, (_, n) => read(`partition-${n}`)))
  return counts.reduce((sum, count) => sum + count, 0)
}

async function interleaved(variants: Record<string, () => Promise<number>>): Promise<Record<string, number>> {
  const only = new RegExp(process.env.BENCH_ONLY ?? '')
  const names = Object.keys(variants).filter((name) => only.test(name))
  const rates = new Map(names.map((name) => [name, [] as number[]]))
  for (let round = -1; round < ROUNDS; round++) {
    for (const name of names) {
      const before = process.cpuUsage()
      const count = await variants[name]!()
      const { user, system } = process.cpuUsage(before)
      if (process.env.BENCH_TRACE) console.error(round, name, Math.round(count / ((user + system) / 1e6)))
      if (round >= 0) rates.get(name)!.push(count / ((user + system) / 1e6))
    }
  }
  const median = (list: number[]): number => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)]!
  return Object.fromEntries(names.map((name) => [name, median(rates.get(name)!)]))
}

function query(token: string) {
  return { token, start: START, end: null, heartbeatMs: 1_000 } as const
}

async function startServer(streams: readonly string[]): Promise<{ readonly host: string; stop(): void }> {
  const path = fileURLToPath(new URL('./server.ts', import.meta.url))
  const child = fork(path, [streams.join(',')], { execArgv: ['--conditions=@millrace/source'] })
  const port = await new Promise((resolve) => child.once('message', resolve))
  return { host: `127.0.0.1:${port}`, stop: () => child.kill() }
}
