/** What repeats from record to record, kept by its bytes, so that it is decoded once and shared. */
import type { ColumnType, DataChangeRecord } from '../../../model/data-change-record.ts'
import { ByteCache } from './byte-cache.ts'
import type { RecordLayout } from './record-layout.ts'
import { RowBatch } from './row-batch.ts'

/** Shared by all partitions of a stream. */
export class RecordCaches {
  readonly texts: ByteCache<string> = new ByteCache()
  readonly layouts: ByteCache<RecordLayout> = new ByteCache()
  /** Empty between two calls of a decoder's user, who flushes it. */
  readonly rows: RowBatch = new RowBatch()
  readonly #byLayout = new WeakMap<RecordLayout, LayoutCaches>()

  /** Of one layout: where fields stand in another order, the same bytes mean something else. */
  of(layout: RecordLayout): LayoutCaches {
    const known = this.#byLayout.get(layout)
    if (known !== undefined) return known
    const caches = {
      columnTypes: new ByteCache(),
      heads: new ByteCache(),
      tails: new ByteCache(),
    } satisfies LayoutCaches
    this.#byLayout.set(layout, caches)
    return caches
  }
}

export interface LayoutCaches {
  readonly columnTypes: ByteCache<readonly ColumnType[]>
  readonly heads: ByteCache<RecordHead>
  readonly tails: ByteCache<RecordTail>
}

/** The fields between the transaction's id and the mods. Most records of a table have the same. */
export type RecordHead = Pick<DataChangeRecord, 'isLastRecordInTransactionInPartition' | 'tableName' | 'columnTypes'>

/** The fields behind the mods. */
export type RecordTail = Omit<
  DataChangeRecord,
  keyof RecordHead | 'partitionToken' | 'commitTimestamp' | 'recordSequence' | 'serverTransactionId' | 'mods'
>

export function tailOf(record: RecordTail): RecordTail {
  const { modType, valueCaptureType, numberOfRecordsInTransaction, numberOfPartitionsInTransaction } = record
  const { transactionTag, isSystemTransaction } = record
  return {
    modType,
    valueCaptureType,
    numberOfRecordsInTransaction,
    numberOfPartitionsInTransaction,
    transactionTag,
    isSystemTransaction,
  }
}
