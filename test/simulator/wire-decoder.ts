/** Puts the messages of Spanner's API together again, by the rules of its documentation: a judge for the gRPC door. */
import type { protos } from '@google-cloud/spanner'
import { parseTimestamp } from '../../src/model/commit-timestamp.ts'
import type { ChangeStreamRecord, DataChangeRecord } from '../../src/model/data-change-record.ts'
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

export function plain(value: protos.google.protobuf.IValue): WireValue {
  if (value.listValue) return (value.listValue.values ?? []).map(plain)
  return value.stringValue ?? value.boolValue ?? null
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
