/** Takes the messages of one result apart: its metadata, its values, and where it can be resumed. */
import { joinTrees, readTree, type ValueTree, writeTree } from './value-tree.ts'
import { WireReader } from './wire-reader.ts'

/** Told of each whole value: where it lies in the reader's bytes. */
export type ValueVisitor = (reader: WireReader, start: number, end: number) => void

/** Reads encoded `PartialResultSet`s. The rest of a value that is cut at the end of a message waits for the next one. */
export class PartialResults {
  /** The encoded `ResultSetMetadata`, from the first message on. */
  metadata: Buffer | undefined
  /** Where the resume token lies in the last message; nowhere if it had none. */
  #tokenStart = 0
  #tokenEnd = 0
  #cut: ValueTree | undefined
  readonly #reader = new WireReader(Buffer.alloc(0))
  readonly #places: number[] = []

  /** True while a cut value waits: a query must not be resumed behind such a message. */
  get isCut(): boolean {
    return this.#cut !== undefined
  }

  /** The resume token of the last message, if it had one. A copy: it must not hold on to the whole message. */
  get resumeToken(): Buffer | undefined {
    if (this.#tokenStart === this.#tokenEnd) return undefined
    return Buffer.from(this.#reader.bytes.subarray(this.#tokenStart, this.#tokenEnd))
  }

  take(message: Buffer, visit: ValueVisitor): void {
    const isChunked = this.#scan(message)
    const reader = this.#reader
    const places = this.#places
    let from = 0
    let to = places.length
    if (this.#cut !== undefined && to > 0) {
      const joined = joinTrees(this.#cut, readTree(reader, places[0]!, places[1]!))
      from = 2
      this.#cut = joined
      // One value may be cut over many messages.
      if (!isChunked || to > 2) {
        this.#cut = undefined
        const bytes = writeTree(joined)
        visit(new WireReader(bytes), 0, bytes.length)
      } else to = 2
    }
    if (isChunked && to > from) {
      to -= 2
      this.#cut = readTree(reader, places[to]!, places[to + 1]!)
    }
    for (let i = from; i < to; i += 2) visit(reader, places[i]!, places[i + 1]!)
  }

  /** Notes where the values lie, two numbers each; true if the last one is cut. */
  #scan(message: Buffer): boolean {
    const reader = this.#reader
    const end = message.length
    reader.bytes = message
    reader.at = 0
    this.#places.length = 0
    this.#tokenStart = 0
    this.#tokenEnd = 0
    let isChunked = false
    while (reader.at < end) {
      const tag = reader.varint(end)
      if (tag === VALUE) {
        const stop = reader.lengthEnd(end)
        this.#places.push(reader.at, stop)
        reader.at = stop
      } else if (tag === CHUNKED) isChunked = reader.varint(end) !== 0
      else if (tag === RESUME_TOKEN || tag === METADATA) {
        const stop = reader.lengthEnd(end)
        if (tag === METADATA) this.metadata = Buffer.from(message.subarray(reader.at, stop))
        else {
          this.#tokenStart = reader.at
          this.#tokenEnd = stop
        }
        reader.at = stop
      } else reader.skip(tag, end)
    }
    return isChunked
  }
}

// Fields of PartialResultSet.
const METADATA = 0x0a
const VALUE = 0x12
const CHUNKED = 0x18
const RESUME_TOKEN = 0x22
