/** The fields of one encoded protobuf message, by their numbers; what is absent has proto3's default. */
import { WireFormatError, WireReader } from './wire-reader.ts'

interface Field {
  readonly number: number
  readonly wireType: number
  /** Where it lies: the contents of a field with a length, the bytes of a number. */
  readonly start: number
  readonly end: number
}

/** Of a field that comes several times the last one counts, except for `all`. */
export class ProtoFields {
  readonly #message: Buffer
  readonly #fields: Field[] = []

  constructor(message: Buffer) {
    this.#message = message
    const reader = new WireReader(message)
    const end = message.length
    while (reader.at < end) {
      const tag = reader.varint(end)
      const wireType = tag & 7
      const stop = wireType === LENGTH_DELIMITED ? reader.lengthEnd(end) : 0
      const start = reader.at
      if (wireType === LENGTH_DELIMITED) reader.at = stop
      else reader.skip(tag, end)
      this.#fields.push({ number: Math.floor(tag / 8), wireType, start, end: reader.at })
    }
  }

  /** The contents of a message, text or bytes field. */
  bytes(number: number): Buffer | undefined {
    const field = this.#last(number, LENGTH_DELIMITED)
    return field && this.#message.subarray(field.start, field.end)
  }

  /** The contents of a repeated field. */
  all(number: number): Buffer[] {
    const found = this.#fields.filter((field) => field.number === number && field.wireType === LENGTH_DELIMITED)
    return found.map(({ start, end }) => this.#message.subarray(start, end))
  }

  text(number: number): string {
    return this.bytes(number)?.toString('utf8') ?? ''
  }

  number(number: number): number {
    const value = this.signed(number)
    if (value > BigInt(Number.MAX_SAFE_INTEGER) || value < 0n) throw new WireFormatError('a number is out of range')
    return Number(value)
  }

  signed(number: number): bigint {
    const field = this.#last(number, VARINT)
    if (field === undefined) return 0n
    let value = 0n
    for (let at = field.end - 1; at >= field.start; at--) value = (value << 7n) | BigInt(this.#message[at]! & 0x7f)
    return BigInt.asIntN(64, value)
  }

  double(number: number): number {
    const field = this.#last(number, FIXED64)
    return field === undefined ? 0 : this.#message.readDoubleLE(field.start)
  }

  /** Which one of a oneof is set: the last of these fields, given with their wire types. Undefined if none is. */
  lastOf(wireTypes: Readonly<Record<number, number>>): number | undefined {
    return this.#fields.findLast(({ number, wireType }) => wireTypes[number] === wireType)?.number
  }

  #last(number: number, wireType: number): Field | undefined {
    return this.#fields.findLast((field) => field.number === number && field.wireType === wireType)
  }
}

export const VARINT = 0
export const FIXED64 = 1
export const LENGTH_DELIMITED = 2
