/** What a decoder throws when a record is not of the documented form; the reader of results adds the partition. */

/** Names the field and what is wrong with it, never its content. */
export class MalformedRecord extends Error {
  readonly field: string

  constructor(field: string, problem: string) {
    super(`${field} ${problem}`)
    this.field = field
  }
}
