/** A worker process of the crash tests: waits for its orders, runs a pipeline, and freezes where it is to be killed. */
import { writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setTimeout } from 'node:timers/promises'
import { StreamError } from '../../src/core/errors.ts'
import type { Logger, Sink } from '../../src/core/types.ts'
import type { Change } from '../../src/model/data-change-record.ts'
import { definePipeline, runPipeline } from '../../src/runtime/index.ts'
import { fileSink } from '../../src/sinks/index.ts'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { type PartitionStore, type PartitionTable, sqlitePartitionStore } from '../../src/stores/index.ts'

/**
 * A durable step. `children`: child rows are stored; `end`: a watermark is stored that reaches the start of the
 * children, which acks the child record; `any` counts all of them together.
 */
export type Step = 'children' | 'end' | 'checkpoint' | 'finish' | 'line' | 'any'

export interface FreezePoint {
  readonly step: Step
  readonly side: 'before' | 'after'
  /** Counts the steps of that kind in this process from 1. */
  readonly occurrence: number
}

export interface WorkerOrders {
  readonly host: string
  readonly database: string
  readonly stream: string
  readonly start: string
  readonly end?: string
  readonly statePath: string
  readonly outPath: string
  readonly owner: string
  readonly leaseMs: number
  readonly onHeld?: 'wait' | 'exit'
  readonly freeze?: FreezePoint
}

const CHECKPOINT_INTERVAL_MS = 15

/** What the worker says, one line of JSON each. */
export type WorkerReport =
  | { readonly kind: 'ready' }
  | { readonly kind: 'frozen' }
  | { readonly kind: 'written'; readonly items: number }
  | { readonly kind: 'log'; readonly message: string }
  | { readonly kind: 'ended'; readonly outcome: string }
  | { readonly kind: 'failed'; readonly name: string; readonly code: string; readonly message: string }

function report(message: WorkerReport): void {
  // In one piece and at once: what follows may be the end of this process.
  writeSync(1, `${JSON.stringify(message)}\n`)
}

/** Stops the whole process, timers and sockets included, until it is killed. */
function freezeForever(): void {
  report({ kind: 'frozen' })
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
}

class Freezer {
  readonly #point: FreezePoint | undefined
  #seen = 0

  constructor(point: FreezePoint | undefined) {
    this.#point = point
  }

  async around<R>(steps: readonly Step[], work: () => Promise<R>): Promise<R> {
    const point = this.#point
    const isStep = point !== undefined && (point.step === 'any' || steps.includes(point.step))
    const isHere = isStep && ++this.#seen === point.occurrence
    if (isHere && point.side === 'before') {
      // Progress that was noted too early gets the time to reach the store, where it does harm.
      await setTimeout(4 * CHECKPOINT_INTERVAL_MS)
      freezeForever()
    }
    const result = await work()
    if (isHere && point.side === 'after') freezeForever()
    return result
  }
}

function freezingStore(store: PartitionStore, freezer: Freezer): PartitionStore {
  return {
    name: store.name,
    open: async (pipeline) => freezingTable(await store.open(pipeline), freezer),
    close: () => store.close(),
  }
}

function freezingTable(table: PartitionTable, freezer: Freezer): PartitionTable {
  const childrenStarts = new Set<string>()
  const endOf = (watermark: string): Step[] => (childrenStarts.has(watermark) ? ['end'] : [])
  return {
    list: () => table.list(),
    get: (token) => table.get(token),
    createRoot: (root, owner, leaseMs) => table.createRoot(root, owner, leaseMs),
    reopen: (end) => table.reopen(end),
    claim: (owner, leaseMs) => table.claim(owner, leaseMs),
    advance: (token, ownership, from, to) => table.advance(token, ownership, from, to),
    release: (owner) => table.release(owner),
    addChildren(parent, ownership, children, leaseMs) {
      for (const child of children) childrenStarts.add(child.start)
      return freezer.around(['children'], () => table.addChildren(parent, ownership, children, leaseMs))
    },
    checkpoint(owner, writes, leaseMs) {
      const write = (): Promise<string[]> => table.checkpoint(owner, writes, leaseMs)
      const ends = writes.flatMap(({ watermark }) => endOf(watermark))
      return writes.length === 0 ? write() : freezer.around(['checkpoint', ...ends], write)
    },
    finish(token, ownership, checkpoint, endedAt) {
      const steps: Step[] = ['finish', ...endOf(checkpoint.watermark)]
      return freezer.around(steps, () => table.finish(token, ownership, checkpoint, endedAt))
    },
  }
}

function freezingSink(sink: Sink<Change>, freezer: Freezer): Sink<Change> {
  return {
    name: sink.name,
    // One line at a time, so that a kill may fall between any two.
    maxBatchItems: 1,
    async write(items, signal) {
      await freezer.around(['line'], () => sink.write(items, signal))
      report({ kind: 'written', items: items.length })
    },
    close: () => sink.close(),
  }
}

async function work(orders: WorkerOrders, drain: AbortSignal): Promise<void> {
  const { host, database, stream, start, end, owner, leaseMs, onHeld = 'wait' } = orders
  const freezer = new Freezer(orders.freeze)
  const pipeline = definePipeline({
    name: 'crash',
    source: spannerChangeStream({
      database,
      stream,
      start,
      heartbeatMs: 100,
      emulatorHost: host,
      ...(end !== undefined && { end }),
    }),
    sink: freezingSink(fileSink({ path: orders.outPath }), freezer),
    store: freezingStore(sqlitePartitionStore({ path: orders.statePath }), freezer),
    maxInFlight: 8,
    checkpointIntervalMs: CHECKPOINT_INTERVAL_MS,
    leaseMs,
    onHeld,
  })
  const log = (message: string): void => report({ kind: 'log', message })
  const logger: Logger = { debug: () => undefined, info: log, warn: log, error: log }
  const { outcome } = await runPipeline(pipeline, { owner, logger, drain })
  report({ kind: 'ended', outcome })
}

/** The first line holds the orders; any further one asks for a drain. */
async function main(): Promise<void> {
  // The client loads itself at the first read: half a second that is better spent before the orders come.
  await import('@google-cloud/spanner')
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  report({ kind: 'ready' })
  const first = await lines.next()
  if (first.done) return
  const drain = new AbortController()
  void lines.next().then(({ done }) => {
    if (!done) drain.abort()
  })
  try {
    await work(JSON.parse(first.value) as WorkerOrders, drain.signal)
  } catch (error) {
    const { name, message } = error as Error
    report({ kind: 'failed', name, code: error instanceof StreamError ? error.code : '', message })
  }
  process.exit(0)
}

await main()
