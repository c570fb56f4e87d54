/** Walks protobuf messages byte by byte: tags, lengths, and the values that Spanner's results are made of. */

/** The bytes do not follow the wire format: a length points outside, a number never ends, a kind does not exist. */
export class WireFormatError extends Error {}

/** What a protobuf `Value` holds; its field numbers. */
export const VALUE_KIND = { none: 0, null: 1, number: 2, string: 3, bool: 4, struct: 5, list: 6 } as const
export type ValueKind = (typeof VALUE_KIND)[keyof typeof VALUE_KIND]

/**
 * A cursor over one message. `at` is the place of the next byte. The methods that open something leave what they found
 * in fields instead of returning an object: a record has hundreds of values, and none of them is worth an allocation.
 */
export class WireReader {
  bytes: Buffer
  at = 0
  /** What `openValue` found: its kind, and where its contents lie. A bool is `contentStart` 0 or 1. */
  kind: ValueKind = VALUE_KIND.none
  contentStart = 0
  contentEnd = 0

  constructor(bytes: Buffer) {
    this.bytes = bytes
  }

  /** Numbers of up to 32 bits, and larger ones as far as a double is exact. */
  varint(end: number): number {
    const { bytes } = this
    let value = 0
    let factor = 1
    for (let size = 0; size < 10; size++) {
      if (this.at >= end) throw new WireFormatError('a number is cut off')
      const byte = bytes[this.at++]!
      value += (byte & 0x7f) * factor
      if (byte < 0x80) return value
      factor *= 128
    }
    throw new WireFormatError('a number is too long')
  }

  /** Reads a length and returns where what it measures ends; `at` is then where it begins. */
  lengthEnd(end: number): number {
    const { bytes, at } = this
    // Most lengths take one byte.
    const first = at < end ? bytes[at]! : 0x80
    let stop: number
    if (first < 0x80) {
      this.at = at + 1
      stop = at + 1 + first
    } else {
      const length = this.varint(end)
      stop = this.at + length
    }
    if (stop > end) throw new WireFormatError('a length points behind the end')
    return stop
  }

  /** Passes over a field that nobody asks for. */
  skip(tag: number, end: number, depth = 0): void {
    const wireType = tag & 7
    if (wireType === 0) this.varint(end)
    else if (wireType === 1) this.at += 8
    else if (wireType === 2) this.at = this.lengthEnd(end)
    else if (wireType === START_GROUP && depth < MAX_GROUPS) this.#skipGroup(tag + 1, end, depth)
    else if (wireType === 5) this.at += 4
    else throw new WireFormatError(`there is no wire type ${wireType}`)
    if (this.at > end) throw new WireFormatError('a field is cut off')
  }

  /** An old way to nest fields, which ends with a tag of its own. */
  #skipGroup(endTag: number, end: number, depth: number): void {
    for (let tag = this.varint(end); tag !== endTag; tag = this.varint(end)) this.skip(tag, end, depth + 1)
  }

  /** Opens a `Value`, which lies from `start` to `end`. Of several kinds in one value the last one counts. */
  openValue(start: number, end: number): void {
    const first = this.bytes[start]
    if (start < end && (first === STRING || first === LIST)) {
      this.at = start + 1
      const stop = this.lengthEnd(end)
      this.#found((first >> 3) as ValueKind, this.at, stop)
      // Nearly every value is one field and nothing behind it.
      if (stop === end) return
    }
    this.kind = VALUE_KIND.none
    this.at = start
    while (this.at < end) {
      const tag = this.varint(end)
      if (tag === LIST || tag === STRING || tag === STRUCT) {
        const stop = this.lengthEnd(end)
        this.#found((tag >> 3) as ValueKind, this.at, stop)
        this.at = stop
      } else if (tag === BOOL) this.#found(VALUE_KIND.bool, this.varint(end) === 0 ? 0 : 1, 0)
      else if (tag === NULL) this.#found(VALUE_KIND.null, this.varint(end), 0)
      else if (tag === NUMBER) {
        this.#found(VALUE_KIND.number, this.at, this.at + 8)
        this.skip(tag, end)
      } else this.skip(tag, end)
    }
  }

  /**
   * Goes to the next element of a list: true with `at` at its length, false at the end of the list. What newer servers
   * may add to a list is passed over.
   */
  hasElement(end: number): boolean {
    if (this.at < end && this.bytes[this.at] === ELEMENT) {
      this.at++
      return true
    }
    while (this.at < end) {
      const tag = this.varint(end)
      if (tag === ELEMENT) return true
      this.skip(tag, end)
    }
    return false
  }

  #found(kind: ValueKind, start: number, end: number): void {
    this.kind = kind
    this.contentStart = start
    this.contentEnd = end
  }
}

// Field number and wire type of each kind of value, and of the elements of a list.
const NULL = 0x08
const NUMBER = 0x11
const STRING = 0x1a
const BOOL = 0x20
const STRUCT = 0x2a
const LIST = 0x32
const ELEMENT = 0x0a
const START_GROUP = 3
const MAX_GROUPS = 20
