/** Makes the records of one transaction: consecutive like writes of a partition share a record. */
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import type { DataChangeRecord } from '../model/data-change-record.ts'
import type { TreeNode } from './partition-tree.ts'
import type { CapturedWrite } from './table-rows.ts'

export interface TransactionOptions {
  readonly commitTimestamp: CommitTimestamp
  readonly serverTransactionId: string
  readonly tag: string
  readonly isSystem: boolean
  /** Number of the first record. */
  readonly firstSequence: number
}

/** A write and the live partition that holds its key. */
export interface PlacedWrite {
  readonly write: CapturedWrite
  readonly partition: TreeNode
}

interface Group {
  readonly partition: TreeNode
  readonly writes: CapturedWrite[]
}

/** A record with the writes that it carries. */
export interface TransactionRecord {
  readonly partition: TreeNode
  readonly writes: readonly CapturedWrite[]
  readonly record: DataChangeRecord
}

/** In the order of the record sequence, which is the order of each record's first write. */
export function transactionRecords(
  placed: readonly PlacedWrite[],
  { commitTimestamp, serverTransactionId, tag, isSystem, firstSequence }: TransactionOptions,
): TransactionRecord[] {
  const groups: Group[] = []
  const newest = new Map<TreeNode, Group>()
  for (const { write, partition } of placed) {
    const group = newest.get(partition)
    if (group !== undefined && isAlike(group.writes[0]!, write)) {
      group.writes.push(write)
      continue
    }
    const next = { partition, writes: [write] }
    groups.push(next)
    newest.set(partition, next)
  }
  return groups.map((group, index) => {
    const { partition, writes } = group
    const { table, modType, columnTypes, valueCaptureType } = writes[0]!
    const record: DataChangeRecord = {
      partitionToken: partition.token,
      commitTimestamp,
      recordSequence: recordSequence(firstSequence + index),
      serverTransactionId,
      isLastRecordInTransactionInPartition: newest.get(partition) === group,
      tableName: table,
      valueCaptureType,
      columnTypes,
      mods: writes.map((write) => write.mod),
      modType,
      numberOfRecordsInTransaction: groups.length,
      numberOfPartitionsInTransaction: newest.size,
      transactionTag: tag,
      isSystemTransaction: isSystem,
    }
    return { partition, writes, record }
  })
}

/** Zero-padded, so that text order is number order. */
export function recordSequence(index: number): string {
  return String(index).padStart(8, '0')
}

function isAlike(a: CapturedWrite, b: CapturedWrite): boolean {
  return a.table === b.table && a.modType === b.modType && a.columnTypes === b.columnTypes
}
