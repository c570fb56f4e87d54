/** Remembers what bytes were decoded to: most of what a record says about its table has been said before. */

/**
 * A table of fixed size, found by length and a few bytes and then compared byte by byte, so a wrong value is never
 * returned. Newer entries take the place of older ones. Holds at most `SLOTS` entries of `MAX_BYTES`.
 */
export class ByteCache<T> {
  readonly #bytes: (Buffer | undefined)[] = new Array(SLOTS).fill(undefined)
  readonly #values: (T | undefined)[] = new Array(SLOTS).fill(undefined)

  get(bytes: Buffer, start: number, end: number): T | undefined {
    const slot = slotOf(bytes, start, end)
    const known = this.#bytes[slot]
    if (known === undefined || known.length !== end - start) return undefined
    return isEqual(known, bytes, start, end) ? this.#values[slot] : undefined
  }

  set(bytes: Buffer, start: number, end: number, value: T): T {
    if (end - start > MAX_BYTES) return value
    const slot = slotOf(bytes, start, end)
    // A copy: the message that the bytes belong to must not live on.
    this.#bytes[slot] = Buffer.from(bytes.subarray(start, end))
    this.#values[slot] = value
    return value
  }
}

function slotOf(bytes: Buffer, start: number, end: number): number {
  const length = end - start
  if (length === 0) return 0
  const middle = start + (length >> 1)
  const quarter = start + (length >> 2)
  const mixed = length * 31 + bytes[start]! * 17 + bytes[quarter]! * 13 + bytes[middle]! * 7 + bytes[end - 1]!
  return mixed & (SLOTS - 1)
}

function isEqual(known: Buffer, bytes: Buffer, start: number, end: number): boolean {
  const length = end - start
  if (length > 64) return bytes.compare(known, 0, length, start, end) === 0
  for (let i = 0; i < length; i++) if (known[i] !== bytes[start + i]) return false
  return true
}

const SLOTS = 256
const MAX_BYTES = 65_536
