/** Where each field of a change record stands, read off the metadata of a result: the order is the server's affair. */
import { MalformedRecord } from './malformed.ts'
import { WireReader } from './wire-reader.ts'

/** For each place of a struct, the number of its field in the list of known ones; -1 for a field that is not known. */
export type Places = readonly number[]

export interface RecordLayout {
  readonly record: Places
  readonly data: Places
  readonly heartbeat: Places
  readonly children: Places
  readonly child: Places
  readonly columnType: Places
  readonly mod: Places
}

export const RECORD_FIELDS = ['data_change_record', 'heartbeat_record', 'child_partitions_record'] as const
export const DATA_FIELDS = [
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
] as const
export const HEARTBEAT_FIELDS = ['timestamp'] as const
export const CHILDREN_FIELDS = ['start_timestamp', 'record_sequence', 'child_partitions'] as const
export const CHILD_FIELDS = ['token', 'parent_partition_tokens'] as const
export const COLUMN_TYPE_FIELDS = ['name', 'type', 'is_primary_key', 'ordinal_position'] as const
export const MOD_FIELDS = ['keys', 'new_values', 'old_values'] as const

/** A type as far as layouts need it. */
interface StructType {
  readonly fields: readonly { readonly name: string; readonly type: StructType | undefined }[]
}

/** `metadata` is an encoded `ResultSetMetadata` with one column, an array of structs. */
export function recordLayout(metadata: Buffer): RecordLayout {
  const record = readRowType(metadata).fields[0]?.type
  const data = fieldType(record, 'data_change_record')
  const children = fieldType(record, 'child_partitions_record')
  return {
    record: placesOf(record, RECORD_FIELDS),
    data: placesOf(data, DATA_FIELDS),
    heartbeat: placesOf(fieldType(record, 'heartbeat_record'), HEARTBEAT_FIELDS),
    children: placesOf(children, CHILDREN_FIELDS),
    child: placesOf(fieldType(children, 'child_partitions'), CHILD_FIELDS),
    columnType: placesOf(fieldType(data, 'column_types'), COLUMN_TYPE_FIELDS),
    mod: placesOf(fieldType(data, 'mods'), MOD_FIELDS),
  }
}

/** How many columns a result has. */
export function columnCount(metadata: Buffer): number {
  return readRowType(metadata).fields.length
}

function placesOf(struct: StructType | undefined, known: readonly string[]): Places {
  return (struct?.fields ?? []).map(({ name }) => known.indexOf(name))
}

function fieldType(struct: StructType | undefined, name: string): StructType | undefined {
  return struct?.fields.find((field) => field.name === name)?.type
}

// ResultSetMetadata { row_type = 1 }, StructType { fields = 1 }, Field { name = 1, type = 2 },
// Type { array_element_type = 2, struct_type = 3 }: of an array its element's type counts.

function readRowType(metadata: Buffer): StructType {
  let rowType: StructType = { fields: [] }
  eachMessage(metadata, (field, bytes) => {
    if (field === 1) rowType = readStructType(bytes, 0)
  })
  return rowType
}

function readStructType(bytes: Buffer, depth: number): StructType {
  const fields: { name: string; type: StructType | undefined }[] = []
  eachMessage(bytes, (field, contents) => {
    if (field === 1) fields.push(readField(contents, depth + 1))
  })
  return { fields }
}

function readField(bytes: Buffer, depth: number): { name: string; type: StructType | undefined } {
  let name = ''
  let type: StructType | undefined
  eachMessage(bytes, (field, contents) => {
    if (field === 1) name = contents.toString('utf8')
    if (field === 2) type = readType(contents, depth)
  })
  return { name, type }
}

function readType(bytes: Buffer, depth: number): StructType | undefined {
  if (depth > MAX_DEPTH) {
    throw new MalformedRecord('the metadata of the result', `is nested deeper than ${MAX_DEPTH} levels`)
  }
  let type: StructType | undefined
  eachMessage(bytes, (field, contents) => {
    if (field === 2) type = readType(contents, depth + 1)
    if (field === 3) type = readStructType(contents, depth + 1)
  })
  return type
}

/** Calls back for each field with a length, whose contents lie in `bytes`. */
export function eachMessage(bytes: Buffer, visit: (field: number, contents: Buffer) => void): void {
  const reader = new WireReader(bytes)
  while (reader.at < bytes.length) {
    const tag = reader.varint(bytes.length)
    if ((tag & 7) !== LENGTH_DELIMITED) {
      reader.skip(tag, bytes.length)
      continue
    }
    const end = reader.lengthEnd(bytes.length)
    visit(tag >>> 3, bytes.subarray(reader.at, end))
    reader.at = end
  }
}

const LENGTH_DELIMITED = 2
const MAX_DEPTH = 50
