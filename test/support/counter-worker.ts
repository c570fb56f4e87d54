/** A worker process of the counter tests: reads a stream of counters with a slow handler and notes what it has seen. */
import { appendFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout } from 'node:timers/promises'
import { StreamError } from '../../src/core/errors.ts'
import type { ChangeStreamClient, PartitionQuery } from '../../src/model/change-stream.ts'
import { type Change, type ChangeStreamRecord, changeId, changesOf } from '../../src/model/data-change-record.ts'
import { parMap } from '../../src/operators/index.ts'
import { definePipeline, runPipeline } from '../../src/runtime/index.ts'
import { fileSink } from '../../src/sinks/index.ts'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { SpannerChangeStreamClient } from '../../src/sources/spanner-change-stream/connection/spanner-client.ts'
import {
  type PartitionStore,
  postgresPartitionStore,
  spannerPartitionStore,
  sqlitePartitionStore,
} from '../../src/stores/index.ts'
import type { WorkerReport } from './crash-worker.ts'

export type StoreOrders =
  | { readonly kind: 'sqlite'; readonly path: string }
  | { readonly kind: 'spanner'; readonly database: string; readonly emulatorHost: string }
  | { readonly kind: 'postgres'; readonly connectionString: string }

export interface CounterOrders {
  readonly host: string
  readonly database: string
  readonly stream: string
  readonly start: string
  /** Runs without an end if left out. */
  readonly end?: string
  readonly outPath: string
  /** What the server sends, line by line. */
  readonly receivedPath: string
  readonly store: StoreOrders
}

/** One line of the output: which counter had which value, and where it came from. */
export interface CounterLine {
  readonly id: string
  readonly key: string
  readonly value: number
  readonly partition: string
  readonly time: string
}

export function openStore(orders: StoreOrders): PartitionStore {
  if (orders.kind === 'sqlite') return sqlitePartitionStore({ path: orders.path })
  if (orders.kind === 'postgres') return postgresPartitionStore({ connectionString: orders.connectionString })
  return spannerPartitionStore({ database: orders.database, emulatorHost: orders.emulatorHost })
}

/** Column names are lower case in one dialect, and values are as on the wire. */
export function lineOf(change: Change): CounterLine {
  const values: Record<string, unknown> = { ...change.newValues }
  const keys: Record<string, unknown> = { ...change.keys }
  return {
    id: changeId(change),
    key: String(keys.Id ?? keys.id),
    value: Number(values.Total ?? values.total),
    partition: change.record.partitionToken,
    time: change.commitTimestamp,
  }
}

/** The real client; what the server sends is noted as it arrives, to tell what was lost from what never came. */
function recordedClient({ host, database, stream, receivedPath }: CounterOrders): ChangeStreamClient {
  const client = new SpannerChangeStreamClient({
    ...{ database, stream, emulatorHost: host, databaseRole: undefined },
    ...{ priority: undefined, requestTag: undefined, directedRead: undefined },
  })
  return {
    describe: (signal) => client.describe(signal),
    async *query(query, signal) {
      for await (const part of client.query(query, signal)) {
        appendFileSync(receivedPath, part.records.map((record) => `${receivedLine(query, record)}\n`).join(''))
        yield part
      }
    },
    close: () => client.close(),
  }
}

function receivedLine({ token, start }: PartitionQuery, item: ChangeStreamRecord): string {
  const query = `${process.pid} ${token?.slice(0, 8) ?? 'root'} from ${start}:`
  if (item.kind !== 'data') return `${query} ${JSON.stringify(item)}`
  const labels = changesOf(item.record).map((change) => labelOf(lineOf(change)))
  return `${query} ${item.record.commitTimestamp} ${labels.join(' ')} `
}

export function labelOf({ key, value }: CounterLine): string {
  return `${key}=${value}`
}

function report(message: WorkerReport): void {
  process.stdout.write(`${JSON.stringify(message)}\n`)
}

async function work(orders: CounterOrders, drain: AbortSignal): Promise<void> {
  const { database, stream, start, end, outPath, store } = orders
  const file = fileSink({ path: outPath })
  const pipeline = definePipeline({
    name: 'counters',
    source: spannerChangeStream({
      ...{ database, stream, start, heartbeatMs: 200, client: recordedClient(orders) },
      ...(end !== undefined && { end }),
    }),
    steps: (changes) =>
      changes.pipe(
        parMap(
          async (change: Change) => {
            await setTimeout(Math.random() * 5)
            return lineOf(change)
          },
          { concurrency: 100, order: 'key' },
        ),
      ),
    sink: {
      name: 'counted file',
      async write(items: readonly CounterLine[], signal) {
        await file.write(items, signal)
        report({ kind: 'written', items: items.length })
      },
      close: () => file.close(),
    },
    store: openStore(store),
    maxInFlight: 100,
    checkpointIntervalMs: 100,
    // Each worker has a name of its own, as in real life: what its killed forerunner held comes free with the lease.
    leaseMs: 3_000,
  })
  const log = (message: string): void => report({ kind: 'log', message })
  const logger = { debug: () => undefined, info: () => undefined, warn: log, error: log }
  const { outcome } = await runPipeline(pipeline, { drain, logger })
  report({ kind: 'ended', outcome })
}

/** The first line holds the orders; any further one asks for a drain. */
async function main(): Promise<void> {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  report({ kind: 'ready' })
  const first = await lines.next()
  if (first.done) return
  const drain = new AbortController()
  void lines.next().then(({ done }) => {
    // Without the test that gives the orders nobody would ever stop this process.
    if (done) process.exit(1)
    drain.abort()
  })
  try {
    await work(JSON.parse(first.value) as CounterOrders, drain.signal)
  } catch (error) {
    const { name, message } = error as Error
    report({ kind: 'failed', name, code: error instanceof StreamError ? error.code : '', message })
  }
  process.exit(0)
}

if (process.argv[1]?.endsWith('counter-worker.ts')) await main()
