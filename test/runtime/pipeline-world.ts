/** A simulated stream with what it takes to run a pipeline on it, and sinks that behave as a test wants. */
import { sleep } from '../../src/core/clock.ts'
import type { Logger, Sink } from '../../src/core/types.ts'
import type { ChangeStreamClient } from '../../src/model/change-stream.ts'
import type { Change } from '../../src/model/data-change-record.ts'
import { definePipeline, type PipelineOptions } from '../../src/runtime/define-pipeline.ts'
import type { RunOptions } from '../../src/runtime/run-pipeline.ts'
import { SimulatedStream, VirtualClock } from '../../src/simulator/index.ts'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { memoryPartitionStore, type PartitionStore } from '../../src/stores/index.ts'

/** Keeps what it gets. */
export class ListSink<T> implements Sink<T> {
  readonly name: string = 'listSink'
  readonly items: T[] = []
  closes = 0

  write(items: readonly T[], _signal?: AbortSignal): Promise<void> {
    this.items.push(...items)
    return Promise.resolve()
  }

  close(): Promise<void> {
    this.closes++
    return Promise.resolve()
  }
}

/** Writes only while it is open. */
export class GatedSink<T> extends ListSink<T> {
  override readonly name: string = 'gatedSink'
  #gate = Promise.withResolvers<void>()

  open(): void {
    this.#gate.resolve()
  }

  override async write(items: readonly T[], signal: AbortSignal): Promise<void> {
    const closed = Promise.withResolvers<never>()
    signal.addEventListener('abort', () => closed.reject(signal.reason), { once: true })
    await Promise.race([this.#gate.promise, closed.promise])
    await super.write(items)
  }
}

/** Ignores the signal, as a client library may that has no time-out of its own. */
export const hungSink: Sink<unknown> = {
  name: 'hungSink',
  write: () => new Promise(() => undefined),
  close: () => new Promise(() => undefined),
}

export interface World {
  readonly clock: VirtualClock
  readonly stream: SimulatedStream
  readonly store: PartitionStore
  readonly logs: { readonly message: string; readonly fields: unknown }[]
  readonly run: RunOptions
  pipeline<Out = Change>(
    options: Partial<PipelineOptions<Change, Out>> & {
      readonly client?: ChangeStreamClient
      readonly end?: string
    },
  ): ReturnType<typeof definePipeline<Change, Out>>
  /** Changes `rows` rows, one transaction each: 20 rows in turn. */
  commit(rows: number, note?: string): void
  /** Changes one row so often; its notes count from 0. */
  commitOneRow(times: number): void
  until(isSo: () => boolean): Promise<void>
}

/** A simulated stream and the options to run a pipeline on it. */
export async function inWorld<R>(body: (world: World) => Promise<R>): Promise<R> {
  const clock = new VirtualClock({ maxSimulatedMs: 6 * 3_600_000 })
  const stream = new SimulatedStream({ seed: 5, clock, initialPartitions: 2, tieChance: 0 })
  stream.defineTable({
    name: 'Orders',
    columns: [
      { name: 'Id', type: 'STRING', isPrimaryKey: true },
      { name: 'Note', type: 'STRING' },
    ],
  })
  const logs: World['logs'] = []
  const log = (message: string, fields?: unknown): number => logs.push({ message, fields })
  const logger: Logger = { debug: log, info: log, warn: log, error: log }
  const store = memoryPartitionStore({ clock })
  return await clock.run(() =>
    body({
      clock,
      stream,
      store,
      logs,
      run: { clock, random: () => 0.5, logger },
      pipeline: ({ client = stream.client(), end, ...options }) =>
        definePipeline({
          name: 'test',
          source: spannerChangeStream({
            database: 'projects/p/instances/i/databases/d',
            stream: stream.name,
            start: stream.createdAt,
            client,
            ...(end !== undefined && { end }),
          }),
          sink: new ListSink(),
          store,
          ...options,
        } as PipelineOptions<Change, never>) as never,
      commit(rows, note = 'text') {
        for (let n = 0; n < rows; n++) {
          const keys = { Id: `row ${n % 20}` }
          const op = stream.row('Orders', keys) === undefined ? 'insert' : 'update'
          stream.commit([{ table: 'Orders', op, keys, values: { Note: note } }])
        }
      },
      commitOneRow(times) {
        for (let n = 0; n < times; n++) {
          const op = n === 0 ? 'insert' : 'update'
          stream.commit([{ table: 'Orders', op, keys: { Id: 'row' }, values: { Note: String(n) } }])
        }
      },
      async until(isSo) {
        while (!isSo()) await sleep(clock, 10)
      },
    }),
  )
}

export function lastCommit(stream: SimulatedStream): string {
  return stream.ledger.changes.at(-1)!.commitTimestamp
}
