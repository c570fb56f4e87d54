/** What one data change record becomes: a delivery per row, or one for the whole record. */
import { type Change, changesOf, type DataChangeRecord, recordId, rowKey } from '../../model/data-change-record.ts'

export interface DeliverableRow<T> {
  readonly id: string
  readonly key: string
  readonly value: T
}

export type DeliverableRows<T> = (record: DataChangeRecord) => readonly DeliverableRow<T>[]

export const rowsOfRecord: DeliverableRows<Change> = (record) => {
  const id = recordId(record)
  return changesOf(record).map((value) => ({
    id: `${id}/${value.modIndex}`,
    key: rowKey(value.table, value.keys),
    value,
  }))
}

/** A record touches many keys: all records of one partition share its token as key, which keeps their order. */
export const wholeRecord: DeliverableRows<DataChangeRecord> = (record) => [
  { id: recordId(record), key: record.partitionToken, value: record },
]
