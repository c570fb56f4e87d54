/** What a change stream returns, as plain data, and the row changes that users see. */
import type { CommitTimestamp } from './commit-timestamp.ts'

export type ModType = 'INSERT' | 'UPDATE' | 'DELETE'
export type ValueCaptureType = 'OLD_AND_NEW_VALUES' | 'NEW_VALUES' | 'NEW_ROW' | 'NEW_ROW_AND_OLD_VALUES'

/** A Spanner type as its API writes it. */
export interface ColumnTypeCode {
  readonly code: string
  readonly array_element_type?: ColumnTypeCode
  readonly proto_type_fqn?: string
  /** `PG_NUMERIC`, `PG_JSONB` and the like. */
  readonly type_annotation?: string
}

export interface ColumnType {
  readonly name: string
  readonly type: ColumnTypeCode
  readonly isPrimaryKey: boolean
  readonly ordinalPosition: number
}

/** Column values by name, as on the wire: INT64 and NUMERIC are strings, exact. */
export type Row = Readonly<Record<string, unknown>>

export interface Mod {
  readonly keys: Row
  /** Empty for a delete. */
  readonly newValues: Row
  /** Empty for an insert and for capture types without old values. */
  readonly oldValues: Row
}

/** One table, one kind of change, one transaction, one partition; one or many rows. */
export interface DataChangeRecord {
  readonly partitionToken: string
  readonly commitTimestamp: CommitTimestamp
  readonly recordSequence: string
  readonly serverTransactionId: string
  readonly isLastRecordInTransactionInPartition: boolean
  readonly tableName: string
  readonly valueCaptureType: ValueCaptureType
  readonly columnTypes: readonly ColumnType[]
  readonly mods: readonly Mod[]
  readonly modType: ModType
  readonly numberOfRecordsInTransaction: number
  readonly numberOfPartitionsInTransaction: number
  readonly transactionTag: string
  readonly isSystemTransaction: boolean
}

export interface HeartbeatRecord {
  readonly timestamp: CommitTimestamp
}

export interface ChildPartition {
  readonly token: string
  readonly parentTokens: readonly string[]
}

export interface ChildPartitionsRecord {
  readonly startTimestamp: CommitTimestamp
  readonly recordSequence: string
  readonly children: readonly ChildPartition[]
}

/** New partitions of a stream with mutable key ranges. They have no parents: what moves into them says from where. */
export interface PartitionStartRecord {
  readonly startTimestamp: CommitTimestamp
  readonly recordSequence: string
  readonly tokens: readonly string[]
}

/** The last record of a partition of a stream with mutable key ranges. Data may share its time. */
export interface PartitionEndRecord {
  readonly endTimestamp: CommitTimestamp
  readonly recordSequence: string
  readonly token: string
}

/** Key ranges moved between this partition and others, at this time. */
export interface PartitionEventRecord {
  readonly commitTimestamp: CommitTimestamp
  readonly recordSequence: string
  readonly token: string
  /** Tokens of the partitions that they came from. */
  readonly moveInFrom: readonly string[]
  /** Tokens of the partitions that they went to. */
  readonly moveOutTo: readonly string[]
}

/**
 * One of: data and heartbeats in every stream, `children` with immutable key ranges, `start`, `end` and `event` with
 * mutable ones. `bytes` is about what the record takes in memory.
 */
export type ChangeStreamRecord =
  | { readonly kind: 'data'; readonly record: DataChangeRecord; readonly bytes: number }
  | { readonly kind: 'heartbeat'; readonly record: HeartbeatRecord }
  | { readonly kind: 'children'; readonly record: ChildPartitionsRecord }
  | { readonly kind: 'start'; readonly record: PartitionStartRecord }
  | { readonly kind: 'end'; readonly record: PartitionEndRecord }
  | { readonly kind: 'event'; readonly record: PartitionEventRecord }

/** One row changed. `record` is shared by all rows of one record, not copied. */
export interface Change {
  readonly table: string
  readonly op: 'insert' | 'update' | 'delete'
  readonly keys: Row
  readonly newValues: Row
  readonly oldValues: Row
  readonly commitTimestamp: CommitTimestamp
  /** Position of this row in `record.mods`. */
  readonly modIndex: number
  readonly record: DataChangeRecord
}

/** Takes the place of changes that the stream no longer keeps: some of those committed from `from` to `to` are lost. */
export interface Gap {
  readonly op: 'gap'
  readonly partitionToken: string
  readonly from: CommitTimestamp
  readonly to: CommitTimestamp
}

/** The same for the same record in every run. */
export function recordId(record: DataChangeRecord): string {
  return `${record.serverTransactionId}/${record.recordSequence}`
}

/** The same for the same row change in every run. */
export function changeId(change: Change): string {
  return `${recordId(change.record)}/${change.modIndex}`
}

/** The ordering key of a row: its table and primary key. */
export function rowKey(table: string, keys: Row): string {
  return `${table}${JSON.stringify(keys)}`
}

/** The row changes of a record, in order. */
export function changesOf(record: DataChangeRecord): Change[] {
  return record.mods.map((_, modIndex) => changeAt(record, modIndex))
}

/** One row change of a record. */
export function changeAt(record: DataChangeRecord, modIndex: number): Change {
  const { keys, newValues, oldValues } = record.mods[modIndex]!
  return {
    table: record.tableName,
    op: OPS[record.modType],
    keys,
    newValues,
    oldValues,
    commitTimestamp: record.commitTimestamp,
    modIndex,
    record,
  }
}

const OPS = { INSERT: 'insert', UPDATE: 'update', DELETE: 'delete' } as const
