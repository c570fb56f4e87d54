/** Change records as JSON: what the PostgreSQL read function returns with immutable key ranges. */
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import type { ChangeStreamRecord, ChildPartitionsRecord, DataChangeRecord } from '../model/data-change-record.ts'
import type { WireType, WireValue } from './wire-value.ts'

export const JSON_TYPE: WireType = { code: 'JSON', typeAnnotation: 'PG_JSONB' }

/** An object with one key, the kind of record; the server sorts all keys by name. */
export function encodeJson(entry: ChangeStreamRecord): WireValue {
  if (entry.kind === 'data') return JSON.stringify({ data_change_record: dataChange(entry.record) })
  if (entry.kind === 'heartbeat') {
    return JSON.stringify({ heartbeat_record: { timestamp: timestamp(entry.record.timestamp) } })
  }
  if (entry.kind === 'children') return JSON.stringify({ child_partitions_record: childPartitions(entry.record) })
  throw new Error(`JSON has no place for a record of kind ${entry.kind}`)
}

function dataChange(record: DataChangeRecord): object {
  return {
    column_types: record.columnTypes.map(({ name, type, isPrimaryKey, ordinalPosition }) => ({
      is_primary_key: isPrimaryKey,
      name,
      ordinal_position: ordinalPosition,
      type,
    })),
    commit_timestamp: timestamp(record.commitTimestamp),
    is_last_record_in_transaction_in_partition: record.isLastRecordInTransactionInPartition,
    is_system_transaction: record.isSystemTransaction,
    mod_type: record.modType,
    mods: record.mods.map(({ keys, newValues, oldValues }) => ({
      keys,
      new_values: newValues,
      old_values: oldValues,
    })),
    number_of_partitions_in_transaction: record.numberOfPartitionsInTransaction,
    number_of_records_in_transaction: record.numberOfRecordsInTransaction,
    record_sequence: record.recordSequence,
    server_transaction_id: record.serverTransactionId,
    table_name: record.tableName,
    transaction_tag: record.transactionTag,
    value_capture_type: record.valueCaptureType,
  }
}

function childPartitions({ startTimestamp, recordSequence, children }: ChildPartitionsRecord): object {
  return {
    child_partitions: children.map(({ token, parentTokens }) => ({ parent_partition_tokens: parentTokens, token })),
    record_sequence: recordSequence,
    start_timestamp: timestamp(startTimestamp),
  }
}

/** With an offset, and without the zeros at the end of a fraction. */
function timestamp(time: CommitTimestamp): string {
  return time.replace(/\.?0*Z$/, '+00:00')
}
