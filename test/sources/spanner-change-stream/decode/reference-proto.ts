/** The reference decoder's half for protobuf records: protobufjs, and a walk over what it found. */
import { protos } from '@google-cloud/spanner'
import { parseTimestamp, timestampFromNanos } from '../../../../src/model/commit-timestamp.ts'
import { CAPTURE_TYPES, count, filled, type Json, one, plainValue, text } from './reference-values.ts'

type IType = protos.google.spanner.v1.IType

/** An encoded `ChangeStreamRecord`. */
export function referenceProto(bytes: Buffer, partitionToken: string): unknown {
  const v1 = protos.google.spanner.v1
  const decoded = v1.ChangeStreamRecord.decode(bytes)
  const {
    dataChangeRecord: data,
    heartbeatRecord,
    partitionStartRecord,
    partitionEndRecord,
    partitionEventRecord,
  } = decoded
  if (data) {
    const columns = data.columnMetadata ?? []
    type Values = readonly protos.google.spanner.v1.ChangeStreamRecord.DataChangeRecord.IModValue[] | null | undefined
    const values = (values: Values): Json =>
      Object.fromEntries(
        (values ?? []).map(({ columnMetadataIndex, value }) => [
          text(columns[columnMetadataIndex ?? 0]?.name),
          plainValue(value ?? {}),
        ]),
      )
    return {
      kind: 'data',
      record: {
        partitionToken,
        commitTimestamp: protoTime(data.commitTimestamp),
        recordSequence: data.recordSequence,
        serverTransactionId: filled(data.serverTransactionId),
        isLastRecordInTransactionInPartition: data.isLastRecordInTransactionInPartition,
        tableName: filled(data.table),
        valueCaptureType: one(CAPTURE_TYPES, enumName(CAPTURES, data.valueCaptureType)),
        columnTypes: columns.map(({ name, type, isPrimaryKey, ordinalPosition }) => ({
          name: filled(name),
          type: protoType(type),
          isPrimaryKey,
          ordinalPosition: count(Number(ordinalPosition)),
        })),
        mods: (data.mods ?? []).map(({ keys, newValues, oldValues }) => ({
          keys: values(keys),
          newValues: values(newValues),
          oldValues: values(oldValues),
        })),
        modType: one(['INSERT', 'UPDATE', 'DELETE'], enumName(MODS, data.modType)),
        numberOfRecordsInTransaction: count(data.numberOfRecordsInTransaction),
        numberOfPartitionsInTransaction: count(data.numberOfPartitionsInTransaction),
        transactionTag: data.transactionTag,
        isSystemTransaction: data.isSystemTransaction,
      },
    }
  }
  if (heartbeatRecord) return { kind: 'heartbeat', record: { timestamp: protoTime(heartbeatRecord.timestamp) } }
  if (partitionStartRecord) {
    const { startTimestamp, recordSequence, partitionTokens } = partitionStartRecord
    const tokens = (partitionTokens ?? []).map(filled)
    if (tokens.length === 0) throw new Error('no tokens')
    return { kind: 'start', record: { startTimestamp: protoTime(startTimestamp), recordSequence, tokens } }
  }
  if (partitionEndRecord) {
    const { endTimestamp, recordSequence, partitionToken: token } = partitionEndRecord
    return { kind: 'end', record: { endTimestamp: protoTime(endTimestamp), recordSequence, token: filled(token) } }
  }
  if (!partitionEventRecord) throw new Error('no record')
  const { commitTimestamp, recordSequence, partitionToken: token, moveInEvents, moveOutEvents } = partitionEventRecord
  return {
    kind: 'event',
    record: {
      commitTimestamp: protoTime(commitTimestamp),
      recordSequence,
      token: filled(token),
      moveInFrom: (moveInEvents ?? []).map(({ sourcePartitionToken }) => filled(sourcePartitionToken)),
      moveOutTo: (moveOutEvents ?? []).map(({ destinationPartitionToken }) => filled(destinationPartitionToken)),
    },
  }
}

function protoTime(time: protos.google.protobuf.ITimestamp | null | undefined): string {
  if (!time) throw new Error('no time')
  const nanos = time.nanos ?? 0
  if (nanos < 0 || nanos > 999_999_999) throw new Error('no nanoseconds')
  return parseTimestamp(timestampFromNanos(BigInt(String(time.seconds)) * 1_000_000_000n + BigInt(nanos)))
}

function protoType(type: IType | null | undefined): unknown {
  const { code, arrayElementType, protoTypeFqn, typeAnnotation } = type ?? {}
  const v1 = protos.google.spanner.v1
  const annotation = typeAnnotation ? enumName(v1.TypeAnnotationCode, typeAnnotation) : undefined
  return {
    code: enumName(v1.TypeCode, code ?? 0) ?? `TYPE_CODE_${code}`,
    ...(arrayElementType && { array_element_type: protoType(arrayElementType) }),
    ...(protoTypeFqn && { proto_type_fqn: protoTypeFqn }),
    ...(typeAnnotation && { type_annotation: annotation ?? `TYPE_ANNOTATION_CODE_${typeAnnotation}` }),
  }
}

function enumName(names: object, value: unknown): string | undefined {
  return (names as Readonly<Record<string, string>>)[String(value)]
}

const { ModType: MODS, ValueCaptureType: CAPTURES } = protos.google.spanner.v1.ChangeStreamRecord.DataChangeRecord
