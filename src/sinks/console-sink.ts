/** Prints items, one line each, to the standard output or another stream. */
import type { Check } from '../core/check.ts'
import { ClosedError, describeThrown, SinkError } from '../core/errors.ts'
import { callback, knownKeys } from '../core/options.ts'
import type { Sink } from '../core/types.ts'
import { toLines, unwritable } from './file-sink.ts'

export interface ConsoleSinkOptions<T = unknown> {
  /** @default process.stdout */
  readonly stream?: NodeJS.WritableStream
  /**
   * The line for an item, without its line feed.
   * @default JSON
   */
  readonly format?: (item: T) => string
}

/**
 * Prints one line an item, in order. A write resolves when the stream has passed its lines on, so a slow reader slows
 * the pipeline down; nothing is held. A reader that went away is a SinkError that no retry can help. Items that cannot
 * be formatted are named in `failedItems`; the other items of that write are printed by then.
 * `close` leaves the stream open.
 * @example definePipeline({ source, sink: consoleSink({ format: (change: Change) => `${change.op} ${change.table}` }) })
 */
export function consoleSink<T = unknown>(options: ConsoleSinkOptions<T> = {}): Sink<T> {
  knownKeys(OWNER, options, ['stream', 'format'])
  const { stream = process.stdout, format = (item: T) => JSON.stringify(item) } = options
  return new ConsoleSink<T>(stream, callback(OWNER, 'format', format))
}

class ConsoleSink<T> implements Sink<T> {
  readonly name = OWNER
  readonly #stream: NodeJS.WritableStream
  readonly #format: (item: T) => string
  #isListening = false
  #isBroken = false
  #isClosed = false

  constructor(stream: NodeJS.WritableStream, format: (item: T) => string) {
    this.#stream = stream
    this.#format = format
  }

  async write(items: readonly T[], signal: AbortSignal): Promise<void> {
    if (this.#isClosed) throw new ClosedError(`${OWNER}: write after close`)
    signal.throwIfAborted()
    this.#listen()
    const lines = toLines(items, this.#format)
    for (const chunk of lines.chunks) await this.#print(chunk, signal)
    if (lines.failedItems.length > 0) throw unwritable(OWNER, lines, 'Check the format, or the steps before the sink.')
  }

  async close(): Promise<void> {
    this.#isClosed = true
    // A broken stream may report its error once more, later.
    if (!this.#isBroken) this.#stream.off('error', this.#ignore)
  }

  async check(): Promise<Check[]> {
    return [{ name: 'sink', status: 'ok', message: `${OWNER}: needs nothing` }]
  }

  #print(chunk: string, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const stop = (): void => reject(signal.reason)
      signal.addEventListener('abort', stop, { once: true })
      this.#stream.write(chunk, (error) => {
        signal.removeEventListener('abort', stop)
        if (error) reject(this.#failure(error))
        else resolve()
      })
    })
  }

  #failure(cause: Error): SinkError {
    this.#isBroken = true
    const code = String((cause as { code?: unknown }).code)
    if (code === 'EPIPE') {
      return new SinkError(`${OWNER}: the reader of the output is gone (EPIPE)`, {
        cause,
        hint: 'The program behind the pipe has ended, as `head` does. Progress up to here is kept.',
      })
    }
    return new SinkError(`${OWNER}: cannot write to the output: ${describeThrown(cause)}`, {
      cause,
      retryable: PASSING.has(code),
    })
  }

  /** The callback of each write tells of errors; without a listener the same error would end the process. */
  #listen(): void {
    if (this.#isListening) return
    this.#isListening = true
    this.#stream.on('error', this.#ignore)
  }

  readonly #ignore = (): void => {
    this.#isBroken = true
  }
}

const OWNER = 'consoleSink'

/** What may be gone at the next try. */
const PASSING: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT', 'EIO', 'EAGAIN'])
