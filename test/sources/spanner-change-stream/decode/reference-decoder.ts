/**
 * A second decoder of results, slow and plain, to judge the real one by: protobufjs takes the messages apart, a walk by
 * field names does the rest, and pieces are joined by the rules of the API's documentation. Refuses what is not of the
 * documented form.
 */
import { protos } from '@google-cloud/spanner'
import type { Dialect, PartitionMode } from '../../../../src/model/change-stream.ts'
import { parseTimestamp } from '../../../../src/model/commit-timestamp.ts'
import { referenceProto } from './reference-proto.ts'
import { CAPTURE_TYPES, count, flag, type Json, list, one, type Plain, plainValue, text } from './reference-values.ts'

type IType = protos.google.spanner.v1.IType

/** Records as plain objects, in order. `unfinished` is true if the rest of a value never came. */
export interface ReferenceResult {
  readonly records: readonly unknown[]
  readonly unfinished: boolean
}

export function referenceDecode(
  messages: readonly Buffer[],
  dialect: Dialect,
  mode: PartitionMode,
  token: string,
): ReferenceResult {
  const records: unknown[] = []
  let type: IType | undefined
  let cut: Plain | undefined
  for (const bytes of messages) {
    const message = protos.google.spanner.v1.PartialResultSet.decode(bytes)
    type ??= message.metadata?.rowType?.fields?.[0]?.type ?? undefined
    const values = message.values.map(plainValue)
    if (cut !== undefined && values.length > 0) values[0] = mergePlain(cut, values[0]!)
    if (values.length > 0) cut = message.chunkedValue ? values.pop() : undefined
    for (const value of values) {
      if (mode === 'mutable') records.push(referenceProto(Buffer.from(text(value), 'base64'), token))
      else if (dialect === 'postgresql') records.push(referenceJson(text(value), token))
      else records.push(...structRecords(value, type, token))
    }
  }
  return { records, unfinished: cut !== undefined }
}

/** Strings are joined; lists are joined, and where they meet, two strings or two lists are joined in turn. */
export function mergePlain(head: Plain, tail: Plain): Plain {
  if (typeof head === 'string' && typeof tail === 'string') return head + tail
  if (!Array.isArray(head) || !Array.isArray(tail)) throw new Error('pieces that do not fit')
  const [last, first] = [head.at(-1) as Plain | undefined, tail[0] as Plain | undefined]
  const isText = typeof last === 'string' && typeof first === 'string'
  if (!isText && !(Array.isArray(last) && Array.isArray(first))) return [...head, ...tail]
  return [...head.slice(0, -1), mergePlain(last!, first!), ...tail.slice(1)]
}

function structRecords(value: Plain, type: IType | undefined, token: string): unknown[] {
  if (list(value).length === 0) throw new Error('no record')
  return list(value).flatMap((element) => {
    const struct = named(element as Plain, type)
    const of = (kind: string, decode: (record: Json) => unknown): unknown[] =>
      struct[kind] === undefined ? [] : list(struct[kind]).map((record) => decode(record as Json))
    const found = [
      ...of('data_change_record', (record) => data(record, token)),
      ...of('heartbeat_record', heartbeat),
      ...of('child_partitions_record', children),
    ]
    if (found.length === 0) throw new Error('no record')
    return found
  })
}

/** The values of an array of structs, or of a struct, with their names. */
function named(value: Plain, type: IType | null | undefined): Json {
  const struct = type?.arrayElementType?.structType ?? type?.structType
  const fields = struct?.fields ?? []
  // A side may be null, but it must be there.
  const missing = fields.slice(list(value).length).map(({ name }) => name ?? '')
  if (missing.some((name) => name.endsWith('_values'))) throw new Error('a side is missing')
  const entries = list(value).flatMap((field, place): [string, unknown][] => {
    const { name, type: fieldType } = fields[place] ?? {}
    if (!name) return []
    const isStructs = fieldType?.arrayElementType?.structType
    return [[name, isStructs && Array.isArray(field) ? field.map((element) => named(element, fieldType)) : field]]
  })
  return Object.fromEntries(entries)
}

/** The same fields stand in structs and in JSON; in structs, maps of values and types are texts of JSON. */
function data(record: Json, partitionToken: string): unknown {
  return {
    kind: 'data',
    record: {
      partitionToken,
      commitTimestamp: parseTimestamp(text(record.commit_timestamp)),
      recordSequence: text(record.record_sequence),
      serverTransactionId: text(record.server_transaction_id),
      isLastRecordInTransactionInPartition: flag(record.is_last_record_in_transaction_in_partition),
      tableName: text(record.table_name),
      valueCaptureType: one(CAPTURE_TYPES, text(record.value_capture_type)),
      columnTypes: list(record.column_types).map(columnType),
      mods: list(record.mods).map((mod) => {
        const { keys, new_values, old_values } = mod as Json
        if (keys === undefined) throw new Error('no keys')
        return { keys: row(keys), newValues: row(new_values), oldValues: row(old_values) }
      }),
      modType: one(['INSERT', 'UPDATE', 'DELETE'], text(record.mod_type)),
      numberOfRecordsInTransaction: count(record.number_of_records_in_transaction),
      numberOfPartitionsInTransaction: count(record.number_of_partitions_in_transaction),
      transactionTag: text(record.transaction_tag),
      isSystemTransaction: flag(record.is_system_transaction),
    },
  }
}

function columnType(value: unknown): unknown {
  const { name, type, is_primary_key, ordinal_position } = value as Json
  const parsed: unknown = typeof type === 'string' ? JSON.parse(type) : type
  text((parsed as Json).code)
  return {
    name: text(name),
    type: parsed,
    isPrimaryKey: flag(is_primary_key),
    ordinalPosition: count(ordinal_position),
  }
}

function heartbeat({ timestamp }: Json): unknown {
  return { kind: 'heartbeat', record: { timestamp: parseTimestamp(text(timestamp)) } }
}

function children({ start_timestamp, record_sequence, child_partitions }: Json): unknown {
  return {
    kind: 'children',
    record: {
      startTimestamp: parseTimestamp(text(start_timestamp)),
      recordSequence: text(record_sequence),
      children: list(child_partitions).map((child) => {
        const { token, parent_partition_tokens: parents } = child as Json
        if (parents === undefined || token === '') throw new Error('no parents or no token')
        const tokens = parents === null ? [] : list(parents).filter((parent) => parent !== null)
        return { token: text(token), parentTokens: tokens.map(text) }
      }),
    },
  }
}

/** A row of the PostgreSQL dialect. */
export function referenceJson(json: string, token: string): unknown {
  const record = jsonObject(JSON.parse(json))
  const kinds = Object.keys(DECODERS).filter((kind) => record[kind] !== undefined)
  const [kind] = kinds
  if (kind === undefined || kinds.length > 1) throw new Error('not one record')
  // Numbers become texts in rows only: elsewhere they would have to be refused.
  DECODERS[kind]!(jsonObject(record[kind]), token)
  return DECODERS[kind]!(jsonObject(jsonObject(exact(json))[kind]), token)
}

const DECODERS: Readonly<Record<string, (record: Json, token: string) => unknown>> = {
  data_change_record: data,
  heartbeat_record: heartbeat,
  child_partitions_record: children,
}

/** An integer that a double cannot hold stays a text. */
function exact(json: string): unknown {
  const parse = JSON.parse as (
    text: string,
    revive: (...args: [string, unknown, { source?: string }]) => unknown,
  ) => unknown
  return parse(json, (_, value, { source }) =>
    typeof value === 'number' && /^-?\d+$/.test(source ?? '') && !Number.isSafeInteger(value) ? source : value,
  )
}

function row(value: unknown): Json {
  const parsed = typeof value === 'string' ? exact(value) : value
  return parsed === null || parsed === undefined ? {} : jsonObject(parsed)
}

function jsonObject(value: unknown): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error('no object')
  return value as Json
}
