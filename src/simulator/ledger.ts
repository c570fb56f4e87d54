/** The truth for tests: everything that was committed, every change of partitions, every fault. */
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import type { Row } from '../model/data-change-record.ts'
import type { GrpcCode } from '../model/grpc-code.ts'
import type { FaultKind } from './faults.ts'

/** One row changed, as every reader must deliver it. */
export interface LedgerChange {
  /** `<server transaction id>/<record sequence>/<mod index>`, as `changeId` makes it. */
  readonly id: string
  /** As `rowKey` makes it. */
  readonly key: string
  readonly table: string
  readonly op: 'insert' | 'update' | 'delete'
  readonly keys: Row
  readonly newValues: Row
  readonly oldValues: Row
  readonly commitTimestamp: CommitTimestamp
  readonly partitionToken: string
}

export interface LedgerTopologyEvent {
  readonly kind: 'create' | 'split' | 'move' | 'merge' | 'moveRange' | 'rotateRanges'
  /**
   * The parents end and the children start here; with mutable key ranges, keys move from the ones to the others. Where
   * ranges rotate, each parent gives to the child in the same place.
   */
  readonly timestamp: CommitTimestamp
  readonly parents: readonly string[]
  readonly children: readonly string[]
}

export interface LedgerFault {
  readonly kind: FaultKind
  readonly code?: GrpcCode
  /** Null for the first query of a stream. */
  readonly token: string | null
  /** Counts the queries of the stream from 1. */
  readonly query: number
  /** Number of the message in its query, from 1, that the fault came instead of. */
  readonly message: number
  readonly atMs: number
}

/** Grows only, unless the stream was told to keep a limited history. Changes are in commit order. */
export interface Ledger {
  readonly changes: readonly LedgerChange[]
  readonly topology: readonly LedgerTopologyEvent[]
  readonly faults: readonly LedgerFault[]
  /** How many faults of each kind there were. */
  readonly faultCounts: Readonly<Record<FaultKind, number>>
  readonly transactions: number
  /** Changes at the front that were dropped to keep the history limited. */
  readonly forgottenChanges: number
}

/** The ledger as its owner sees it. */
export class LedgerBook implements Ledger {
  readonly changes: LedgerChange[] = []
  readonly topology: LedgerTopologyEvent[] = []
  readonly faults: LedgerFault[] = []
  readonly faultCounts: Record<FaultKind, number> = {
    error: 0,
    stall: 0,
    'early-end': 0,
    'duplicate-tail': 0,
    'slow-start': 0,
    'kill-connection': 0,
  }
  transactions = 0
  forgottenChanges = 0

  addFault(fault: LedgerFault): void {
    this.faults.push(fault)
    this.faultCounts[fault.kind]++
  }

  /** Drops changes at the front, and everything else that is older than what is kept. */
  forget(changes: number, timestamp: CommitTimestamp, maxFaults: number): void {
    this.changes.splice(0, changes)
    this.forgottenChanges += changes
    const kept = this.topology.findIndex((event) => event.timestamp >= timestamp)
    this.topology.splice(0, kept === -1 ? this.topology.length : kept)
    this.faults.splice(0, Math.max(0, this.faults.length - maxFaults))
  }
}
