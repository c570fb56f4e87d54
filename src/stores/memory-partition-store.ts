/** Partition progress in this process's memory: for tests, demos and streams that are read once. */
import { type Clock, systemClock } from '../core/clock.ts'
import type { Checkpoint } from '../core/in-flight-tracker.ts'
import { knownKeys } from '../core/options.ts'
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import type { Partition, PartitionState } from '../model/partition.ts'
import { PartitionRows } from './partition-rows.ts'
import type { CheckpointWrite, NewPartition, Ownership, PartitionStore, PartitionTable } from './partition-store.ts'

export interface MemoryPartitionStoreOptions {
  /**
   * What leases are measured with.
   * @default the machine's clock
   */
  readonly clock?: Clock
}

/**
 * Keeps progress for as long as the store object lives; `close` keeps it too, so that a second run goes on.
 * Tables opened under the same name share their rows. Nothing survives the process: use `sqlitePartitionStore` or
 * another durable store for that.
 * @example definePipeline({ source, sink, store: memoryPartitionStore() })
 */
export function memoryPartitionStore(options: MemoryPartitionStoreOptions = {}): PartitionStore {
  knownKeys(OWNER, options, ['clock'])
  const { clock = systemClock } = options
  const tables = new Map<string, PartitionTable>()
  return {
    name: OWNER,
    async open(pipeline) {
      const table = tables.get(pipeline) ?? new MemoryPartitionTable(clock)
      tables.set(pipeline, table)
      return table
    },
    async peek(pipeline) {
      return await tables.get(pipeline)?.list()
    },
    async close() {},
  }
}

class MemoryPartitionTable implements PartitionTable {
  readonly #rows: PartitionRows

  constructor(clock: Clock) {
    this.#rows = new PartitionRows(clock)
  }

  async list(): Promise<Partition[]> {
    return this.#rows.list()
  }

  async get(token: string): Promise<Partition | undefined> {
    return this.#rows.get(token)
  }

  async createRoot(root: NewPartition, owner: string, leaseMs: number): Promise<boolean> {
    return this.#rows.createRoot(root, owner, leaseMs)
  }

  async reopen(end: CommitTimestamp | null): Promise<void> {
    this.#rows.reopen(end)
  }

  async claim(owner: string, leaseMs: number): Promise<Partition[]> {
    return this.#rows.claim(owner, leaseMs)
  }

  async addChildren(
    parent: string,
    ownership: Ownership,
    children: readonly NewPartition[],
    leaseMs: number,
  ): Promise<Partition[] | undefined> {
    return this.#rows.addChildren(parent, ownership, children, leaseMs)
  }

  async advance(token: string, ownership: Ownership, from: PartitionState, to: PartitionState): Promise<boolean> {
    return this.#rows.advance(token, ownership, from, to)
  }

  async checkpoint(owner: string, writes: readonly CheckpointWrite[], leaseMs: number): Promise<string[]> {
    return this.#rows.checkpoint(owner, writes, leaseMs)
  }

  async finish(
    token: string,
    ownership: Ownership,
    checkpoint: Checkpoint,
    endedAt: CommitTimestamp | null,
  ): Promise<boolean> {
    return this.#rows.finish(token, ownership, checkpoint, endedAt)
  }

  async release(owner: string): Promise<void> {
    this.#rows.release(owner)
  }
}

const OWNER = 'memoryPartitionStore'
