/** Writes results of Spanner byte by byte, with whatever a test wants between the fields that a reader knows. */

/** A value of a result. `bytes` is written as it is: an encoded `Value` that no encoder would write. */
export type Wire = string | boolean | number | null | readonly Wire[] | { readonly bytes: Buffer }

/** Bytes to put between two fields of a message: unknown fields, or nothing. */
export type Sprinkle = () => Buffer

export const nothing: Sprinkle = () => EMPTY

export function varint(value: number): Buffer {
  const bytes: number[] = []
  let rest = value
  while (rest > 0x7f) {
    bytes.push((rest % 128) | 0x80)
    rest = Math.floor(rest / 128)
  }
  return Buffer.from([...bytes, rest])
}

export function tagged(field: number, wireType: number, ...contents: Buffer[]): Buffer {
  return Buffer.concat([varint(field * 8 + wireType), ...contents])
}

/** A field with a length: a message, a text or bytes. */
export function lengthed(field: number, contents: Buffer | string): Buffer {
  const bytes = typeof contents === 'string' ? Buffer.from(contents) : contents
  return tagged(field, 2, varint(bytes.length), bytes)
}

/** The fields of one message, with something before, between and behind them. */
export function message(fields: readonly Buffer[], sprinkle: Sprinkle = nothing): Buffer {
  return Buffer.concat([sprinkle(), ...fields.flatMap((field) => [field, sprinkle()])])
}

/** An encoded `google.protobuf.Value`. */
export function valueBytes(value: Wire, sprinkle: Sprinkle = nothing): Buffer {
  if (value === null) return message([tagged(1, 0, varint(0))], sprinkle)
  if (typeof value === 'number') return message([tagged(2, 1, doubleBytes(value))], sprinkle)
  if (typeof value === 'string') return message([lengthed(3, value)], sprinkle)
  if (typeof value === 'boolean') return message([tagged(4, 0, varint(value ? 1 : 0))], sprinkle)
  if (isRaw(value)) return value.bytes
  const elements = value.map((element) => lengthed(1, valueBytes(element, sprinkle)))
  return message([lengthed(6, message(elements, sprinkle))], sprinkle)
}

export function doubleBytes(value: number): Buffer {
  const bytes = Buffer.alloc(8)
  bytes.writeDoubleLE(value)
  return bytes
}

/** A type as the metadata describes it: of an array its element, of a struct its fields. */
export type WireType =
  | string
  | { readonly element: WireType }
  | { readonly fields: readonly (readonly [string, WireType])[] }

export function typeBytes(type: WireType, sprinkle: Sprinkle = nothing): Buffer {
  if (typeof type === 'string') return message([tagged(1, 0, varint(TYPE_CODES[type] ?? 6))], sprinkle)
  if ('element' in type)
    return message([tagged(1, 0, varint(8)), lengthed(2, typeBytes(type.element, sprinkle))], sprinkle)
  return message([tagged(1, 0, varint(9)), lengthed(3, structTypeBytes(type.fields, sprinkle))], sprinkle)
}

export function structTypeBytes(
  fields: readonly (readonly [string, WireType])[],
  sprinkle: Sprinkle = nothing,
): Buffer {
  const encoded = fields.map(([name, type]) =>
    lengthed(1, message([lengthed(1, name), lengthed(2, typeBytes(type, sprinkle))], sprinkle)),
  )
  return message(encoded, sprinkle)
}

/** An encoded `ResultSetMetadata` with one column. */
export function metadataBytes(column: WireType, sprinkle: Sprinkle = nothing): Buffer {
  return message([lengthed(1, structTypeBytes([['ChangeRecord', column]], sprinkle))], sprinkle)
}

export interface ResultMessage {
  readonly metadata?: Buffer
  readonly values?: readonly Wire[]
  readonly isChunked?: boolean
  readonly resumeToken?: Buffer
}

/** An encoded `PartialResultSet`. */
export function resultBytes(
  { metadata, values = [], isChunked = false, resumeToken }: ResultMessage,
  sprinkle: Sprinkle = nothing,
): Buffer {
  const fields = [
    ...(metadata ? [lengthed(1, metadata)] : []),
    ...values.map((value) => lengthed(2, valueBytes(value, sprinkle))),
    ...(isChunked ? [tagged(3, 0, varint(1))] : []),
    ...(resumeToken ? [lengthed(4, resumeToken)] : []),
  ]
  return message(fields, sprinkle)
}

function isRaw(value: Exclude<Wire, string | boolean | number | null>): value is { readonly bytes: Buffer } {
  return 'bytes' in value
}

const EMPTY = Buffer.alloc(0)
const TYPE_CODES: Readonly<Record<string, number>> = {
  BOOL: 1,
  INT64: 2,
  TIMESTAMP: 4,
  STRING: 6,
  BYTES: 7,
  JSON: 11,
  PROTO: 13,
}
