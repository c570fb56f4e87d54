/** Where partition progress is kept: the interface and its contract. */
import type { Checkpoint } from '../core/in-flight-tracker.ts'
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import type { Partition, PartitionState } from '../model/partition.ts'

/**
 * Keeps the progress of any number of pipelines, each under its name.
 * Every implementation passes `test/contracts/partition-store-contract.ts`.
 */
export interface PartitionStore {
  /** For messages: `sqlitePartitionStore(.millrace/state.db)`. */
  readonly name: string
  /** The partitions of one pipeline; creates what is needed to keep them. */
  open(pipeline: string): Promise<PartitionTable>
  /**
   * The rows of one pipeline for a look before a run; undefined if nothing was made for it yet, though it could be.
   * Makes and changes nothing. Throws a StoreError if the store cannot be used.
   * @default `open` and `list`
   */
  peek?(pipeline: string): Promise<readonly Partition[] | undefined>
  /** Safe to call twice. */
  close(): Promise<void>
}

export interface NewPartition {
  readonly token: string
  readonly parentTokens: readonly string[]
  readonly start: CommitTimestamp
}

/** Proves the right to write: who reads a partition, and in which epoch. */
export interface Ownership {
  readonly owner: string
  readonly epoch: number
}

export interface CheckpointWrite extends Checkpoint {
  readonly token: string
  readonly epoch: number
}

/**
 * The partitions of one pipeline.
 *
 * All writes are durable when they resolve. State changes are conditional: they compare owner, epoch and state, and
 * change nothing if one of them differs. Rows are born owned by whoever inserts them, so that no other process finds
 * them free before their lease runs out. An expired lease alone takes nothing away from its owner: only a claim by
 * another one does, which raises the epoch.
 */
export interface PartitionTable {
  /** All rows, finished ones included, in no particular order. */
  list(): Promise<Partition[]>
  get(token: string): Promise<Partition | undefined>

  /** Inserts the first row if there is none at all (state CREATED, epoch 1). Says whether it did. */
  createRoot(root: NewPartition, owner: string, leaseMs: number): Promise<boolean>

  /**
   * Makes the rows that were finished at a user's end before `end` (at any end, if null) RUNNING again, and unowned:
   * there is more to read in them now.
   */
  reopen(end: CommitTimestamp | null): Promise<void>

  /**
   * Takes every unfinished row that is unowned, whose lease has run out, or that `owner` holds already, and raises its
   * epoch. Returns all unfinished rows: those with another owner are still held. One atomic step.
   */
  claim(owner: string, leaseMs: number): Promise<Partition[]>

  /**
   * Inserts the children that do not exist yet (state CREATED, watermark = start, epoch 1, owned), one by one: an
   * existing child stays as it is. Returns the inserted ones, or undefined, changing nothing, if `parent` is not
   * held in this epoch.
   */
  addChildren(
    parent: string,
    ownership: Ownership,
    children: readonly NewPartition[],
    leaseMs: number,
  ): Promise<Partition[] | undefined>

  /** Moves a row from one state to the next; false, changing nothing, if owner, epoch or state differ. */
  advance(token: string, ownership: Ownership, from: PartitionState, to: PartitionState): Promise<boolean>

  /**
   * Stores the progress of many running partitions and renews the leases of all rows of `owner`, in one commit.
   * A write that carries another epoch than the row, or would move a watermark back, is left out.
   * Returns the tokens whose rows are no longer held by `owner` in that epoch.
   */
  checkpoint(owner: string, writes: readonly CheckpointWrite[], leaseMs: number): Promise<string[]>

  /**
   * Moves a running row to FINISHED with its last checkpoint and gives up its lease, in one commit; false, changing
   * nothing, if it is not held in this epoch or not RUNNING. `endedAt` is the user's end if that is why it is finished.
   */
  finish(token: string, ownership: Ownership, checkpoint: Checkpoint, endedAt: CommitTimestamp | null): Promise<boolean>

  /** Gives up all leases of `owner` so that others need not wait for their end. Rows stay as they are. */
  release(owner: string): Promise<void>
}
