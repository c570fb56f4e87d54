/** The rows of many records, parsed together: JSON.parse is much faster at a list of alike objects than at each alone. */
import type { Mod, Row } from '../../../model/data-change-record.ts'
import { MalformedRecord } from './malformed.ts'
import { MOD_FIELDS } from './record-layout.ts'
import { asRow, INEXACT, parseRow } from './record-values.ts'

/** A mod whose rows are still to come. */
export type ModDraft = { -readonly [Side in keyof Mod]: Mod[Side] }

/** The first record of which a row is malformed. */
export interface RowFailure {
  readonly record: number
  readonly error: MalformedRecord
}

type Fill = (mod: ModDraft, row: Row) => void
type Fail = (record: number, error: MalformedRecord) => void

/** Takes rows as they are met and fills them in when it is flushed, or earlier. A malformed row throws nothing. */
export class RowBatch {
  /** The number of the record whose rows are added now. */
  record = 0
  #failure: RowFailure | undefined
  /** In the order of MOD_FIELDS. */
  readonly #sides: readonly RowList[]

  constructor() {
    const fail: Fail = (record, error) => {
      if (this.#failure === undefined || record < this.#failure.record) this.#failure = { record, error }
    }
    this.#sides = MOD_FIELDS.map((field) => new RowList(field, FILLS[field], fail))
  }

  /** Adds the text of a row for a field of a mod, by its place in MOD_FIELDS. */
  add(field: number, bytes: Buffer, start: number, end: number, mod: ModDraft): void {
    this.#sides[field]!.add(bytes, start, end, mod, this.record)
  }

  /** Fills in all rows. The record that failed first since the last flush, if one did. */
  flush(): RowFailure | undefined {
    for (const side of this.#sides) side.flush()
    const failure = this.#failure
    this.#failure = undefined
    return failure
  }
}

/** The rows of one side, as the text of a JSON array. */
class RowList {
  readonly #field: string
  readonly #fill: Fill
  readonly #fail: Fail
  readonly #text = Buffer.alloc(MAX_TEXT_BYTES)
  #at = 0
  /** Of each row: where its text ends, and whose it is. */
  #ends: number[] = []
  #mods: ModDraft[] = []
  #records: number[] = []

  constructor(field: string, fill: Fill, fail: Fail) {
    this.#field = field
    this.#fill = fill
    this.#fail = fail
  }

  add(bytes: Buffer, start: number, end: number, mod: ModDraft, record: number): void {
    const length = end - start
    if (length > MAX_ROW_BYTES) {
      this.#parseAlone(bytes, start, end, mod, record)
      return
    }
    // One byte before each row: what opens the array or divides it.
    if (this.#at + length + 2 > MAX_TEXT_BYTES) this.flush()
    const text = this.#text
    text[this.#at] = this.#at === 0 ? OPEN : COMMA
    bytes.copy(text, this.#at + 1, start, end)
    this.#at += length + 1
    this.#ends.push(this.#at)
    this.#mods.push(mod)
    this.#records.push(record)
  }

  flush(): void {
    const mods = this.#mods
    if (mods.length === 0) return
    const rows = this.#parseTogether()
    for (let i = 0; i < mods.length; i++) {
      const row = rows?.[i]
      if (row === undefined) this.#parseAlone(this.#text, this.#startOf(i), this.#ends[i]!, mods[i]!, this.#records[i]!)
      else this.#fill(mods[i]!, row)
    }
    this.#at = 0
    this.#ends = []
    this.#mods = []
    this.#records = []
  }

  /** A row is missing if it has to be read alone: all of them if the text is not an array of as many elements. */
  #parseTogether(): (Row | undefined)[] | undefined {
    this.#text[this.#at] = CLOSE
    try {
      const values = JSON.parse(this.#text.toString('utf8', 0, this.#at + 1)) as unknown[]
      // Two malformed rows may make up one that is none: their number tells.
      if (values.length !== this.#mods.length) return undefined
      return values.map((value) => this.#rowOf(value))
    } catch {
      return undefined
    }
  }

  #rowOf(value: unknown): Row | undefined {
    const row = asRow(value, this.#field)
    return row === INEXACT ? undefined : row
  }

  #parseAlone(bytes: Buffer, start: number, end: number, mod: ModDraft, record: number): void {
    try {
      this.#fill(mod, parseRow(bytes.toString('utf8', start, end), this.#field))
    } catch (error) {
      if (!(error instanceof MalformedRecord)) throw error
      this.#fail(record, error)
    }
  }

  #startOf(index: number): number {
    return index === 0 ? 1 : this.#ends[index - 1]! + 1
  }
}

const FILLS: Readonly<Record<(typeof MOD_FIELDS)[number], Fill>> = {
  keys: (mod, row) => {
    mod.keys = row
  },
  new_values: (mod, row) => {
    mod.newValues = row
  },
  old_values: (mod, row) => {
    mod.oldValues = row
  },
}
const OPEN = '['.charCodeAt(0)
const COMMA = ','.charCodeAt(0)
const CLOSE = ']'.charCodeAt(0)
/** About as much as arrives together. Larger rows gain nothing from company. */
const MAX_TEXT_BYTES = 65_536
const MAX_ROW_BYTES = 8_192
