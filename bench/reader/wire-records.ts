/** Change records as a server would have encoded them: made once, then only their times and ids are written anew. */
import { protos } from '@google-cloud/spanner'
import type { DataChangeRecord } from '../../src/model/data-change-record.ts'
import { rowEncoding } from '../../src/simulator/row-encoding.ts'
import { metadataOf, toProto } from '../../src/simulator/spanner-messages.ts'
import type { WireValue } from '../../src/simulator/wire-value.ts'

const encoding = rowEncoding('googlesql', 'immutable')
const { PartialResultSet } = protos.google.spanner.v1

/** As they stand in the template, to be found in its bytes. No zeros at the end: those are not sent. */
const TIME = '2026-11-18T11:11:11.111111Z'
const TRANSACTION = 'MTIzNDU2Nzg5MDAwMDAwMDAwMDAw'
/** Microseconds of a day, from the start of the template's day. */
const DIGITS = 12

/** One gRPC frame with `rows` records of about 1 KB; `stamp` gives each a time and an id of its own. */
export class RecordFrame {
  readonly #frame: Buffer
  readonly #times: number[] = []
  readonly #ids: number[] = []

  constructor(rows: number) {
    const record = encoding.encode({ kind: 'data', record: sampleRecord(), bytes: 0 })
    this.#frame = frameOf({
      values: Array.from({ length: rows }, () => toProto(record)),
      resumeToken: Buffer.from('r'),
    })
    for (let at = this.#frame.indexOf(TIME); at !== -1; at = this.#frame.indexOf(TIME, at + 1)) this.#times.push(at)
    for (let at = this.#frame.indexOf(TRANSACTION); at !== -1; at = this.#frame.indexOf(TRANSACTION, at + 1)) {
      this.#ids.push(at)
    }
    if (this.#times.length !== rows || this.#ids.length !== rows) throw new Error('the template has no place to stamp')
  }

  /** A copy whose records are numbered from `number`, one microsecond apart. */
  stamp(number: number): Buffer {
    const frame = Buffer.from(this.#frame)
    for (const [row, at] of this.#times.entries()) {
      const micros = number + row
      writeDigits(frame, at + 11, Math.floor(micros / 3.6e9), 2)
      writeDigits(frame, at + 14, Math.floor(micros / 6e7) % 60, 2)
      writeDigits(frame, at + 17, Math.floor(micros / 1e6) % 60, 2)
      writeDigits(frame, at + 20, micros % 1e6, 6)
    }
    for (const [row, at] of this.#ids.entries()) {
      writeDigits(frame, at + TRANSACTION.length - DIGITS, number + row, DIGITS)
    }
    return frame
  }
}

export function heartbeatFrame(time: string): Buffer {
  return frameOf({ values: [toProto(encoding.encode({ kind: 'heartbeat', record: { timestamp: time } }))] })
}

export function childrenFrame(tokens: readonly string[], start: string): Buffer {
  const children = tokens.map((token) => ({ token, parentTokens: [] }))
  const record = { startTimestamp: start, recordSequence: '00000000', children }
  return frameOf({ values: [toProto(encoding.encode({ kind: 'children', record }))] })
}

export function metadataFrame(): Buffer {
  return frameOf({ metadata: metadataOf([{ name: 'ChangeRecord', type: encoding.type }]) })
}

/** Rows of texts, for the information schema. */
export function rowsFrame(columns: readonly string[], rows: readonly (readonly WireValue[])[]): Buffer {
  const metadata = metadataOf(columns.map((name) => ({ name, type: { code: 'STRING' } })))
  return frameOf({ metadata, values: rows.flat().map(toProto) })
}

export function frameOf(message: protos.google.spanner.v1.IPartialResultSet): Buffer {
  return frameBytes(PartialResultSet.encode(message).finish())
}

/** Five bytes before each message: not compressed, and its length. */
export function frameBytes(message: Uint8Array): Buffer {
  const frame = Buffer.alloc(5 + message.length)
  frame.writeUInt32BE(message.length, 1)
  frame.set(message, 5)
  return frame
}

function sampleRecord(): DataChangeRecord {
  const newValues = {
    CustomerId: '184467440737',
    Status: 'PAID',
    Total: '1299.50',
    UpdatedAt: '2026-11-18T09:30:00.123456Z',
    Note: 'n'.repeat(300),
  }
  const types = {
    Id: 'INT64',
    CustomerId: 'INT64',
    Status: 'STRING',
    Total: 'NUMERIC',
    UpdatedAt: 'TIMESTAMP',
    Note: 'STRING',
  }
  return {
    partitionToken: '',
    commitTimestamp: TIME,
    recordSequence: '00000000',
    serverTransactionId: TRANSACTION,
    isLastRecordInTransactionInPartition: true,
    tableName: 'Orders',
    valueCaptureType: 'OLD_AND_NEW_VALUES',
    columnTypes: Object.entries(types).map(([name, code], index) => ({
      name,
      type: { code },
      isPrimaryKey: name === 'Id',
      ordinalPosition: index + 1,
    })),
    mods: [{ keys: { Id: '90071992547409' }, newValues, oldValues: { Status: 'OPEN', Total: '0', UpdatedAt: null } }],
    modType: 'UPDATE',
    numberOfRecordsInTransaction: 1,
    numberOfPartitionsInTransaction: 1,
    transactionTag: 'checkout',
    isSystemTransaction: false,
  }
}

function writeDigits(bytes: Buffer, at: number, value: number, digits: number): void {
  let rest = value
  for (let i = digits - 1; i >= 0; i--) {
    bytes[at + i] = 0x30 + (rest % 10)
    rest = Math.floor(rest / 10)
  }
}
