/** Change records as protobuf messages: what both dialects return with mutable key ranges. */
import { protos } from '@google-cloud/spanner'
import { type CommitTimestamp, timestampToNanos } from '../model/commit-timestamp.ts'
import type {
  ChangeStreamRecord,
  ColumnTypeCode,
  DataChangeRecord,
  PartitionEventRecord,
  Row,
} from '../model/data-change-record.ts'
import type { WireType, WireValue } from './wire-value.ts'

type Message = protos.google.spanner.v1.IChangeStreamRecord

export const PROTO_TYPE: WireType = { code: 'PROTO', protoTypeFqn: 'google.spanner.v1.ChangeStreamRecord' }
export const PROTO_BYTES_TYPE: WireType = { code: 'BYTES' }

/** Messages and bytes travel as base64. */
export function encodeProto(entry: ChangeStreamRecord): WireValue {
  // Enum values by name and nested plain objects pass through `fromObject`; `encode` alone would take them for zeros.
  const { ChangeStreamRecord: codec } = protos.google.spanner.v1
  const bytes = codec.encode(codec.fromObject(messageOf(entry))).finish()
  return Buffer.from(bytes).toString('base64')
}

function messageOf(entry: ChangeStreamRecord): Message {
  switch (entry.kind) {
    case 'data':
      return { dataChangeRecord: dataChange(entry.record) }
    case 'heartbeat':
      return { heartbeatRecord: { timestamp: timestamp(entry.record.timestamp) } }
    case 'start': {
      const { startTimestamp, recordSequence, tokens } = entry.record
      const start = { startTimestamp: timestamp(startTimestamp), recordSequence, partitionTokens: [...tokens] }
      return { partitionStartRecord: start }
    }
    case 'end': {
      const { endTimestamp, recordSequence, token } = entry.record
      return { partitionEndRecord: { endTimestamp: timestamp(endTimestamp), recordSequence, partitionToken: token } }
    }
    case 'event':
      return { partitionEventRecord: event(entry.record) }
    default:
      throw new Error(`The message has no place for a record of kind ${entry.kind}`)
  }
}

function event({ commitTimestamp, recordSequence, token, moveInFrom, moveOutTo }: PartitionEventRecord): object {
  return {
    commitTimestamp: timestamp(commitTimestamp),
    recordSequence,
    partitionToken: token,
    moveInEvents: moveInFrom.map((sourcePartitionToken) => ({ sourcePartitionToken })),
    moveOutEvents: moveOutTo.map((destinationPartitionToken) => ({ destinationPartitionToken })),
  }
}

function dataChange(record: DataChangeRecord): object {
  const places = new Map(record.columnTypes.map(({ name }, place) => [name, place]))
  const values = (row: Row): object[] =>
    Object.entries(row).map(([name, value]) => ({ columnMetadataIndex: places.get(name), value: protoValue(value) }))
  return {
    commitTimestamp: timestamp(record.commitTimestamp),
    recordSequence: record.recordSequence,
    serverTransactionId: record.serverTransactionId,
    isLastRecordInTransactionInPartition: record.isLastRecordInTransactionInPartition,
    table: record.tableName,
    columnMetadata: record.columnTypes.map(({ name, type, isPrimaryKey, ordinalPosition }) => ({
      name,
      type: typeOf(type),
      isPrimaryKey,
      ordinalPosition,
    })),
    mods: record.mods.map(({ keys, newValues, oldValues }) => ({
      keys: values(keys),
      newValues: values(newValues),
      oldValues: values(oldValues),
    })),
    modType: record.modType,
    valueCaptureType: record.valueCaptureType,
    numberOfRecordsInTransaction: record.numberOfRecordsInTransaction,
    numberOfPartitionsInTransaction: record.numberOfPartitionsInTransaction,
    transactionTag: record.transactionTag,
    isSystemTransaction: record.isSystemTransaction,
  }
}

function typeOf({ code, array_element_type, proto_type_fqn, type_annotation }: ColumnTypeCode): object {
  return {
    code,
    ...(array_element_type && { arrayElementType: typeOf(array_element_type) }),
    ...(proto_type_fqn && { protoTypeFqn: proto_type_fqn }),
    ...(type_annotation && { typeAnnotation: type_annotation }),
  }
}

function protoValue(value: unknown): protos.google.protobuf.IValue {
  if (value === null) return { nullValue: 'NULL_VALUE' }
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'boolean') return { boolValue: value }
  if (typeof value === 'number') return { numberValue: value }
  if (Array.isArray(value)) return { listValue: { values: value.map(protoValue) } }
  return { stringValue: JSON.stringify(value) }
}

function timestamp(time: CommitTimestamp): { seconds: number; nanos: number } {
  const nanos = timestampToNanos(time)
  return { seconds: Number(nanos / 1_000_000_000n), nanos: Number(nanos % 1_000_000_000n) }
}
