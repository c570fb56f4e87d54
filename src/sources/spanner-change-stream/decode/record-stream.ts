/** From the messages of one query to records: picks the decoder by the form of the rows, names what is malformed. */
import { SourceError } from '../../../core/errors.ts'
import type { Dialect, PartitionMode, QueryPart } from '../../../model/change-stream.ts'
import type { ChangeStreamRecord } from '../../../model/data-change-record.ts'
import { decodeJsonRecord } from './decode-json-record.ts'
import { decodeProtoRecord } from './decode-proto-record.ts'
import { StructRecordDecoder } from './decode-record.ts'
import { MalformedRecord } from './malformed.ts'
import { PartialResults } from './partial-results.ts'
import type { RecordCaches } from './record-caches.ts'
import { type RecordLayout, recordLayout } from './record-layout.ts'
import { VALUE_KIND, WireFormatError, type WireReader } from './wire-reader.ts'

export class RecordStream {
  readonly #token: string
  readonly #caches: RecordCaches
  readonly #results = new PartialResults()
  readonly #form: 'struct' | 'json' | 'proto'
  #structs: StructRecordDecoder | undefined
  #failure: SourceError | undefined

  constructor(dialect: Dialect, mode: PartitionMode, token: string, caches: RecordCaches) {
    this.#token = token
    this.#caches = caches
    this.#form = mode === 'mutable' ? 'proto' : dialect === 'postgresql' ? 'json' : 'struct'
  }

  /** The records of some messages that follow each other, up to a malformed one: then the next call throws. */
  take(messages: readonly Buffer[]): QueryPart {
    this.assertWell()
    const records: ChangeStreamRecord[] = []
    const results = this.#results
    const { rows } = this.#caches
    let goodRecords = 0
    let error: unknown
    try {
      const add = (reader: WireReader, start: number, end: number): void => {
        rows.record = records.length
        this.#add(reader, start, end, records)
        goodRecords = records.length
      }
      for (const message of messages) results.take(message, add)
    } catch (thrown) {
      error = thrown
    }
    // Also behind an error: the rows of what came before it are still to be filled in.
    const failure = rows.flush()
    if (failure !== undefined && (error === undefined || failure.record < goodRecords)) {
      error = failure.error
      goodRecords = failure.record
    }
    if (error !== undefined) {
      this.#failure = this.#malformed(error)
      if (goodRecords === 0) throw this.#failure
      // What came before the malformed record is good, and is handed out first.
      return { records: records.slice(0, goodRecords) }
    }
    // A token behind a cut value is not used: resuming there would need the cut value kept as well.
    const resumeToken = results.isCut ? undefined : results.resumeToken
    return resumeToken === undefined ? { records } : { records, resumeToken }
  }

  /** Throws a SourceError that names partition and field if a record was malformed. */
  assertWell(): void {
    if (this.#failure !== undefined) throw this.#failure
  }

  /** To be called when the query has ended well: a value whose rest never came is read again, not passed over. */
  end(): void {
    if (!this.#results.isCut) return
    throw new SourceError('spannerChangeStream: the query ended in the middle of a change record', {
      partition: this.#token,
      retryable: true,
    })
  }

  #add(reader: WireReader, start: number, end: number, records: ChangeStreamRecord[]): void {
    if (this.#form === 'struct') this.#structDecoder().decode(reader, start, end, records)
    else if (this.#form === 'json') records.push(decodeJsonRecord(textOf(reader, start, end), this.#token))
    else records.push(this.#decodeProto(textOf(reader, start, end)))
  }

  #structDecoder(): StructRecordDecoder {
    if (this.#structs !== undefined) return this.#structs
    const { metadata } = this.#results
    if (metadata === undefined) throw new MalformedRecord('the metadata of the result', 'is missing')
    const { layouts } = this.#caches
    const layout: RecordLayout =
      layouts.get(metadata, 0, metadata.length) ?? layouts.set(metadata, 0, metadata.length, recordLayout(metadata))
    this.#structs = new StructRecordDecoder(this.#token, layout, this.#caches)
    return this.#structs
  }

  /** Messages and bytes travel as base64. */
  #decodeProto(text: string): ChangeStreamRecord {
    if (text.length % 4 !== 0 || !BASE64.test(text)) throw new MalformedRecord('ChangeRecord', 'is not base64')
    return decodeProtoRecord(Buffer.from(text, 'base64'), this.#token)
  }

  #malformed(error: unknown): SourceError {
    const problem =
      error instanceof MalformedRecord
        ? error.message
        : error instanceof WireFormatError
          ? `the message is not valid (${error.message})`
          : 'the message cannot be decoded'
    return new SourceError(`spannerChangeStream: a change record is not of the documented form: ${problem}`, {
      code: 'SOURCE_MALFORMED',
      partition: this.#token,
      cause: error,
      hint: 'Is there a newer version of Millrace? If not, report this with the name of the field: nothing was skipped.',
    })
  }
}

function textOf(reader: WireReader, start: number, end: number): string {
  reader.openValue(start, end)
  if (reader.kind !== VALUE_KIND.string) throw new MalformedRecord('ChangeRecord', 'is not a text')
  return reader.bytes.toString('utf8', reader.contentStart, reader.contentEnd)
}

const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/
