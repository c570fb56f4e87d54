/** What a row of the read function says, in one form for both dialects; nothing of Millrace's own decoding. */
import type { Dialect, PartitionMode } from '../../src/model/change-stream.ts'
import type { WireValue } from '../../src/simulator/wire-value.ts'
import { decodeProtoRow } from '../simulator/wire-decoder.ts'

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json }
export type JsonObject = { readonly [name: string]: Json }

export interface DataRecord {
  readonly kind: 'data'
  readonly time: string
  readonly sequence: string
  readonly transaction: string
  readonly isLast: boolean
  readonly table: string
  readonly capture: string
  readonly columns: readonly {
    readonly name: string
    readonly code: string
    readonly isKey: boolean
    readonly ordinal: number
  }[]
  readonly mods: readonly {
    readonly keys: JsonObject
    readonly newValues: JsonObject
    readonly oldValues: JsonObject
  }[]
  readonly modType: string
  readonly records: number
  readonly partitions: number
  readonly tag: string
  readonly isSystem: boolean
}

export interface ChildRecord {
  readonly kind: 'children'
  readonly time: string
  readonly sequence: string
  readonly children: readonly { readonly token: string; readonly parents: readonly string[] }[]
}

export type ServerRecord =
  | DataRecord
  | ChildRecord
  | { readonly kind: 'heartbeat'; readonly time: string }
  | { readonly kind: 'end'; readonly time: string; readonly sequence: string }
  | {
      readonly kind: 'event'
      readonly time: string
      readonly sequence: string
      readonly from: readonly string[]
      readonly to: readonly string[]
    }

/** The record of a row, by the names of its fields. Throws unless there is exactly one. */
export function recordOf(dialect: Dialect, mode: PartitionMode, value: WireValue): ServerRecord {
  if (mode === 'mutable') return protoRecord(value)
  const [name, fields] = dialect === 'googlesql' ? structRecord(value) : jsonRecord(value)
  const time = (field: string): string => normalTime(String(fields[field]))
  if (name === 'heartbeat_record') return { kind: 'heartbeat', time: time('timestamp') }
  if (name === 'child_partitions_record') {
    const children = fields.child_partitions as readonly JsonObject[]
    return {
      kind: 'children',
      time: time('start_timestamp'),
      sequence: String(fields.record_sequence),
      children: children.map(({ token, parent_partition_tokens }) => ({
        token: String(token),
        parents: parent_partition_tokens as string[],
      })),
    }
  }
  return {
    kind: 'data',
    time: time('commit_timestamp'),
    sequence: String(fields.record_sequence),
    transaction: String(fields.server_transaction_id),
    isLast: fields.is_last_record_in_transaction_in_partition as boolean,
    table: String(fields.table_name),
    capture: String(fields.value_capture_type),
    columns: (fields.column_types as JsonObject[]).map(({ name, type, is_primary_key, ordinal_position }) => ({
      name: String(name),
      code: String((parsed(type!) as JsonObject).code),
      isKey: is_primary_key as boolean,
      ordinal: Number(ordinal_position),
    })),
    mods: (fields.mods as JsonObject[]).map(({ keys, new_values, old_values }) => ({
      keys: parsed(keys!) as JsonObject,
      newValues: parsed(new_values!) as JsonObject,
      oldValues: parsed(old_values!) as JsonObject,
    })),
    modType: String(fields.mod_type),
    records: Number(fields.number_of_records_in_transaction),
    partitions: Number(fields.number_of_partitions_in_transaction),
    tag: String(fields.transaction_tag),
    isSystem: fields.is_system_transaction as boolean,
  }
}

/** New partitions of a stream with mutable key ranges are announced like children, without parents. */
function protoRecord(value: WireValue): ServerRecord {
  const { kind, record } = decodeProtoRow(value, '')
  if (kind === 'heartbeat') return { kind, time: record.timestamp }
  if (kind === 'children') throw new Error('the message has no children')
  const { recordSequence: sequence } = record
  if (kind === 'end') return { kind, time: record.endTimestamp, sequence }
  if (kind === 'event') {
    return { kind, time: record.commitTimestamp, sequence, from: record.moveInFrom, to: record.moveOutTo }
  }
  if (kind === 'start') {
    const children = record.tokens.map((token) => ({ token, parents: [] }))
    return { kind: 'children', time: record.startTimestamp, sequence, children }
  }
  return {
    kind,
    time: record.commitTimestamp,
    sequence,
    transaction: record.serverTransactionId,
    isLast: record.isLastRecordInTransactionInPartition,
    table: record.tableName,
    capture: record.valueCaptureType,
    columns: record.columnTypes.map(({ name, type, isPrimaryKey, ordinalPosition }) => ({
      name,
      code: type.code,
      isKey: isPrimaryKey,
      ordinal: ordinalPosition,
    })),
    mods: record.mods as DataRecord['mods'],
    modType: record.modType,
    records: record.numberOfRecordsInTransaction,
    partitions: record.numberOfPartitionsInTransaction,
    tag: record.transactionTag,
    isSystem: record.isSystemTransaction,
  }
}

/** Nine digits and Z, so that times compare as text. */
export function normalTime(text: string): string {
  const [, seconds, fraction = ''] = /^(.{19})(?:\.(\d+))?(?:Z|\+00:00)$/.exec(text)!
  return `${seconds}.${fraction.padEnd(9, '0')}Z`
}

export const DATA_FIELDS: readonly string[] = [
  'commit_timestamp',
  'record_sequence',
  'server_transaction_id',
  'is_last_record_in_transaction_in_partition',
  'table_name',
  'column_types',
  'mods',
  'mod_type',
  'value_capture_type',
  'number_of_records_in_transaction',
  'number_of_partitions_in_transaction',
  'transaction_tag',
  'is_system_transaction',
]
const CHILD_FIELDS = ['start_timestamp', 'record_sequence', 'child_partitions']

function structRecord(value: WireValue): [name: string, fields: JsonObject] {
  const list = value as readonly (readonly (readonly (readonly Json[])[])[])[]
  if (list.length !== 1 || list[0]!.length !== 3) throw new Error('a row holds one struct of three arrays')
  const [data, heartbeats, children] = list[0] as [Json[][], Json[][], Json[][]]
  if (data.length + heartbeats.length + children.length !== 1) throw new Error('a row holds one record')
  if (heartbeats[0]) return ['heartbeat_record', named(['timestamp'], heartbeats[0])]
  if (children[0]) {
    const fields = named(CHILD_FIELDS, children[0])
    const list = (fields.child_partitions as Json[][]).map((child) =>
      named(['token', 'parent_partition_tokens'], child),
    )
    return ['child_partitions_record', { ...fields, child_partitions: list }]
  }
  const fields = named(DATA_FIELDS, data[0]!)
  const columns = (fields.column_types as Json[][]).map((column) =>
    named(['name', 'type', 'is_primary_key', 'ordinal_position'], column),
  )
  const mods = (fields.mods as Json[][]).map((mod) => named(['keys', 'new_values', 'old_values'], mod))
  return ['data_change_record', { ...fields, column_types: columns, mods }]
}

function jsonRecord(value: WireValue): [name: string, fields: JsonObject] {
  const entries = Object.entries(JSON.parse(value as string) as Record<string, JsonObject>)
  if (entries.length !== 1) throw new Error('a row holds one record')
  return entries[0]!
}

function named(names: readonly string[], values: readonly Json[]): JsonObject {
  if (names.length !== values.length) throw new Error(`${values.length} fields instead of ${names.length}`)
  return Object.fromEntries(names.map((name, index) => [name, values[index]!]))
}

function parsed(value: Json): Json {
  return typeof value === 'string' ? (JSON.parse(value) as Json) : value
}
