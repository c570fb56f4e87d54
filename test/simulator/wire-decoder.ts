/** Puts the messages of Spanner's API together again, by the rules of its documentation: a judge for the gRPC door. */
import { protos } from '@google-cloud/spanner'
import { type CommitTimestamp, parseTimestamp, timestampFromNanos } from '../../src/model/commit-timestamp.ts'
import type {
  ChangeStreamRecord,
  ColumnTypeCode,
  DataChangeRecord,
  Row as Values,
} from '../../src/model/data-change-record.ts'
import type { WireValue } from '../../src/simulator/wire-value.ts'

/** Strings are joined; lists are joined, and where they meet, two strings or two lists are joined in turn. */
export function mergeValues(head: WireValue, tail: WireValue): WireValue {
  if (typeof head === 'string' && typeof tail === 'string') return head + tail
  if (!isList(head) || !isList(tail)) throw new Error('these values cannot be merged')
  const [last, first] = [head.at(-1), tail[0]]
  const isJoined = last !== undefined && first !== undefined && (isList(last) || typeof last === 'string')
  if (!isJoined) return [...head, ...tail]
  return [...head.slice(0, -1), mergeValues(last, first), ...tail.slice(1)]
}

/** The whole values of a run of messages; `cut` holds a value whose rest is still to come. */
export class ValueAssembler {
  cut: WireValue | undefined

  take(message: protos.google.spanner.v1.IPartialResultSet): WireValue[] {
    const values = (message.values ?? []).map(plain)
    if (this.cut !== undefined && values.length > 0) values[0] = mergeValues(this.cut, values[0]!)
    if (values.length > 0) this.cut = message.chunkedValue ? values.pop() : undefined
    return values
  }
}

/** A row of the read function as a record. */
export function decodeRow(value: WireValue, partitionToken: string): ChangeStreamRecord {
  const [[data, heartbeat, children]] = value as Row
  if (heartbeat[0] !== undefined) return { kind: 'heartbeat', record: { timestamp: parseTimestamp(heartbeat[0][0]) } }
  if (children[0] !== undefined) {
    const [start, recordSequence, tokens] = children[0]
    return {
      kind: 'children',
      record: {
        startTimestamp: parseTimestamp(start),
        recordSequence,
        children: tokens.map(([token, parentTokens]) => ({ token, parentTokens })),
      },
    }
  }
  const record = data[0]!
  return {
    kind: 'data',
    bytes: 0,
    record: {
      partitionToken,
      commitTimestamp: parseTimestamp(record[0]),
      recordSequence: record[1],
      serverTransactionId: record[2],
      isLastRecordInTransactionInPartition: record[3],
      tableName: record[4],
      columnTypes: record[5].map(([name, type, isPrimaryKey, ordinal]) => ({
        name,
        type: JSON.parse(type),
        isPrimaryKey,
        ordinalPosition: Number(ordinal),
      })),
      mods: record[6].map(([keys, newValues, oldValues]) => ({
        keys: JSON.parse(keys),
        newValues: JSON.parse(newValues),
        oldValues: JSON.parse(oldValues),
      })),
      modType: record[7],
      valueCaptureType: record[8],
      numberOfRecordsInTransaction: Number(record[9]),
      numberOfPartitionsInTransaction: Number(record[10]),
      transactionTag: record[11],
      isSystemTransaction: record[12],
    },
  }
}

/** A row of the PostgreSQL read function as a record. */
export function decodeJsonRow(value: WireValue, partitionToken: string): ChangeStreamRecord {
  const row = JSON.parse(value as string) as JsonRow
  if (row.heartbeat_record) {
    return { kind: 'heartbeat', record: { timestamp: parseTimestamp(row.heartbeat_record.timestamp) } }
  }
  if (row.child_partitions_record) {
    const { start_timestamp, record_sequence, child_partitions } = row.child_partitions_record
    return {
      kind: 'children',
      record: {
        startTimestamp: parseTimestamp(start_timestamp),
        recordSequence: record_sequence,
        children: child_partitions.map((child) => ({
          token: child.token,
          parentTokens: child.parent_partition_tokens,
        })),
      },
    }
  }
  const record = row.data_change_record!
  return {
    kind: 'data',
    bytes: 0,
    record: {
      partitionToken,
      commitTimestamp: parseTimestamp(record.commit_timestamp),
      recordSequence: record.record_sequence,
      serverTransactionId: record.server_transaction_id,
      isLastRecordInTransactionInPartition: record.is_last_record_in_transaction_in_partition,
      tableName: record.table_name,
      columnTypes: record.column_types.map((column) => ({
        name: column.name,
        type: column.type,
        isPrimaryKey: column.is_primary_key,
        ordinalPosition: column.ordinal_position,
      })),
      mods: record.mods.map((mod) => ({ keys: mod.keys, newValues: mod.new_values, oldValues: mod.old_values })),
      modType: record.mod_type,
      valueCaptureType: record.value_capture_type,
      numberOfRecordsInTransaction: record.number_of_records_in_transaction,
      numberOfPartitionsInTransaction: record.number_of_partitions_in_transaction,
      transactionTag: record.transaction_tag,
      isSystemTransaction: record.is_system_transaction,
    },
  }
}

/** A row of a stream with mutable key ranges as a record: base64 of a message, by protobufjs. */
export function decodeProtoRow(value: WireValue, partitionToken: string): ChangeStreamRecord {
  const { ChangeStreamRecord: codec } = protos.google.spanner.v1
  const message = codec.toObject(codec.decode(Buffer.from(value as string, 'base64')), {
    enums: String,
    longs: Number,
    defaults: true,
    arrays: true,
  }) as ProtoRow
  const { heartbeatRecord, partitionStartRecord: start, partitionEndRecord: end, partitionEventRecord: event } = message
  if (heartbeatRecord) return { kind: 'heartbeat', record: { timestamp: timeOf(heartbeatRecord.timestamp) } }
  if (start) {
    const { startTimestamp, recordSequence, partitionTokens: tokens } = start
    return { kind: 'start', record: { startTimestamp: timeOf(startTimestamp), recordSequence, tokens } }
  }
  if (end) {
    const { endTimestamp, recordSequence, partitionToken: token } = end
    return { kind: 'end', record: { endTimestamp: timeOf(endTimestamp), recordSequence, token } }
  }
  if (event) {
    return {
      kind: 'event',
      record: {
        commitTimestamp: timeOf(event.commitTimestamp),
        recordSequence: event.recordSequence,
        token: event.partitionToken,
        moveInFrom: event.moveInEvents.map((move) => move.sourcePartitionToken),
        moveOutTo: event.moveOutEvents.map((move) => move.destinationPartitionToken),
      },
    }
  }
  const { commitTimestamp, table, columnMetadata, mods, ...rest } = message.dataChangeRecord!
  const valuesOf = (list: readonly ProtoValue[]): Values =>
    Object.fromEntries(
      list.map(({ columnMetadataIndex, value }) => [columnMetadata[columnMetadataIndex]!.name, jsonOf(value)]),
    )
  return {
    kind: 'data',
    bytes: 0,
    record: {
      ...rest,
      partitionToken,
      commitTimestamp: timeOf(commitTimestamp),
      tableName: table,
      columnTypes: columnMetadata.map(({ name, type, isPrimaryKey, ordinalPosition }) => ({
        name,
        type: typeOf(type),
        isPrimaryKey,
        ordinalPosition,
      })),
      mods: mods.map((mod) => ({
        keys: valuesOf(mod.keys),
        newValues: valuesOf(mod.newValues),
        oldValues: valuesOf(mod.oldValues),
      })),
    },
  }
}

function typeOf({ code, arrayElementType }: ProtoType): ColumnTypeCode {
  return arrayElementType ? { code, array_element_type: typeOf(arrayElementType) } : { code }
}

function jsonOf(value: protos.google.protobuf.IValue): unknown {
  return value.listValue ? (value.listValue.values ?? []).map(jsonOf) : (value.numberValue ?? plain(value))
}

function timeOf({ seconds, nanos }: ProtoTime): CommitTimestamp {
  return timestampFromNanos(BigInt(seconds) * 1_000_000_000n + BigInt(nanos))
}

export function plain(value: protos.google.protobuf.IValue): WireValue {
  if (value.listValue) return (value.listValue.values ?? []).map(plain)
  return value.stringValue ?? value.boolValue ?? null
}

interface JsonRow {
  readonly heartbeat_record?: { readonly timestamp: string }
  readonly child_partitions_record?: {
    readonly start_timestamp: string
    readonly record_sequence: string
    readonly child_partitions: readonly {
      readonly token: string
      readonly parent_partition_tokens: readonly string[]
    }[]
  }
  readonly data_change_record?: {
    readonly commit_timestamp: string
    readonly record_sequence: string
    readonly server_transaction_id: string
    readonly is_last_record_in_transaction_in_partition: boolean
    readonly table_name: string
    readonly column_types: readonly {
      readonly name: string
      readonly type: { readonly code: string }
      readonly is_primary_key: boolean
      readonly ordinal_position: number
    }[]
    readonly mods: readonly { readonly keys: Values; readonly new_values: Values; readonly old_values: Values }[]
    readonly mod_type: DataChangeRecord['modType']
    readonly value_capture_type: DataChangeRecord['valueCaptureType']
    readonly number_of_records_in_transaction: number
    readonly number_of_partitions_in_transaction: number
    readonly transaction_tag: string
    readonly is_system_transaction: boolean
  }
}

interface ProtoTime {
  readonly seconds: number
  readonly nanos: number
}

interface ProtoType {
  readonly code: string
  readonly arrayElementType?: ProtoType | null
}

interface ProtoValue {
  readonly columnMetadataIndex: number
  readonly value: protos.google.protobuf.IValue
}

interface ProtoRow {
  readonly heartbeatRecord?: { readonly timestamp: ProtoTime }
  readonly partitionStartRecord?: {
    readonly startTimestamp: ProtoTime
    readonly recordSequence: string
    readonly partitionTokens: readonly string[]
  }
  readonly partitionEndRecord?: {
    readonly endTimestamp: ProtoTime
    readonly recordSequence: string
    readonly partitionToken: string
  }
  readonly partitionEventRecord?: {
    readonly commitTimestamp: ProtoTime
    readonly recordSequence: string
    readonly partitionToken: string
    readonly moveInEvents: readonly { readonly sourcePartitionToken: string }[]
    readonly moveOutEvents: readonly { readonly destinationPartitionToken: string }[]
  }
  readonly dataChangeRecord?: Omit<
    DataChangeRecord,
    'partitionToken' | 'commitTimestamp' | 'tableName' | 'columnTypes' | 'mods'
  > & {
    readonly commitTimestamp: ProtoTime
    readonly table: string
    readonly columnMetadata: readonly {
      readonly name: string
      readonly type: ProtoType
      readonly isPrimaryKey: boolean
      readonly ordinalPosition: number
    }[]
    readonly mods: readonly Readonly<Record<'keys' | 'newValues' | 'oldValues', readonly ProtoValue[]>>[]
  }
}

type Row = [
  [
    data: [
      string,
      string,
      string,
      boolean,
      string,
      [string, string, boolean, string][],
      [string, string, string][],
      DataChangeRecord['modType'],
      DataChangeRecord['valueCaptureType'],
      string,
      string,
      string,
      boolean,
    ][],
    heartbeat: [string][],
    children: [string, string, [string, string[]][]][],
  ],
]

function isList(value: WireValue): value is readonly WireValue[] {
  return Array.isArray(value)
}
