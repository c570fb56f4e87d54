/** Opens a pipeline's source with what a run lends it: name, store, limits, policy, clock. */
import { systemClock } from '../core/clock.ts'
import { silentLogger } from '../core/types.ts'
import { ownerName, type SourceRun } from '../sources/source.ts'
import { type PartitionStore, sqlitePartitionStore } from '../stores/index.ts'
import { type Pipeline, pipelineName } from './define-pipeline.ts'
import type { RunOptions } from './run-pipeline.ts'

export interface OpenedSource<T> {
  readonly name: string
  readonly run: SourceRun<T>
  /** Closes the store if it was opened here; a store that the user made stays the user's. */
  closeStore(): Promise<void>
}

export function openSource<T>(
  pipeline: Pipeline<T, never> | Pipeline<T, unknown>,
  options: Pick<RunOptions, 'name' | 'clock' | 'random' | 'logger' | 'owner'>,
): OpenedSource<T> {
  const { source, policy, maxInFlight, maxInFlightBytes, checkpointIntervalMs } = pipeline
  const { settleTimeoutMs, onSettleTimeout, leaseMs, onHeld } = pipeline
  const name = pipelineName(pipeline.name ?? options.name ?? source.defaultName)
  const { store, close } = storeOf(pipeline)
  const run = source.open({
    pipeline: name,
    store,
    limits: { maxInFlight, maxInFlightBytes },
    policy,
    checkpointIntervalMs,
    settleTimeoutMs,
    onSettleTimeout,
    leaseMs,
    onHeld,
    owner: options.owner ?? ownerName(),
    clock: options.clock ?? systemClock,
    random: options.random ?? Math.random,
    logger: options.logger ?? silentLogger,
  })
  return { name, run, closeStore: close }
}

/** The pipeline's own store, which stays the user's, or the default one, which is closed by `close`. */
export function storeOf({ store }: { readonly store: PartitionStore | undefined }): {
  readonly store: PartitionStore
  readonly close: () => Promise<void>
} {
  if (store !== undefined) return { store, close: () => Promise.resolve() }
  const made = sqlitePartitionStore({ path: DEFAULT_STATE })
  return { store: made, close: () => made.close() }
}

const DEFAULT_STATE = '.millrace/state.db'
