/** From a row of the read function in the GoogleSQL dialect to plain records. */
import { SourceError } from '../../core/errors.ts'
import { type CommitTimestamp, parseTimestamp } from '../../model/commit-timestamp.ts'
import type {
  ChangeStreamRecord,
  ColumnType,
  ColumnTypeCode,
  DataChangeRecord,
  Mod,
  ModType,
  Row,
  ValueCaptureType,
} from '../../model/data-change-record.ts'
import type { WireValue } from './partial-results.ts'

/** A type as the result's metadata describes it. */
export interface WireType {
  readonly arrayElementType?: WireType | null
  readonly structType?: {
    readonly fields?: readonly { readonly name?: string | null; readonly type?: WireType | null }[] | null
  } | null
}

/** Where each field stands, by name: the order of fields is the server's affair. */
export interface RecordLayout {
  readonly record: Places
  readonly data: Places
  readonly heartbeat: Places
  readonly children: Places
  readonly child: Places
  readonly columnType: Places
  readonly mod: Places
}

type Places = ReadonlyMap<string, number>

/** Reads the layout off the type of the `ChangeRecord` column. */
export function recordLayout(changeRecord: WireType | null | undefined): RecordLayout {
  const record = changeRecord?.arrayElementType
  const data = elementOf(record, 'data_change_record')
  const children = elementOf(record, 'child_partitions_record')
  return {
    record: placesOf(record),
    data: placesOf(data),
    heartbeat: placesOf(elementOf(record, 'heartbeat_record')),
    children: placesOf(children),
    child: placesOf(elementOf(children, 'child_partitions')),
    columnType: placesOf(elementOf(data, 'column_types')),
    mod: placesOf(elementOf(data, 'mods')),
  }
}

/** One `ChangeRecord`: an array of structs, each with three arrays of which one holds one element. */
export function decodeChangeRecord(
  changeRecord: WireValue,
  partitionToken: string,
  layout: RecordLayout,
): ChangeStreamRecord[] {
  return list(changeRecord).flatMap((struct) => {
    const field = fieldsOf(struct, layout.record)
    return [
      ...list(field('data_change_record')).map((record) => decodeData(record, partitionToken, layout)),
      ...list(field('heartbeat_record')).map((record) => decodeHeartbeat(record, layout)),
      ...list(field('child_partitions_record')).map((record) => decodeChildren(record, layout)),
    ]
  })
}

function decodeData(struct: WireValue, partitionToken: string, layout: RecordLayout): ChangeStreamRecord {
  const field = fieldsOf(struct, layout.data)
  let bytes = RECORD_BYTES
  const mods = list(field('mods')).map((mod): Mod => {
    const side = fieldsOf(mod, layout.mod)
    bytes += length(side('keys')) + length(side('new_values')) + length(side('old_values'))
    return { keys: row(side('keys')), newValues: row(side('new_values')), oldValues: row(side('old_values')) }
  })
  const record: DataChangeRecord = {
    partitionToken,
    commitTimestamp: time(field('commit_timestamp')),
    recordSequence: text(field('record_sequence')),
    serverTransactionId: text(field('server_transaction_id')),
    isLastRecordInTransactionInPartition: flag(field('is_last_record_in_transaction_in_partition')),
    tableName: text(field('table_name')),
    valueCaptureType: text(field('value_capture_type')) as ValueCaptureType,
    columnTypes: list(field('column_types')).map((type) => decodeColumnType(type, layout)),
    mods,
    modType: text(field('mod_type')) as ModType,
    numberOfRecordsInTransaction: Number(text(field('number_of_records_in_transaction'))),
    numberOfPartitionsInTransaction: Number(text(field('number_of_partitions_in_transaction'))),
    transactionTag: text(field('transaction_tag')),
    isSystemTransaction: flag(field('is_system_transaction')),
  }
  return { kind: 'data', record, bytes }
}

function decodeColumnType(struct: WireValue, layout: RecordLayout): ColumnType {
  const field = fieldsOf(struct, layout.columnType)
  return {
    name: text(field('name')),
    type: parsed(text(field('type'))) as ColumnTypeCode,
    isPrimaryKey: flag(field('is_primary_key')),
    ordinalPosition: Number(text(field('ordinal_position'))),
  }
}

function decodeHeartbeat(struct: WireValue, layout: RecordLayout): ChangeStreamRecord {
  return {
    kind: 'heartbeat',
    record: { timestamp: time(fieldsOf(struct, layout.heartbeat)('timestamp')) },
  }
}

function decodeChildren(struct: WireValue, layout: RecordLayout): ChangeStreamRecord {
  const field = fieldsOf(struct, layout.children)
  return {
    kind: 'children',
    record: {
      startTimestamp: time(field('start_timestamp')),
      recordSequence: text(field('record_sequence')),
      children: list(field('child_partitions')).map((child) => {
        const part = fieldsOf(child, layout.child)
        // The first query's children have no parents, which some servers write as one null.
        const parents = list(part('parent_partition_tokens')).filter((parent) => typeof parent.stringValue === 'string')
        return { token: text(part('token')), parentTokens: parents.map(text) }
      }),
    },
  }
}

function fieldsOf(struct: WireValue, places: Places): (name: string) => WireValue | undefined {
  const values = list(struct)
  return (name) => {
    const place = places.get(name)
    if (place === undefined) throw malformed(name)
    return values[place]
  }
}

function placesOf(struct: WireType | null | undefined): Places {
  return new Map((struct?.structType?.fields ?? []).map(({ name }, place) => [name ?? '', place]))
}

function elementOf(struct: WireType | null | undefined, name: string): WireType | undefined {
  const field = struct?.structType?.fields?.find((candidate) => candidate.name === name)
  return field?.type?.arrayElementType ?? undefined
}

/** JSON.parse keeps keys such as `__proto__` as they are; absent sides come as an empty object or as null. */
function row(value: WireValue | undefined): Row {
  if (typeof value?.stringValue !== 'string') return NO_VALUES
  return (parsed(value.stringValue) as Row | null) ?? NO_VALUES
}

/** Without the cause: the parser's message quotes the text, which is row content. */
function parsed(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    throw malformed('a value')
  }
}

function time(value: WireValue | undefined): CommitTimestamp {
  try {
    return parseTimestamp(text(value))
  } catch {
    throw malformed('a timestamp')
  }
}

function list(value: WireValue | undefined): readonly WireValue[] {
  return value?.listValue?.values ?? []
}

function text(value: WireValue | undefined): string {
  if (typeof value?.stringValue !== 'string') throw malformed('a field')
  return value.stringValue
}

function flag(value: WireValue | undefined): boolean {
  return value?.boolValue === true
}

function length(value: WireValue | undefined): number {
  return value?.stringValue?.length ?? 0
}

function malformed(what: string): SourceError {
  return new SourceError(`spannerChangeStream: ${what} of a change record is not of the documented form`, {
    hint: 'Is this a change stream in the GoogleSQL dialect with immutable partitions? Other kinds are not read yet.',
  })
}

const NO_VALUES: Row = Object.freeze({})
/** About what a record takes besides its values. */
const RECORD_BYTES = 500
