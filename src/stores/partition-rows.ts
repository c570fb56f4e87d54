/** The rules of all partition stores, over rows in memory: who may change what, and what a change leaves behind. */
import type { Clock } from '../core/clock.ts'
import type { Checkpoint } from '../core/in-flight-tracker.ts'
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import { isReopened, type Partition, type PartitionState } from '../model/partition.ts'
import type { CheckpointWrite, NewPartition, Ownership } from './partition-store.ts'

export interface RowChange {
  /** Undefined if the row is new. */
  readonly before: Partition | undefined
  readonly after: Partition
}

/**
 * Rows of one pipeline, all of them or those that a piece of work needs, and the rules of `PartitionTable` on them.
 * No method waits for anything, so each runs in one piece. Rows are replaced, never changed: what was returned stays.
 */
export class PartitionRows {
  readonly #before: ReadonlyMap<string, Partition>
  readonly #rows: Map<string, Partition>
  readonly #clock: Clock

  constructor(clock: Clock, rows: readonly Partition[] = []) {
    this.#clock = clock
    this.#before = new Map(rows.map((row) => [row.token, row]))
    this.#rows = new Map(this.#before)
  }

  /** What is different from the rows that came in. */
  changes(): RowChange[] {
    const pairs = this.list().map((after): RowChange => ({ before: this.#before.get(after.token), after }))
    return pairs.filter(({ before, after }) => before !== after)
  }

  list(): Partition[] {
    return [...this.#rows.values()]
  }

  get(token: string): Partition | undefined {
    return this.#rows.get(token)
  }

  createRoot(root: NewPartition, owner: string, leaseMs: number): boolean {
    if (this.#rows.size > 0) return false
    this.#insert(root, owner, leaseMs)
    return true
  }

  reopen(end: CommitTimestamp | null): void {
    for (const row of this.list()) if (isReopened(row, end)) this.#put({ ...row, state: 'RUNNING', endedAt: null })
  }

  claim(owner: string, leaseMs: number): Partition[] {
    const now = this.#clock.now()
    for (const row of this.#unfinished()) {
      if (row.owner !== null && row.owner !== owner && row.leaseUntilMs > now) continue
      this.#put({ ...row, owner, epoch: row.epoch + 1, leaseUntilMs: now + leaseMs })
    }
    return this.#unfinished()
  }

  addChildren(
    parent: string,
    ownership: Ownership,
    children: readonly NewPartition[],
    leaseMs: number,
  ): Partition[] | undefined {
    if (!this.#held(parent, ownership)) return undefined
    const inserted: Partition[] = []
    for (const child of children) {
      if (!this.#rows.has(child.token)) inserted.push(this.#insert(child, ownership.owner, leaseMs))
    }
    return inserted
  }

  advance(token: string, ownership: Ownership, from: PartitionState, to: PartitionState): boolean {
    const row = this.#held(token, ownership)
    if (row?.state !== from) return false
    this.#put({ ...row, state: to })
    return true
  }

  checkpoint(
    owner: string,
    writes: readonly CheckpointWrite[],
    leaseMs: number,
    renewed: 'all' | 'written' = 'all',
  ): string[] {
    const lost: string[] = []
    const leaseUntilMs = this.#clock.now() + leaseMs
    for (const { token, epoch, watermark, boundaryIds } of writes) {
      const row = this.#held(token, { owner, epoch })
      if (!row) lost.push(token)
      else {
        const isRunning = row.state === 'RUNNING'
        this.#put({ ...(isRunning ? progressed(row, { watermark, boundaryIds }) : row), leaseUntilMs })
      }
    }
    if (renewed === 'all') this.renew(owner, leaseMs)
    return lost
  }

  renew(owner: string, leaseMs: number, except: ReadonlySet<string> = NONE): void {
    const leaseUntilMs = this.#clock.now() + leaseMs
    for (const row of this.#unfinished()) {
      if (row.owner === owner && !except.has(row.token)) this.#put({ ...row, leaseUntilMs })
    }
  }

  finish(token: string, ownership: Ownership, checkpoint: Checkpoint, endedAt: CommitTimestamp | null): boolean {
    const row = this.#held(token, ownership)
    if (row?.state !== 'RUNNING') return false
    this.#put({ ...progressed(row, checkpoint), state: 'FINISHED', endedAt, owner: null, leaseUntilMs: 0 })
    return true
  }

  release(owner: string): void {
    for (const row of this.list()) if (row.owner === owner) this.#put({ ...row, owner: null, leaseUntilMs: 0 })
  }

  #unfinished(): Partition[] {
    return this.list().filter((row) => row.state !== 'FINISHED')
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

const NONE: ReadonlySet<string> = new Set()
