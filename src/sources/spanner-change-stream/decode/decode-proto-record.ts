/** Records from the protobuf messages that streams with mutable key ranges return, in both dialects. */
import {
  type CommitTimestamp,
  MAX_TIMESTAMP,
  MIN_TIMESTAMP,
  timestampFromNanos,
} from '../../../model/commit-timestamp.ts'
import type {
  ChangeStreamRecord,
  ColumnType,
  ColumnTypeCode,
  Mod,
  ModType,
  Row,
  ValueCaptureType,
} from '../../../model/data-change-record.ts'
import { MalformedRecord } from './malformed.ts'
import { FIXED64, LENGTH_DELIMITED, ProtoFields, VARINT } from './proto-fields.ts'
import { NO_VALUES, RECORD_BYTES } from './record-values.ts'

/** `message` is an encoded `ChangeStreamRecord`. Throws a MalformedRecord that names the field, or a WireFormatError. */
export function decodeProtoRecord(message: Buffer, partitionToken: string): ChangeStreamRecord {
  const fields = new ProtoFields(message)
  const kind = fields.lastOf(RECORD_KINDS)
  if (kind === undefined) throw new MalformedRecord('ChangeRecord', 'holds no record of a known kind')
  const contents = fields.bytes(kind) ?? NOTHING
  if (kind === 1) return decodeData(contents, partitionToken)
  const record = new ProtoFields(contents)
  if (kind === 2) return { kind: 'heartbeat', record: { timestamp: time(record, 1, 'timestamp') } }
  if (kind === 3) return decodeStart(record)
  return kind === 4 ? decodeEnd(record) : decodeEvent(record)
}

function decodeData(message: Buffer, partitionToken: string): ChangeStreamRecord {
  const fields = new ProtoFields(message)
  const columnTypes = fields.all(6).map(decodeColumn)
  const record = {
    partitionToken,
    commitTimestamp: time(fields, 1, 'commit_timestamp'),
    recordSequence: fields.text(2),
    serverTransactionId: required(fields.text(3), 'server_transaction_id'),
    isLastRecordInTransactionInPartition: fields.number(4) !== 0,
    tableName: required(fields.text(5), 'table'),
    valueCaptureType: named(CAPTURE_TYPES, fields.number(9), 'value_capture_type'),
    columnTypes,
    mods: fields.all(7).map((mod) => decodeMod(mod, columnTypes)),
    modType: named(MOD_TYPES, fields.number(8), 'mod_type'),
    numberOfRecordsInTransaction: fields.number(10),
    numberOfPartitionsInTransaction: fields.number(11),
    transactionTag: fields.text(12),
    isSystemTransaction: fields.number(13) !== 0,
  }
  return { kind: 'data', record, bytes: RECORD_BYTES + message.length }
}

function decodeColumn(message: Buffer): ColumnType {
  const fields = new ProtoFields(message)
  return {
    name: required(fields.text(1), 'column_metadata.name'),
    type: decodeType(fields.bytes(2) ?? NOTHING, 0),
    isPrimaryKey: fields.number(3) !== 0,
    ordinalPosition: fields.number(4),
  }
}

function decodeType(message: Buffer, depth: number): ColumnTypeCode {
  if (depth > 1) throw new MalformedRecord('column_metadata.type', 'is an array of arrays')
  const fields = new ProtoFields(message)
  const code = fields.number(1)
  const element = fields.bytes(2)
  const annotation = fields.number(4)
  const protoType = fields.text(5)
  return {
    // A type that is newer than this code keeps its number: its values pass as they are.
    code: TYPE_CODES[code] ?? `TYPE_CODE_${code}`,
    ...(element !== undefined && { array_element_type: decodeType(element, depth + 1) }),
    ...(protoType !== '' && { proto_type_fqn: protoType }),
    ...(annotation !== 0 && { type_annotation: TYPE_ANNOTATIONS[annotation] ?? `TYPE_ANNOTATION_CODE_${annotation}` }),
  }
}

function decodeMod(message: Buffer, columns: readonly ColumnType[]): Mod {
  const fields = new ProtoFields(message)
  return {
    keys: decodeRow(fields.all(1), columns, 'keys'),
    oldValues: decodeRow(fields.all(2), columns, 'old_values'),
    newValues: decodeRow(fields.all(3), columns, 'new_values'),
  }
}

function decodeRow(values: readonly Buffer[], columns: readonly ColumnType[], field: string): Row {
  if (values.length === 0) return NO_VALUES
  // Without a prototype a column may have any name, `__proto__` included.
  const row = Object.create(null) as Record<string, unknown>
  for (const message of values) {
    const fields = new ProtoFields(message)
    const column = columns[fields.number(1)]
    if (column === undefined) throw new MalformedRecord(field, 'names a column that the record does not describe')
    if (column.name in row) throw new MalformedRecord(field, 'holds a column twice')
    row[column.name] = decodeValue(fields.bytes(2) ?? NOTHING, field, 0)
  }
  return row
}

/** As the same value stands in the JSON of other streams. */
function decodeValue(message: Buffer, field: string, depth: number): unknown {
  if (depth > MAX_DEPTH) throw new MalformedRecord(field, `is nested deeper than ${MAX_DEPTH} levels`)
  const fields = new ProtoFields(message)
  const kind = fields.lastOf(VALUE_KINDS)
  if (kind === 2) return fields.double(2)
  if (kind === 3) return fields.text(3)
  if (kind === 4) return fields.number(4) !== 0
  if (kind === 6) {
    const elements = new ProtoFields(fields.bytes(6) ?? NOTHING).all(1)
    return elements.map((element) => decodeValue(element, field, depth + 1))
  }
  if (kind === 5) throw new MalformedRecord(field, 'holds a struct')
  return null
}

function decodeStart(fields: ProtoFields): ChangeStreamRecord {
  const tokens = fields.all(3).map((token) => required(token.toString('utf8'), 'partition_tokens'))
  if (tokens.length === 0) throw new MalformedRecord('partition_tokens', 'is empty')
  return {
    kind: 'start',
    record: { startTimestamp: time(fields, 1, 'start_timestamp'), recordSequence: fields.text(2), tokens },
  }
}

function decodeEnd(fields: ProtoFields): ChangeStreamRecord {
  return {
    kind: 'end',
    record: {
      endTimestamp: time(fields, 1, 'end_timestamp'),
      recordSequence: fields.text(2),
      token: required(fields.text(3), 'partition_token'),
    },
  }
}

function decodeEvent(fields: ProtoFields): ChangeStreamRecord {
  const tokenOf = (field: string) => (message: Buffer) => required(new ProtoFields(message).text(1), field)
  return {
    kind: 'event',
    record: {
      commitTimestamp: time(fields, 1, 'commit_timestamp'),
      recordSequence: fields.text(2),
      token: required(fields.text(3), 'partition_token'),
      moveInFrom: fields.all(4).map(tokenOf('source_partition_token')),
      moveOutTo: fields.all(5).map(tokenOf('destination_partition_token')),
    },
  }
}

/** A `google.protobuf.Timestamp`. */
function time(fields: ProtoFields, field: number, name: string): CommitTimestamp {
  const message = fields.bytes(field)
  if (message === undefined) throw new MalformedRecord(name, 'is missing')
  const parts = new ProtoFields(message)
  const seconds = parts.signed(1)
  const nanos = parts.signed(2)
  if (nanos < 0n || nanos >= NANOS_PER_SECOND || seconds < MIN_SECONDS || seconds > MAX_SECONDS) {
    throw new MalformedRecord(name, 'is not a timestamp')
  }
  return timestampFromNanos(seconds * NANOS_PER_SECOND + nanos)
}

function required(text: string, field: string): string {
  if (text === '') throw new MalformedRecord(field, 'is missing')
  return text
}

function named<T>(names: Readonly<Record<number, T>>, number: number, field: string): T {
  const name = names[number]
  if (name === undefined) throw new MalformedRecord(field, `is ${number}, which Millrace does not know`)
  return name
}

const NOTHING = Buffer.alloc(0)
const MAX_DEPTH = 200
// Fields of a oneof with their wire types.
const RECORD_KINDS: Readonly<Record<number, number>> = {
  1: LENGTH_DELIMITED,
  2: LENGTH_DELIMITED,
  3: LENGTH_DELIMITED,
  4: LENGTH_DELIMITED,
  5: LENGTH_DELIMITED,
}
const VALUE_KINDS: Readonly<Record<number, number>> = {
  1: VARINT,
  2: FIXED64,
  3: LENGTH_DELIMITED,
  4: VARINT,
  5: LENGTH_DELIMITED,
  6: LENGTH_DELIMITED,
}
const NANOS_PER_SECOND = 1_000_000_000n
const MIN_SECONDS = BigInt(Date.parse(MIN_TIMESTAMP)) / 1000n
const MAX_SECONDS = BigInt(Date.parse(MAX_TIMESTAMP)) / 1000n

const MOD_TYPES: Readonly<Record<number, ModType>> = { 10: 'INSERT', 20: 'UPDATE', 30: 'DELETE' }
const CAPTURE_TYPES: Readonly<Record<number, ValueCaptureType>> = {
  10: 'OLD_AND_NEW_VALUES',
  20: 'NEW_VALUES',
  30: 'NEW_ROW',
  40: 'NEW_ROW_AND_OLD_VALUES',
}
const TYPE_CODES: Readonly<Record<number, string>> = {
  0: 'TYPE_CODE_UNSPECIFIED',
  1: 'BOOL',
  2: 'INT64',
  3: 'FLOAT64',
  4: 'TIMESTAMP',
  5: 'DATE',
  6: 'STRING',
  7: 'BYTES',
  8: 'ARRAY',
  9: 'STRUCT',
  10: 'NUMERIC',
  11: 'JSON',
  13: 'PROTO',
  14: 'ENUM',
  15: 'FLOAT32',
  16: 'INTERVAL',
  17: 'UUID',
}
const TYPE_ANNOTATIONS: Readonly<Record<number, string>> = { 2: 'PG_NUMERIC', 3: 'PG_JSONB', 4: 'PG_OID' }
