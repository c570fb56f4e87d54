/** Reads a growing file line by line, as often as asked. */
import { closeSync, existsSync, openSync, readSync } from 'node:fs'

/** Gives each complete line once. A torn last line is read again later: its writer may finish it or cut it off. */
export class OutputTail {
  readonly #path: string
  #file: number | undefined
  /** Where the first line begins that was not complete. */
  #offset = 0

  constructor(path: string) {
    this.#path = path
  }

  readLines(): string[] {
    if (this.#file === undefined) {
      if (!existsSync(this.#path)) return []
      this.#file = openSync(this.#path, 'r')
    }
    const lines: string[] = []
    for (;;) {
      const read = readSync(this.#file, BUFFER, 0, BUFFER.length, this.#offset)
      const end = BUFFER.subarray(0, read).lastIndexOf(NEWLINE) + 1
      if (end === 0) return lines
      for (const line of BUFFER.toString('utf8', 0, end - 1).split('\n')) lines.push(line)
      this.#offset += end
    }
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file)
    this.#file = undefined
  }
}

const NEWLINE = 10
const BUFFER: Buffer = Buffer.alloc(1024 * 1024)
