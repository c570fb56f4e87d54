/** Looks at everything that a pipeline needs before it runs: its source, its store and its sinks. */
import { type Check, failedCheck } from '../core/check.ts'
import type { CommitTimestamp, Sink } from '../core/types.ts'
import { isReopened, type Partition } from '../model/partition.ts'
import type { PartitionStore } from '../stores/partition-store.ts'
import { type Pipeline, pipelineName } from './define-pipeline.ts'
import { storeOf } from './open-source.ts'

export interface PreflightOptions {
  /** For a pipeline that has no name of its own. */
  readonly name?: string
  readonly signal?: AbortSignal
}

interface StoreLook {
  readonly check: Check
  /** Empty without progress, or if none can be read. */
  readonly rows: readonly Partition[]
}

/**
 * Checks a pipeline part by part, each as soon as its answer is there. Nothing is read from the stream, nothing is
 * written, and no lease is taken: it may run beside the pipeline. A part that breaks is a failed check, never a throw.
 */
export async function* preflight(
  pipeline: Pipeline,
  { name, signal = new AbortController().signal }: PreflightOptions = {},
): AsyncGenerator<Check, void, undefined> {
  const { source, sinks } = pipeline
  const key = pipelineName(pipeline.name ?? name ?? source.defaultName)
  if (source.checks === undefined) {
    yield { name: 'source', status: 'ok', message: `${source.defaultName}: nothing to check, and no progress to keep` }
  } else {
    const { store, close } = storeOf(pipeline)
    const looking = lookAtStore(store, key, pipeline.onHeld)
    try {
      yield* source.checks(signal, {
        lowWatermark: async () => lowWatermarkOf((await looking).rows),
        isDone: async (end) => isDone((await looking).rows, end),
      })
    } catch (error) {
      yield failedCheck('source', error)
    }
    yield (await looking).check
    await close()
  }
  for (const sink of sinks) yield* await checkSink(sink, signal)
}

async function lookAtStore(store: PartitionStore, pipeline: string, onHeld: Pipeline['onHeld']): Promise<StoreLook> {
  try {
    const rows = store.peek ? await store.peek(pipeline) : await (await store.open(pipeline)).list()
    if (rows === undefined || rows.length === 0) {
      const message = `${store.name}: no progress of '${pipeline}' yet`
      return { check: { name: NAME, status: 'ok', message }, rows: [] }
    }
    return { check: rowsCheck(store, rows, pipeline, onHeld), rows }
  } catch (error) {
    return { check: failedCheck(NAME, error), rows: [] }
  }
}

function rowsCheck(
  store: PartitionStore,
  rows: readonly Partition[],
  pipeline: string,
  onHeld: Pipeline['onHeld'],
): Check {
  const unfinished = rows.filter((row) => row.state !== 'FINISHED')
  const counts = `${unfinished.length} of ${rows.length} partitions unfinished, done up to ${lowWatermarkOf(rows)}`
  const now = Date.now()
  const holders = new Set(unfinished.filter((row) => row.leaseUntilMs > now).map((row) => row.owner))
  holders.delete(null)
  const message = `${store.name}: ${counts}`
  if (holders.size === 0) return { name: NAME, status: 'ok', message }
  const held = `${message}; held by ${[...holders].join(', ')}`
  if (onHeld === 'wait') return { name: NAME, status: 'ok', message: `${held}, a second run waits to take over` }
  const fix = "Stop that run first, or set onHeld: 'wait' to take over when it ends."
  return { name: NAME, status: 'warning', message: `${held}: '${pipeline}' runs already`, fix }
}

/** Over what is still to be read; if that is nothing, where reading ended. */
function lowWatermarkOf(rows: readonly Partition[]): CommitTimestamp | undefined {
  const unfinished = rows.filter((row) => row.state !== 'FINISHED').map((row) => row.watermark)
  if (unfinished.length > 0) return unfinished.sort()[0]
  return rows
    .map((row) => row.watermark)
    .sort()
    .at(-1)
}

function isDone(rows: readonly Partition[], end: CommitTimestamp | undefined): boolean {
  return rows.length > 0 && rows.every((row) => row.state === 'FINISHED' && !isReopened(row, end ?? null))
}

async function checkSink(sink: Sink<unknown>, signal: AbortSignal): Promise<Check[]> {
  if (sink.check === undefined) {
    return [{ name: 'sink', status: 'skipped', message: `${sink.name} has no check of its own` }]
  }
  try {
    return await sink.check(AbortSignal.any([signal, AbortSignal.timeout(SINK_LIMIT_MS)]))
  } catch (error) {
    return [failedCheck('sink', error)]
  } finally {
    await sink.close().catch(() => undefined)
  }
}

const NAME = 'metadata store'
const SINK_LIMIT_MS = 15_000
