/** The rows of a small result, all values as texts. */
import { PartialResults } from './partial-results.ts'
import { columnCount } from './record-layout.ts'
import { VALUE_KIND } from './wire-reader.ts'

export class ResultRows {
  readonly #results = new PartialResults()
  readonly #values: (string | undefined)[] = []

  take(message: Buffer): void {
    this.#results.take(message, (reader, start, end) => {
      reader.openValue(start, end)
      const { kind, contentStart, contentEnd, bytes } = reader
      if (kind === VALUE_KIND.string) this.#values.push(bytes.toString('utf8', contentStart, contentEnd))
      else if (kind === VALUE_KIND.bool) this.#values.push(contentStart === 1 ? 'true' : 'false')
      else if (kind === VALUE_KIND.number) this.#values.push(String(bytes.readDoubleLE(contentStart)))
      else this.#values.push(undefined)
    })
  }

  rows(): (string | undefined)[][] {
    const { metadata } = this.#results
    const columns = Math.max(1, metadata === undefined ? 1 : columnCount(metadata))
    const rows: (string | undefined)[][] = []
    for (let i = 0; i < this.#values.length; i += columns) rows.push(this.#values.slice(i, i + columns))
    return rows
  }
}
