/** What one data change record becomes: a delivery per row, or one for the whole record. */
import { type Change, changeAt, type DataChangeRecord, rowKey } from '../../model/data-change-record.ts'

/** Functions instead of a list of rows: they are called for each record that is read. */
export interface DeliverableRows<T> {
  count(record: DataChangeRecord): number
  value(record: DataChangeRecord, index: number): T
  key(record: DataChangeRecord, index: number): string
  /** The same for the same row in every run. */
  id(recordId: string, index: number): string
}

export const rowsOfRecord: DeliverableRows<Change> = {
  count: ({ mods }) => mods.length,
  value: changeAt,
  key: ({ tableName, mods }, index) => rowKey(tableName, mods[index]!.keys),
  id: (recordId, index) => `${recordId}/${index}`,
}

/** A record touches many keys: all records of one partition share its token as key, which keeps their order. */
export const wholeRecord: DeliverableRows<DataChangeRecord> = {
  count: () => 1,
  value: (record) => record,
  key: ({ partitionToken }) => partitionToken,
  id: (recordId) => recordId,
}
