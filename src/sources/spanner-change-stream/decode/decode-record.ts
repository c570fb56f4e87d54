/** From the bytes of a row in the GoogleSQL dialect to records, without anything in between. The hot path of reading. */
import type {
  ChangeStreamRecord,
  ChildPartition,
  ColumnType,
  DataChangeRecord,
  Mod,
} from '../../../model/data-change-record.ts'
import type { ByteCache } from './byte-cache.ts'
import { MalformedRecord } from './malformed.ts'
import { type LayoutCaches, type RecordCaches, tailOf } from './record-caches.ts'
import {
  CHILD_FIELDS,
  CHILDREN_FIELDS,
  COLUMN_TYPE_FIELDS,
  DATA_FIELDS,
  HEARTBEAT_FIELDS,
  MOD_FIELDS,
  RECORD_FIELDS,
  type RecordLayout,
} from './record-layout.ts'
import { asCaptureType, asColumnType, asCount, asModType, NO_VALUES, parseJson, RECORD_BYTES } from './record-values.ts'
import type { ModDraft, RowBatch } from './row-batch.ts'
import { elementsOf, fieldsOf, flag, hasRow, isNull, openList, text } from './struct-values.ts'
import { TimeDecoder } from './time-decoder.ts'
import type { WireReader } from './wire-reader.ts'

type RecordDraft = { -readonly [Name in keyof DataChangeRecord]: DataChangeRecord[Name] }

/**
 * Decodes `ChangeRecord` values: an array of structs, each with three arrays of which one holds one record. Reads each
 * byte once; texts and column types whose bytes have been seen are reused, so records share them. The rows of the mods
 * are filled in when the row batch of the caches is flushed.
 * Throws a MalformedRecord that names the field, or a WireFormatError.
 */
export class StructRecordDecoder {
  readonly #layout: RecordLayout
  readonly #texts: ByteCache<string>
  readonly #caches: LayoutCaches
  /** Whether the fields of a data change record stand where they are documented, so that head and tail can be reused. */
  readonly #isOrdered: boolean
  /** The record that is being decoded. */
  readonly #draft: RecordDraft
  readonly #rows: RowBatch
  #seen = 0
  readonly #times = new TimeDecoder()

  constructor(partitionToken: string, layout: RecordLayout, caches: RecordCaches) {
    this.#layout = layout
    this.#texts = caches.texts
    this.#rows = caches.rows
    this.#caches = caches.of(layout)
    this.#isOrdered = DATA_FIELDS.every((_, field) => layout.data[field] === field)
    this.#draft = { ...EMPTY_RECORD, partitionToken }
  }

  /** Adds the records of the value that lies from `start` to `end`. */
  decode(reader: WireReader, start: number, end: number, records: ChangeStreamRecord[]): void {
    openList(reader, start, end, 'ChangeRecord')
    const listEnd = reader.contentEnd
    reader.at = reader.contentStart
    let structs = 0
    for (; reader.hasElement(listEnd); structs++) {
      const stop = reader.lengthEnd(listEnd)
      const before = records.length
      this.#decodeStruct(reader, reader.at, stop, records)
      // A kind of record that is not known yet must not be passed over in silence.
      if (records.length === before) throw new MalformedRecord('ChangeRecord', 'holds no record of a known kind')
      reader.at = stop
    }
    if (structs === 0) throw new MalformedRecord('ChangeRecord', 'is empty')
  }

  #decodeStruct(reader: WireReader, start: number, end: number, records: ChangeStreamRecord[]): void {
    const { record } = this.#layout
    openList(reader, start, end, 'ChangeRecord')
    const listEnd = reader.contentEnd
    reader.at = reader.contentStart
    for (let place = 0; reader.hasElement(listEnd); place++) {
      const field = record[place]
      const stop = reader.lengthEnd(listEnd)
      if (field !== undefined && field >= 0) this.#decodeKind(field, reader, reader.at, stop, records)
      reader.at = stop
    }
  }

  #decodeKind(field: number, reader: WireReader, start: number, end: number, records: ChangeStreamRecord[]): void {
    openList(reader, start, end, RECORD_FIELDS[field]!)
    const listEnd = reader.contentEnd
    reader.at = reader.contentStart
    while (reader.hasElement(listEnd)) {
      const stop = reader.lengthEnd(listEnd)
      const begin = reader.at
      if (field === 0) records.push(this.#decodeData(reader, begin, stop))
      else if (field === 1) records.push(this.#decodeHeartbeat(reader, begin, stop))
      else records.push(this.#decodeChildren(reader, begin, stop))
      reader.at = stop
    }
  }

  #decodeData(reader: WireReader, start: number, end: number): ChangeStreamRecord {
    openList(reader, start, end, 'data_change_record')
    const listEnd = reader.contentEnd
    reader.at = reader.contentStart
    this.#seen = 0
    if (this.#isOrdered) this.#decodeOrdered(reader, listEnd)
    else this.#decodeFields(reader, listEnd, 0, Number.POSITIVE_INFINITY)
    if (this.#seen !== ALL_DATA_FIELDS) throw missingField(this.#seen, DATA_FIELDS)
    return { kind: 'data', record: { ...this.#draft }, bytes: RECORD_BYTES + (end - start) }
  }

  /** What comes before and behind the mods is decoded once and then known by its bytes. */
  #decodeOrdered(reader: WireReader, listEnd: number): void {
    const draft = this.#draft
    const { heads, tails } = this.#caches
    this.#decodeFields(reader, listEnd, 0, HEAD_PLACE)
    const headStart = reader.at
    for (let place = HEAD_PLACE; place < MODS_PLACE && reader.hasElement(listEnd); place++) {
      reader.at = reader.lengthEnd(listEnd)
    }
    const headEnd = reader.at
    const head = heads.get(reader.bytes, headStart, headEnd)
    if (head === undefined) {
      reader.at = headStart
      this.#decodeFields(reader, headEnd, HEAD_PLACE, MODS_PLACE)
      const { isLastRecordInTransactionInPartition, tableName, columnTypes } = draft
      if ((this.#seen & HEAD_FIELDS) === HEAD_FIELDS) {
        heads.set(reader.bytes, headStart, headEnd, { isLastRecordInTransactionInPartition, tableName, columnTypes })
      }
    } else {
      draft.isLastRecordInTransactionInPartition = head.isLastRecordInTransactionInPartition
      draft.tableName = head.tableName
      draft.columnTypes = head.columnTypes
      this.#seen |= HEAD_FIELDS
    }
    this.#decodeFields(reader, listEnd, MODS_PLACE, MODS_PLACE + 1)
    const tailStart = reader.at
    const tail = tails.get(reader.bytes, tailStart, listEnd)
    if (tail === undefined) {
      this.#decodeFields(reader, listEnd, MODS_PLACE + 1, Number.POSITIVE_INFINITY)
      if ((this.#seen & TAIL_FIELDS) === TAIL_FIELDS) tails.set(reader.bytes, tailStart, listEnd, tailOf(draft))
    } else {
      draft.modType = tail.modType
      draft.valueCaptureType = tail.valueCaptureType
      draft.numberOfRecordsInTransaction = tail.numberOfRecordsInTransaction
      draft.numberOfPartitionsInTransaction = tail.numberOfPartitionsInTransaction
      draft.transactionTag = tail.transactionTag
      draft.isSystemTransaction = tail.isSystemTransaction
      this.#seen |= TAIL_FIELDS
    }
  }

  /** Decodes the fields at the places from `from` to before `to`. */
  #decodeFields(reader: WireReader, listEnd: number, from: number, to: number): void {
    const places = this.#layout.data
    for (let place = from; place < to && reader.hasElement(listEnd); place++) {
      const stop = reader.lengthEnd(listEnd)
      const field = places[place] ?? -1
      if (field >= 0) {
        this.#decodeField(field, reader, reader.at, stop)
        this.#seen |= 1 << field
      }
      reader.at = stop
    }
  }

  #decodeField(field: number, reader: WireReader, start: number, end: number): void {
    const draft = this.#draft
    const name = DATA_FIELDS[field]!
    switch (name) {
      case 'commit_timestamp':
        draft.commitTimestamp = this.#times.decode(reader, start, end, name)
        break
      case 'record_sequence':
        draft.recordSequence = this.#repeated(reader, start, end, name)
        break
      case 'server_transaction_id':
        draft.serverTransactionId = text(reader, start, end, name)
        break
      case 'is_last_record_in_transaction_in_partition':
        draft.isLastRecordInTransactionInPartition = flag(reader, start, end, name)
        break
      case 'table_name':
        draft.tableName = this.#repeated(reader, start, end, name)
        break
      case 'column_types':
        draft.columnTypes = this.#columnTypes(reader, start, end)
        break
      case 'mods':
        draft.mods = this.#mods(reader, start, end)
        break
      case 'mod_type':
        draft.modType = asModType(this.#repeated(reader, start, end, name), name)
        break
      case 'value_capture_type':
        draft.valueCaptureType = asCaptureType(this.#repeated(reader, start, end, name), name)
        break
      case 'number_of_records_in_transaction':
        draft.numberOfRecordsInTransaction = this.#count(reader, start, end, name)
        break
      case 'number_of_partitions_in_transaction':
        draft.numberOfPartitionsInTransaction = this.#count(reader, start, end, name)
        break
      case 'transaction_tag':
        draft.transactionTag = this.#repeated(reader, start, end, name)
        break
      case 'is_system_transaction':
        draft.isSystemTransaction = flag(reader, start, end, name)
        break
    }
  }

  #mods(reader: WireReader, start: number, end: number): Mod[] {
    openList(reader, start, end, 'mods')
    const listEnd = reader.contentEnd
    reader.at = reader.contentStart
    const mods: Mod[] = []
    while (reader.hasElement(listEnd)) {
      const stop = reader.lengthEnd(listEnd)
      mods.push(this.#mod(reader, reader.at, stop))
      reader.at = stop
    }
    return mods
  }

  #mod(reader: WireReader, start: number, end: number): Mod {
    const places = this.#layout.mod
    openList(reader, start, end, 'mods')
    const listEnd = reader.contentEnd
    reader.at = reader.contentStart
    let seen = 0
    const mod: ModDraft = { keys: NO_VALUES, newValues: NO_VALUES, oldValues: NO_VALUES }
    for (let place = 0; reader.hasElement(listEnd); place++) {
      const stop = reader.lengthEnd(listEnd)
      const field = places[place] ?? -1
      if (field >= 0) {
        seen |= 1 << field
        if (hasRow(reader, reader.at, stop, MOD_FIELDS[field]!)) {
          this.#rows.add(field, reader.bytes, reader.contentStart, reader.contentEnd, mod)
        }
      }
      reader.at = stop
    }
    if (seen !== ALL_MOD_FIELDS) throw missingField(seen, MOD_FIELDS)
    return mod
  }

  #columnTypes(reader: WireReader, start: number, end: number): readonly ColumnType[] {
    const known = this.#caches.columnTypes.get(reader.bytes, start, end)
    if (known !== undefined) return known
    const types: ColumnType[] = []
    openList(reader, start, end, 'column_types')
    const listEnd = reader.contentEnd
    reader.at = reader.contentStart
    while (reader.hasElement(listEnd)) {
      const stop = reader.lengthEnd(listEnd)
      types.push(this.#columnType(reader, reader.at, stop))
      reader.at = stop
    }
    return this.#caches.columnTypes.set(reader.bytes, start, end, types)
  }

  #columnType(reader: WireReader, start: number, end: number): ColumnType {
    const field = fieldsOf(reader, start, end, this.#layout.columnType, 'column_types', COLUMN_TYPE_FIELDS)
    return {
      name: text(reader, ...field('name'), 'column_types.name'),
      type: asColumnType(
        parseJson(text(reader, ...field('type'), 'column_types.type'), 'column_types.type'),
        'column_types.type',
      ),
      isPrimaryKey: flag(reader, ...field('is_primary_key'), 'column_types.is_primary_key'),
      ordinalPosition: this.#count(reader, ...field('ordinal_position'), 'column_types.ordinal_position'),
    }
  }

  #decodeHeartbeat(reader: WireReader, start: number, end: number): ChangeStreamRecord {
    const field = fieldsOf(reader, start, end, this.#layout.heartbeat, 'heartbeat_record', HEARTBEAT_FIELDS)
    return { kind: 'heartbeat', record: { timestamp: this.#times.decode(reader, ...field('timestamp'), 'timestamp') } }
  }

  #decodeChildren(reader: WireReader, start: number, end: number): ChangeStreamRecord {
    const field = fieldsOf(reader, start, end, this.#layout.children, 'child_partitions_record', CHILDREN_FIELDS)
    return {
      kind: 'children',
      record: {
        startTimestamp: this.#times.decode(reader, ...field('start_timestamp'), 'start_timestamp'),
        recordSequence: text(reader, ...field('record_sequence'), 'record_sequence'),
        children: elementsOf(reader, ...field('child_partitions'), 'child_partitions').map((element) =>
          this.#child(reader, ...element),
        ),
      },
    }
  }

  #child(reader: WireReader, start: number, end: number): ChildPartition {
    const field = fieldsOf(reader, start, end, this.#layout.child, 'child_partitions', CHILD_FIELDS)
    const parentTokens: string[] = []
    const parents = field('parent_partition_tokens')
    // The first query's children have no parents, which some servers write as one null.
    if (!isNull(reader, ...parents)) {
      for (const parent of elementsOf(reader, ...parents, 'parent_partition_tokens')) {
        if (!isNull(reader, ...parent)) parentTokens.push(text(reader, ...parent, 'parent_partition_tokens'))
      }
    }
    const token = text(reader, ...field('token'), 'token')
    if (token === '') throw new MalformedRecord('token', 'is empty')
    return { token, parentTokens }
  }

  /** A text that many records have in common. */
  #repeated(reader: WireReader, start: number, end: number, field: string): string {
    const texts = this.#texts
    return texts.get(reader.bytes, start, end) ?? texts.set(reader.bytes, start, end, text(reader, start, end, field))
  }

  /** INT64 comes as a text. */
  #count(reader: WireReader, start: number, end: number, field: string): number {
    return asCount(this.#repeated(reader, start, end, field), field)
  }
}

function missingField(seen: number, names: readonly string[]): MalformedRecord {
  const missing = names.find((_, field) => (seen & (1 << field)) === 0)
  return new MalformedRecord(missing ?? 'a field', 'is missing')
}

const EMPTY_RECORD: DataChangeRecord = {
  partitionToken: '',
  commitTimestamp: '',
  recordSequence: '',
  serverTransactionId: '',
  isLastRecordInTransactionInPartition: false,
  tableName: '',
  valueCaptureType: 'OLD_AND_NEW_VALUES',
  columnTypes: [],
  mods: [],
  modType: 'INSERT',
  numberOfRecordsInTransaction: 0,
  numberOfPartitionsInTransaction: 0,
  transactionTag: '',
  isSystemTransaction: false,
}
const ALL_DATA_FIELDS = (1 << DATA_FIELDS.length) - 1
const HEAD_PLACE = DATA_FIELDS.indexOf('is_last_record_in_transaction_in_partition')
const MODS_PLACE = DATA_FIELDS.indexOf('mods')
const HEAD_FIELDS = (1 << MODS_PLACE) - (1 << HEAD_PLACE)
const TAIL_FIELDS = (1 << DATA_FIELDS.length) - (1 << (MODS_PLACE + 1))
const ALL_MOD_FIELDS = (1 << MOD_FIELDS.length) - 1
