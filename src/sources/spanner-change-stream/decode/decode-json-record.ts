/** Records from the JSON of the PostgreSQL dialect: one object with one key, the kind of record. */
import type { ChangeStreamRecord, ChildPartition, ColumnType, Mod } from '../../../model/data-change-record.ts'
import { MalformedRecord } from './malformed.ts'
import {
  asCaptureType,
  asColumnType,
  asCount,
  asModType,
  asRow,
  INEXACT,
  parseExactly,
  parseJson,
  parseTime,
  RECORD_BYTES,
} from './record-values.ts'

type JsonObject = Readonly<Record<string, unknown>>

/** Throws a MalformedRecord that names the field. */
export function decodeJsonRecord(json: string, partitionToken: string): ChangeStreamRecord {
  const decoded = decode(parseJson(json, 'ChangeRecord'), partitionToken, json.length, false)
  const isInexact = decoded.kind === 'data' && decoded.record.mods.some(hasInexactSide)
  return isInexact ? decode(parseExactly(json, 'ChangeRecord'), partitionToken, json.length, true) : decoded
}

function hasInexactSide({ keys, newValues, oldValues }: Mod): boolean {
  return keys === INEXACT || newValues === INEXACT || oldValues === INEXACT
}

function decode(json: unknown, partitionToken: string, length: number, isExact: boolean): ChangeStreamRecord {
  const record = object(json, 'ChangeRecord')
  if (KINDS.filter((kind) => record[kind] !== undefined).length > 1) {
    throw new MalformedRecord('ChangeRecord', 'holds more than one record')
  }
  if (record.data_change_record !== undefined) {
    return decodeData(object(record.data_change_record, 'data_change_record'), partitionToken, length, isExact)
  }
  if (record.heartbeat_record !== undefined) {
    const { timestamp } = object(record.heartbeat_record, 'heartbeat_record')
    return { kind: 'heartbeat', record: { timestamp: parseTime(timestamp, 'timestamp') } }
  }
  if (record.child_partitions_record !== undefined) {
    return decodeChildren(object(record.child_partitions_record, 'child_partitions_record'))
  }
  throw new MalformedRecord('ChangeRecord', 'holds no record of a known kind')
}

function decodeData(json: JsonObject, partitionToken: string, length: number, isExact: boolean): ChangeStreamRecord {
  const record = {
    partitionToken,
    commitTimestamp: parseTime(json.commit_timestamp, 'commit_timestamp'),
    recordSequence: text(json.record_sequence, 'record_sequence'),
    serverTransactionId: text(json.server_transaction_id, 'server_transaction_id'),
    isLastRecordInTransactionInPartition: flag(
      json.is_last_record_in_transaction_in_partition,
      'is_last_record_in_transaction_in_partition',
    ),
    tableName: text(json.table_name, 'table_name'),
    valueCaptureType: asCaptureType(text(json.value_capture_type, 'value_capture_type'), 'value_capture_type'),
    columnTypes: list(json.column_types, 'column_types').map(decodeColumnType),
    mods: list(json.mods, 'mods').map((mod) => decodeMod(mod, isExact)),
    modType: asModType(text(json.mod_type, 'mod_type'), 'mod_type'),
    numberOfRecordsInTransaction: asCount(json.number_of_records_in_transaction, 'number_of_records_in_transaction'),
    numberOfPartitionsInTransaction: asCount(
      json.number_of_partitions_in_transaction,
      'number_of_partitions_in_transaction',
    ),
    transactionTag: text(json.transaction_tag, 'transaction_tag'),
    isSystemTransaction: flag(json.is_system_transaction, 'is_system_transaction'),
  }
  return { kind: 'data', record, bytes: RECORD_BYTES + length }
}

function decodeMod(value: unknown, isExact: boolean): Mod {
  const mod = object(value, 'mods')
  if (mod.keys === undefined) throw new MalformedRecord('keys', 'is missing')
  return {
    keys: asRow(mod.keys, 'keys', isExact),
    newValues: asRow(mod.new_values, 'new_values', isExact),
    oldValues: asRow(mod.old_values, 'old_values', isExact),
  }
}

function decodeColumnType(value: unknown): ColumnType {
  const { name, type, is_primary_key, ordinal_position } = object(value, 'column_types')
  return {
    name: text(name, 'column_types.name'),
    type: asColumnType(type, 'column_types.type'),
    isPrimaryKey: flag(is_primary_key, 'column_types.is_primary_key'),
    ordinalPosition: asCount(ordinal_position, 'column_types.ordinal_position'),
  }
}

function decodeChildren({ start_timestamp, record_sequence, child_partitions }: JsonObject): ChangeStreamRecord {
  return {
    kind: 'children',
    record: {
      startTimestamp: parseTime(start_timestamp, 'start_timestamp'),
      recordSequence: text(record_sequence, 'record_sequence'),
      children: list(child_partitions, 'child_partitions').map(decodeChild),
    },
  }
}

function decodeChild(value: unknown): ChildPartition {
  const { token, parent_partition_tokens } = object(value, 'child_partitions')
  const parents = parent_partition_tokens === null ? [] : list(parent_partition_tokens, 'parent_partition_tokens')
  if (token === '') throw new MalformedRecord('token', 'is empty')
  return {
    token: text(token, 'token'),
    // The first query's children have no parents, which some servers write as one null.
    parentTokens: parents.filter((parent) => parent !== null).map((parent) => text(parent, 'parent_partition_tokens')),
  }
}

function object(value: unknown, field: string): JsonObject {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new MalformedRecord(field, 'is not a JSON object')
  }
  return value as JsonObject
}

function list(value: unknown, field: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new MalformedRecord(field, 'is not a list')
  return value
}

function text(value: unknown, field: string): string {
  if (typeof value !== 'string') throw new MalformedRecord(field, 'is not a text')
  return value
}

function flag(value: unknown, field: string): boolean {
  if (typeof value !== 'boolean') throw new MalformedRecord(field, 'is not true or false')
  return value
}

const KINDS = ['data_change_record', 'heartbeat_record', 'child_partitions_record'] as const
