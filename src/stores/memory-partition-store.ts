/** Partition progress in this process's memory: for tests, demos and streams that are read once. */
import { type Clock, systemClock } from '../core/clock.ts'
import type { Checkpoint } from '../core/in-flight-tracker.ts'
import { knownKeys } from '../core/options.ts'
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import type { Partition, PartitionState } from '../model/partition.ts'
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
    async close() {},
  }
}

// No method awaits anything, so each runs in one piece. Rows are replaced, never changed: what was returned stays.
class MemoryPartitionTable implements PartitionTable {
  readonly #rows = new Map<string, Partition>()
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  async list(): Promise<Partition[]> {
    return [...this.#rows.values()]
  }

  async get(token: string): Promise<Partition | undefined> {
    return this.#rows.get(token)
  }

  async createRoot(root: NewPartition, owner: string, leaseMs: number): Promise<boolean> {
    if (this.#rows.size > 0) return false
    this.#insert(root, owner, leaseMs)
    return true
  }

  async reopen(end: CommitTimestamp | null): Promise<void> {
    for (const row of this.#rows.values()) {
      if (row.state !== 'FINISHED' || row.endedAt === null || (end !== null && row.endedAt >= end)) continue
      this.#put({ ...row, state: 'RUNNING', endedAt: null })
    }
  }

  async claim(owner: string, leaseMs: number): Promise<Partition[]> {
    const now = this.#clock.now()
    for (const row of this.#unfinished()) {
      if (row.owner !== null && row.owner !== owner && row.leaseUntilMs > now) continue
      this.#put({ ...row, owner, epoch: row.epoch + 1, leaseUntilMs: now + leaseMs })
    }
    return this.#unfinished()
  }

  async addChildren(
    parent: string,
    ownership: Ownership,
    children: readonly NewPartition[],
    leaseMs: number,
  ): Promise<Partition[] | undefined> {
    if (!this.#held(parent, ownership)) return undefined
    const inserted: Partition[] = []
    for (const child of children) {
      if (!this.#rows.has(child.token)) inserted.push(this.#insert(child, ownership.owner, leaseMs))
    }
    return inserted
  }

  async advance(token: string, ownership: Ownership, from: PartitionState, to: PartitionState): Promise<boolean> {
    const row = this.#held(token, ownership)
    if (row?.state !== from) return false
    this.#put({ ...row, state: to })
    return true
  }

  async checkpoint(owner: string, writes: readonly CheckpointWrite[], leaseMs: number): Promise<string[]> {
    const lost: string[] = []
    for (const { token, epoch, watermark, boundaryIds } of writes) {
      const row = this.#held(token, { owner, epoch })
      if (!row) lost.push(token)
      else if (row.state === 'RUNNING') this.#put(progressed(row, { watermark, boundaryIds }))
    }
    const leaseUntilMs = this.#clock.now() + leaseMs
    for (const row of this.#unfinished()) if (row.owner === owner) this.#put({ ...row, leaseUntilMs })
    return lost
  }

  async finish(
    token: string,
    ownership: Ownership,
    checkpoint: Checkpoint,
    endedAt: CommitTimestamp | null,
  ): Promise<boolean> {
    const row = this.#held(token, ownership)
    if (row?.state !== 'RUNNING') return false
    this.#put({ ...progressed(row, checkpoint), state: 'FINISHED', endedAt, owner: null, leaseUntilMs: 0 })
    return true
  }

  async release(owner: string): Promise<void> {
    for (const row of this.#rows.values()) {
      if (row.owner === owner) this.#put({ ...row, owner: null, leaseUntilMs: 0 })
    }
  }

  #unfinished(): Partition[] {
    return [...this.#rows.values()].filter((row) => row.state !== 'FINISHED')
  }

  #held(token: string, { owner, epoch }: Ownership): Partition | undefined {
    const row = this.#rows.get(token)
    return row?.owner === owner && row.epoch === epoch ? row : undefined
  }

  #insert({ token, parentTokens, start }: NewPartition, owner: string, leaseMs: number): Partition {
    const row: Partition = {
      token,
      parentTokens: [...parentTokens],
      start,
      endedAt: null,
      state: 'CREATED',
      watermark: start,
      boundaryIds: [],
      owner,
      epoch: 1,
      leaseUntilMs: this.#clock.now() + leaseMs,
    }
    this.#put(row)
    return row
  }

  #put(row: Partition): void {
    this.#rows.set(row.token, row)
  }
}

/** An equal watermark counts as progress: the changes of one instant settle bit by bit. */
function progressed(row: Partition, { watermark, boundaryIds }: Checkpoint): Partition {
  return watermark < row.watermark ? row : { ...row, watermark, boundaryIds: [...boundaryIds] }
}

const OWNER = 'memoryPartitionStore'
