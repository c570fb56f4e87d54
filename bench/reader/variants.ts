/** A process that reads in one way, again and again, and says each time what it cost. */
import type { Database } from '@google-cloud/spanner'
import { Client, credentials, Metadata } from '@grpc/grpc-js'
import { isMark } from '../../src/core/stage.ts'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { readStatement } from '../../src/sources/spanner-change-stream/connection/read-statement.ts'
import { HOLD_MS } from './hold.ts'

/** What a reading process is asked to read: a stream of the benchmark's server. */
export interface Order {
  readonly stream: string
  readonly partitions: number
  readonly rows: number
  readonly records: number
}

export interface Cost {
  readonly records: number
  readonly cpuSeconds: number
}

export const VARIANTS = ['millrace', 'runStream', 'bytes', 'bytes for await'] as const
export type Variant = (typeof VARIANTS)[number]

type Read = (order: Order) => Promise<number>

const START = '2026-11-18T00:00:00.000000000Z'
const DATABASE = 'projects/p/instances/i/databases/d'

/** Only what the variant needs is loaded: each process runs the code that a real one of its kind would run. */
async function reader(variant: Variant, host: string): Promise<Read> {
  if (variant === 'millrace') return (order) => readMillrace(host, order)
  const { Spanner, protos } = await import('@google-cloud/spanner')
  if (variant === 'runStream') {
    const database = new Spanner({ projectId: 'p' }).instance('i').database('d')
    return (order) => each(order, (token) => readRunStream(database, order, token))
  }
  const client = new Client(host, credentials.createInsecure())
  const { ExecuteSqlRequest } = protos.google.spanner.v1
  return (order) =>
    each(order, (token) => {
      const request = ExecuteSqlRequest.encode(
        ExecuteSqlRequest.fromObject({ ...statementOf(order, token), session: 's' }),
      )
      return readBytes(client, request.finish(), order.rows, variant)
    })
}

/** (a) The source as a user reads it: reader, tracker, budget, deliveries of `Change`, each acked. */
async function readMillrace(emulatorHost: string, { stream, records }: Order): Promise<number> {
  const source = spannerChangeStream({ database: DATABASE, stream, start: START, heartbeatMs: HOLD_MS, emulatorHost })
  let count = 0
  for await (const chunk of source.chunks()) {
    for (const item of chunk) {
      if (isMark(item)) continue
      if (item.value.keys.Id === undefined) throw new Error('a change without its key')
      item.ack()
      count++
    }
    if (count >= records) break
  }
  return count
}

/** (b) The client library's own way, as its documentation shows it. */
async function readRunStream(database: Database, order: Order, token: string): Promise<number> {
  const rows = database.runStream({
    sql: statementOf(order, token).sql!,
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
async function readBytes(client: Client, request: Uint8Array, rows: number, variant: Variant): Promise<number> {
  const call = client.makeServerStreamRequest(
    '/google.spanner.v1.Spanner/ExecuteStreamingSql',
    (bytes: Uint8Array) => Buffer.from(bytes),
    (bytes: Buffer) => bytes,
    request,
    new Metadata(),
    {},
  )
  let messages = 0
  if (variant === 'bytes for await') for await (const _ of call) messages++
  else {
    call.on('data', () => messages++)
    await new Promise((resolve, reject) => call.on('error', reject).on('end', resolve))
  }
  // The first message is the metadata.
  return (messages - 1) * rows
}

function statementOf({ stream }: Order, token: string) {
  return readStatement(stream, 'googlesql', 'immutable', { token, start: START, end: null, heartbeatMs: 1_000 })
}

async function each({ partitions }: Order, read: (token: string) => Promise<number>): Promise<number> {
  const counts = await Promise.all(Array.from({ length: partitions }, (_, n) => read(`partition-${n}`)))
  return counts.reduce((sum, count) => sum + count, 0)
}

if (import.meta.main) {
  const [variant, host] = process.argv.slice(2) as [Variant, string]
  const read = await reader(variant, host)
  process.on('message', async (order: Order) => {
    const before = process.cpuUsage()
    const records = await read(order)
    const { user, system } = process.cpuUsage(before)
    process.send?.({ records, cpuSeconds: (user + system) / 1e6 } satisfies Cost)
  })
  process.on('disconnect', () => process.exit(0))
  process.send?.('ready')
}
