/** Change records as structs: what the GoogleSQL read function returns with immutable key ranges. */
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import type {
  ChangeStreamRecord,
  ChildPartitionsRecord,
  DataChangeRecord,
  HeartbeatRecord,
} from '../model/data-change-record.ts'
import type { WireType, WireValue } from './wire-value.ts'

/** ARRAY of one STRUCT, of whose three arrays exactly one holds exactly one record. */
export function encodeStruct(entry: ChangeStreamRecord): WireValue {
  const data = entry.kind === 'data' ? [dataChange(entry.record)] : []
  const heartbeat = entry.kind === 'heartbeat' ? [heartbeatRecord(entry.record)] : []
  const children = entry.kind === 'children' ? [childPartitions(entry.record)] : []
  return [[data, heartbeat, children]]
}

function dataChange(record: DataChangeRecord): WireValue {
  return [
    timestamp(record.commitTimestamp),
    record.recordSequence,
    record.serverTransactionId,
    record.isLastRecordInTransactionInPartition,
    record.tableName,
    record.columnTypes.map(({ name, type, isPrimaryKey, ordinalPosition }) => [
      name,
      JSON.stringify(type),
      isPrimaryKey,
      String(ordinalPosition),
    ]),
    record.mods.map(({ keys, newValues, oldValues }) => [
      JSON.stringify(keys),
      JSON.stringify(newValues),
      JSON.stringify(oldValues),
    ]),
    record.modType,
    record.valueCaptureType,
    String(record.numberOfRecordsInTransaction),
    String(record.numberOfPartitionsInTransaction),
    record.transactionTag,
    record.isSystemTransaction,
  ]
}

function heartbeatRecord(record: HeartbeatRecord): WireValue {
  return [timestamp(record.timestamp)]
}

function childPartitions({ startTimestamp, recordSequence, children }: ChildPartitionsRecord): WireValue {
  return [
    timestamp(startTimestamp),
    recordSequence,
    children.map(({ token, parentTokens }) => [token, [...parentTokens]]),
  ]
}

/** Spanner leaves out the zeros at the end of a fraction. */
function timestamp(time: CommitTimestamp): string {
  return time.replace(/\.?0*Z$/, 'Z')
}

const STRING: WireType = { code: 'STRING' }
const BOOL: WireType = { code: 'BOOL' }
const INT64: WireType = { code: 'INT64' }
const TIMESTAMP: WireType = { code: 'TIMESTAMP' }
const JSON_TYPE: WireType = { code: 'JSON' }

function arrayOfStruct(fields: Readonly<Record<string, WireType>>): WireType {
  const struct = Object.entries(fields).map(([name, type]) => ({ name, type }))
  return { code: 'ARRAY', arrayElementType: { code: 'STRUCT', structType: { fields: struct } } }
}

export const STRUCT_TYPE: WireType = arrayOfStruct({
  data_change_record: arrayOfStruct({
    commit_timestamp: TIMESTAMP,
    record_sequence: STRING,
    server_transaction_id: STRING,
    is_last_record_in_transaction_in_partition: BOOL,
    table_name: STRING,
    column_types: arrayOfStruct({ name: STRING, type: JSON_TYPE, is_primary_key: BOOL, ordinal_position: INT64 }),
    mods: arrayOfStruct({ keys: JSON_TYPE, new_values: JSON_TYPE, old_values: JSON_TYPE }),
    mod_type: STRING,
    value_capture_type: STRING,
    number_of_records_in_transaction: INT64,
    number_of_partitions_in_transaction: INT64,
    transaction_tag: STRING,
    is_system_transaction: BOOL,
  }),
  heartbeat_record: arrayOfStruct({ timestamp: TIMESTAMP }),
  child_partitions_record: arrayOfStruct({
    start_timestamp: TIMESTAMP,
    record_sequence: STRING,
    child_partitions: arrayOfStruct({
      token: STRING,
      parent_partition_tokens: { code: 'ARRAY', arrayElementType: STRING },
    }),
  }),
})
