/** What a source is: a stream that can be opened by a run with its store, budget, policy and clock. */
import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import type { Check } from '../core/check.ts'
import { type Clock, systemClock } from '../core/clock.ts'
import { type ErrorPolicy, errorPolicy } from '../core/error-policy.ts'
import type { BudgetLimits } from '../core/in-flight-budget.ts'
import { Stage } from '../core/stage.ts'
import { type CommitTimestamp, type Logger, silentLogger } from '../core/types.ts'
import type { PartitionState } from '../model/partition.ts'
import { memoryPartitionStore, type PartitionStore } from '../stores/index.ts'

/** What a run lends to its source. */
export interface SourceContext {
  /** Progress is kept under this name. */
  readonly pipeline: string
  readonly store: PartitionStore
  readonly limits: BudgetLimits
  readonly policy: ErrorPolicy
  readonly checkpointIntervalMs: number
  /** A delivery that is open for longer is reported with its partition and id; 0 turns the check off. */
  readonly settleTimeoutMs: number
  readonly onSettleTimeout: 'warn' | 'retry' | 'stop'
  /** How long a partition stays ours without a sign of life. */
  readonly leaseMs: number
  /** When another process holds the partitions: wait to take over, or fail. */
  readonly onHeld: 'wait' | 'exit'
  /** Names this process in leases: `host:pid:random`. */
  readonly owner: string
  readonly clock: Clock
  /** For the jitter of waits; seeded in simulations. */
  readonly random: () => number
  readonly logger: Logger
}

export interface PartitionStatus {
  readonly token: string
  readonly parentTokens: readonly string[]
  readonly state: PartitionState
  readonly watermark: CommitTimestamp
  readonly inFlight: number
}

export interface SourceStatus {
  /** Who holds the partitions while this run waits as a standby. */
  readonly standbyFor: string | undefined
  /** Deliveries handed out so far, repeats included. */
  readonly delivered: number
  readonly settled: number
  readonly skipped: number
  readonly inFlight: number
  readonly inFlightBytes: number
  /** Everything committed before this time is settled, over running and announced partitions. */
  readonly lowWatermark: CommitTimestamp | undefined
  /** Lag of the low watermark as a share of the stream's retention: at 1 history is lost. Undefined if it has none. */
  readonly retentionUsed: number | undefined
  /** Gaps in the history that were skipped. */
  readonly gaps: number
  /** Partitions that are not finished. */
  readonly partitions: readonly PartitionStatus[]
  /** Those that this run has finished. */
  readonly finishedPartitions: number
  /** Queries that were cut, failed or ended without evidence, and were read again. */
  readonly rereads: number
}

/** One run of a source. */
export interface SourceRun<T> {
  /** To be iterated once. Ends when everything is read and settled, or after `drain`. */
  readonly stream: Stage<T>
  /** Aborted with the error that stops the run, whether or not the stream is still being read. */
  readonly failed: AbortSignal
  /** Reads no further: the stream ends after what has been read. */
  drain(): void
  /**
   * Stores the progress made so far and gives up the leases; what is settled later is not noted. Safe to call twice.
   * With `keepLeases` others must wait until they run out: for when something may still be at work.
   */
  close(options?: { readonly keepLeases?: boolean }): Promise<void>
  status(): SourceStatus
}

/** What a look before a run can tell a source. */
export interface CheckContext {
  /** Up to where everything is settled by earlier runs; undefined if there is no progress, or none can be read. */
  lowWatermark(): Promise<CommitTimestamp | undefined>
  /** Whether earlier runs have read everything up to `end`, so that there is nothing left to do. */
  isDone(end: CommitTimestamp | undefined): Promise<boolean>
}

/** Looks whether the source can be read, one thing after the other. Writes nothing, and never throws. */
export type SourceChecks = (signal: AbortSignal, context: CheckContext) => AsyncIterable<Check>

/**
 * A stream of deliveries that a run opens. It can also be iterated on its own, like any stream: then it keeps its
 * progress nowhere and starts at its beginning each time.
 */
export class Source<T> extends Stage<T> {
  /** The pipeline's name if the user gives none. */
  readonly defaultName: string
  readonly open: (context: SourceContext) => SourceRun<T>
  /** Undefined if there is nothing to look at. */
  readonly checks: SourceChecks | undefined

  constructor(
    defaultName: string,
    open: (context: SourceContext) => SourceRun<T>,
    alone: () => SourceContext,
    checks?: SourceChecks,
  ) {
    super(async function* (signal) {
      const run = open(alone())
      try {
        yield* run.stream.chunks(signal)
      } finally {
        await run.close()
      }
    })
    this.defaultName = defaultName
    this.open = open
    this.checks = checks
  }
}

/** For a source that is iterated on its own: the defaults of a pipeline, progress kept in memory. */
export function aloneContext(name: string): SourceContext {
  return {
    pipeline: name,
    store: memoryPartitionStore(),
    limits: { maxInFlight: 1000, maxInFlightBytes: 64 * 1024 * 1024 },
    policy: errorPolicy(),
    checkpointIntervalMs: 1000,
    settleTimeoutMs: 60_000,
    onSettleTimeout: 'warn',
    leaseMs: 10_000,
    onHeld: 'wait',
    owner: ownerName(),
    clock: systemClock,
    random: Math.random,
    logger: silentLogger,
  }
}

/** Different for every run, and tells a person where it is. */
export function ownerName(): string {
  return `${hostname()}:${process.pid}:${randomBytes(3).toString('hex')}`
}
