/** Commit times from their bytes: neighbours share most of them, and often all. */
import type { CommitTimestamp } from '../../../model/commit-timestamp.ts'
import { MalformedRecord } from './malformed.ts'
import { parseTime } from './record-values.ts'
import { VALUE_KIND, type WireReader } from './wire-reader.ts'

/** For the times of one partition. A time in the same second as the one before it is made from that one. */
export class TimeDecoder {
  /** The text of the last time, to write the next one into: `2026-11-18T09:30:00.123456789Z`. */
  readonly #scratch = Buffer.alloc(TIME_LENGTH)
  #last: CommitTimestamp = ''

  decode(reader: WireReader, start: number, end: number, field: string): CommitTimestamp {
    reader.openValue(start, end)
    if (reader.kind !== VALUE_KIND.string) throw new MalformedRecord(field, 'is not a text')
    const { bytes, contentStart, contentEnd } = reader
    if (this.#last !== '' && this.#rewrite(bytes, contentStart, contentEnd)) return this.#last
    this.#last = parseTime(bytes.toString('utf8', contentStart, contentEnd), field)
    this.#scratch.write(this.#last, 'latin1')
    return this.#last
  }

  /** Takes over the fraction if everything before it is as it was: only what is new has to be checked. */
  #rewrite(bytes: Buffer, start: number, end: number): boolean {
    const scratch = this.#scratch
    const length = end - start
    if (length < SECONDS_LENGTH + 1 || length > TIME_LENGTH || bytes[end - 1] !== LETTER_Z) return false
    for (let i = 0; i < SECONDS_LENGTH; i++) if (bytes[start + i] !== scratch[i]) return false
    if (length > SECONDS_LENGTH + 1 && (bytes[start + SECONDS_LENGTH] !== POINT || length === SECONDS_LENGTH + 2)) {
      return false
    }
    const digits = length - SECONDS_LENGTH - 2
    for (let i = 0; i < digits; i++) {
      const byte = bytes[start + SECONDS_LENGTH + 1 + i]!
      if (byte < ZERO || byte > ZERO + 9) return false
    }
    let isSame = true
    for (let i = 0; i < 9; i++) {
      const byte = i < digits ? bytes[start + SECONDS_LENGTH + 1 + i]! : ZERO
      const place = SECONDS_LENGTH + 1 + i
      if (scratch[place] === byte) continue
      scratch[place] = byte
      isSame = false
    }
    if (!isSame) this.#last = scratch.toString('latin1', 0, TIME_LENGTH)
    return true
  }
}

const SECONDS_LENGTH = '2026-11-18T09:30:00'.length
const TIME_LENGTH = '2026-11-18T09:30:00.123456789Z'.length
const LETTER_Z = 0x5a
const POINT = 0x2e
const ZERO = 0x30
