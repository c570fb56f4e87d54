/** One unfinished partition in this process: its row, what it has handed out, and its part of the budget. */
import type { Failure, Origin } from '../../core/delivery.ts'
import type { BudgetAccount, InFlightBudget } from '../../core/in-flight-budget.ts'
import { type Checkpoint, InFlightTracker } from '../../core/in-flight-tracker.ts'
import type { CommitTimestamp, Decision } from '../../core/types.ts'
import { MAX_TIMESTAMP } from '../../model/commit-timestamp.ts'
import type { Partition, PartitionState } from '../../model/partition.ts'
import type { Ownership } from '../../stores/partition-store.ts'
import { ReadPosition } from './read-position.ts'

/** Where settlements end up, shared by all partitions of a run. */
export interface SettlementDesk {
  acked(partition: string): void
  /** True if the failed delivery is given up, so that reading goes on; false if the run stops. */
  nacked(partition: string, failure: Failure): boolean
  decide(error: unknown, value: unknown, partition: string, attempt: number): Decision
}

export class LivePartition {
  readonly token: string
  readonly parentTokens: readonly string[]
  readonly start: CommitTimestamp
  readonly ownership: Ownership
  state: PartitionState
  /** Parents that are not known to be finished. */
  readonly waitingFor: Set<string>
  /** Set once it is about to be marked FINISHED: from then on no other progress is stored. */
  isFinishing = false
  /** The id of the open delivery that was last reported as forgotten. */
  reportedId: string | undefined
  /** What was stored last. */
  stored: Checkpoint

  #reading: Reading | undefined

  constructor(row: Partition, owner: string) {
    this.token = row.token
    this.parentTokens = row.parentTokens
    this.start = row.start
    this.state = row.state
    this.ownership = { owner, epoch: row.epoch }
    this.waitingFor = new Set(row.parentTokens)
    this.stored = { watermark: row.watermark, boundaryIds: row.boundaryIds }
  }

  /** Begins to hand out, from what is settled so far. What an earlier reading handed out is no longer its concern. */
  beginReading(budget: InFlightBudget, desk: SettlementDesk): Reading {
    const from = this.checkpoint
    this.#reading?.abandon()
    // What is forgotten a second time is to be reported a second time.
    this.reportedId = undefined
    this.#reading = new Reading(this.token, from, budget.open(), desk)
    return this.#reading
  }

  endReading(): void {
    this.#reading?.abandon()
  }

  get reading(): Reading | undefined {
    return this.#reading
  }

  /** Up to where everything is settled. */
  get checkpoint(): Checkpoint {
    return this.#reading?.tracker.checkpoint ?? this.stored
  }

  get watermark(): CommitTimestamp {
    return this.#reading?.tracker.watermark ?? this.stored.watermark
  }

  /** Up to where everything has been handed out; of what has been read to its end nothing more will come. */
  get enteredUpTo(): CommitTimestamp {
    if (this.#reading?.hasEnded === true) return MAX_TIMESTAMP
    return this.#reading?.position.timestamp ?? this.stored.watermark
  }

  get inFlight(): number {
    return this.#reading?.account.count ?? 0
  }

  /** Whether there is progress that is not stored yet. */
  get isDirty(): boolean {
    const tracker = this.#reading?.tracker
    if (tracker?.watermark === undefined) return false
    return tracker.watermark !== this.stored.watermark || tracker.boundaryCount !== this.stored.boundaryIds.length
  }
}

/** One reading of a partition: the source's side of the deliveries that it hands out. */
export class Reading implements Origin {
  readonly tracker: InFlightTracker
  readonly position: ReadPosition
  readonly account: BudgetAccount
  readonly partition: string
  /** The latest event of moving key ranges that was read: everything before it has been handed out. */
  eventAt: CommitTimestamp | undefined
  /** Everything is handed out, and whoever comes after this partition is announced. */
  hasEnded = false
  readonly #desk: SettlementDesk
  readonly #controller = new AbortController()
  #isAbandoned = false

  constructor(token: string, from: Checkpoint, account: BudgetAccount, desk: SettlementDesk) {
    this.partition = token
    this.tracker = new InFlightTracker(from)
    this.position = new ReadPosition(from)
    this.account = account
    this.#desk = desk
  }

  /** Aborted when this reading is to be begun anew. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }

  acked(sequence: number): void {
    if (this.#isAbandoned) return
    const bytes = this.tracker.settle(sequence)
    if (bytes === undefined) return
    this.account.give(bytes)
    this.#desk.acked(this.partition)
  }

  nacked(sequence: number, failure: Failure): void {
    if (this.#isAbandoned) return
    // A failure that stops the run stays open: the watermark must not pass what never reached the sink.
    if (this.#desk.nacked(this.partition, failure)) this.acked(sequence)
  }

  decide(error: unknown, value: unknown, attempt: number): Decision {
    return this.#desk.decide(error, value, this.partition, attempt)
  }

  /** Reads again from what is settled: everything that is still open is handed out once more, in order. */
  rewind(): void {
    this.#controller.abort(REWIND)
  }

  /** Settlements that come later change nothing. */
  abandon(): void {
    this.#isAbandoned = true
    this.account.close()
  }
}

/** The reason with which a reading is aborted that is to be begun anew. */
export const REWIND: Error = new Error('the partition is read again from its last settled position')
