/** The whole consumer API in one function: returning is an ack, throwing asks the error policy. */
import type { Sink } from '../core/types.ts'
import { parMap } from '../operators/index.ts'
import type { Source } from '../sources/source.ts'
import { definePipeline, type PipelineOptions } from './define-pipeline.ts'
import { type RunOptions, type RunSummary, runPipeline } from './run-pipeline.ts'

export interface HandlerContext {
  /** Aborted when the run ends before the handler does. */
  readonly signal: AbortSignal
  /** Token of the partition the value came from. */
  readonly partition: string
  /** 1 at the first call for this value. */
  readonly attempt: number
}

export type SubscribeOptions<T> = Omit<PipelineOptions<T, T>, 'source' | 'steps' | 'sink'> & Omit<RunOptions, 'name'>

/**
 * Calls `handler` for every value. Its return acks the value; its throw asks `onError`.
 * At most `maxInFlight` calls run at a time (1 by default: one at a time, in order); calls for one key never overlap
 * and keep commit order. Resolves when the source has ended or was drained; rejects when an error stopped it.
 * @example await subscribe(spannerChangeStream({ database, stream }), async (change) => { await save(change) })
 */
export async function subscribe<T>(
  source: Source<T>,
  handler: (value: T, context: HandlerContext) => unknown,
  options: SubscribeOptions<T> = {},
): Promise<RunSummary> {
  const { clock, random, logger, drain, close, owner, onStart, ...rest } = options
  const { maxInFlight = 1 } = rest
  const pipeline = definePipeline<T, unknown>({
    ...rest,
    maxInFlight,
    source,
    steps: (values) =>
      values.pipe(parMap(handler, { concurrency: maxInFlight, order: 'key', ...(clock && { clock }) })),
    sink: nowhere,
  })
  const run = { clock, random, logger, drain, close, owner, onStart }
  return await runPipeline(pipeline, Object.fromEntries(Object.entries(run).filter(([, v]) => v !== undefined)))
}

/** The handler has done the work: there is nothing left to write. */
const nowhere: Sink<unknown> = { name: 'subscribe', write: () => Promise.resolve(), close: () => Promise.resolve() }
