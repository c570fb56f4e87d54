/** Opens a pipeline's source with what a run lends it: name, store, limits, policy, clock. */
import { systemClock } from '../core/clock.ts'
import { silentLogger } from '../core/types.ts'
import { ownerName, type SourceRun } from '../sources/source.ts'
import { sqlitePartitionStore } from '../stores/index.ts'
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
  const ownStore = pipeline.store === undefined ? sqlitePartitionStore({ path: DEFAULT_STATE }) : undefined
  const run = source.open({
    pipeline: name,
    store: pipeline.store ?? ownStore!,
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
  return { name, run, closeStore: async () => await ownStore?.close() }
}

const DEFAULT_STATE = '.millrace/state.db'
