/** The first door of the simulator: the reader's own interface, without sockets. */
import { ClosedError, ConfigError, SourceError } from '../core/errors.ts'
import type {
  ChangeStreamClient,
  Dialect,
  PartitionMode,
  PartitionQuery,
  QueryPart,
  StreamDescription,
} from '../model/change-stream.ts'
import type { ValueCaptureType } from '../model/data-change-record.ts'
import { PASSING_CODES } from '../model/grpc-code.ts'
import { QueryStatusError } from './grpc-status.ts'
import { encodePosition } from './query-position.ts'
import { SeededRandom } from './seeded-random.ts'
import type { ServerQuery } from './server-query.ts'

/** What the client needs of its stream. */
export interface QueryServer {
  readonly name: string
  readonly seed: number
  readonly dialect: Dialect
  readonly mode: PartitionMode
  readonly retentionMs: number
  readonly tables: readonly string[] | undefined
  readonly valueCaptureType: ValueCaptureType
  readonly resumeTokenChance: number
  openQuery(query: PartitionQuery): ServerQuery
}

/** Hands the simulator's own records over, one part per `next()`. */
export class InProcessClient implements ChangeStreamClient {
  readonly #stream: string
  readonly #server: QueryServer
  readonly #running = new Set<ServerQuery>()
  #isClosed = false
  #random: SeededRandom

  constructor(stream: string, server: QueryServer) {
    this.#stream = stream
    this.#server = server
    this.#random = new SeededRandom(`${server.seed}/client`)
  }

  async describe(signal: AbortSignal): Promise<StreamDescription> {
    signal.throwIfAborted()
    if (this.#stream === this.#server.name) {
      const { dialect, mode, retentionMs, valueCaptureType, tables } = this.#server
      return { dialect, mode, valueCaptureType, retentionMs, tables }
    }
    throw new ConfigError(`client: there is no change stream ${this.#stream}`, {
      hint: `The simulated stream is called ${this.#server.name}.`,
    })
  }

  query(query: PartitionQuery, signal: AbortSignal): AsyncIterable<QueryPart> {
    return {
      [Symbol.asyncIterator]: () =>
        new PartIterator(query, signal, () => this.#open(query), {
          hasResumeToken: () => this.#random.chance(this.#server.resumeTokenChance),
          ended: (running) => this.#running.delete(running),
        }),
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    for (const running of [...this.#running]) running.cancel()
  }

  #open(query: PartitionQuery): ServerQuery {
    if (this.#isClosed) throw new ClosedError('client: query must not be called after close')
    if (this.#stream !== this.#server.name) {
      throw sourceError(new QueryStatusError('INVALID_ARGUMENT', `There is no change stream ${this.#stream}`), query)
    }
    const running = this.#server.openQuery(query)
    this.#running.add(running)
    return running
  }
}

interface IteratorHooks {
  hasResumeToken(): boolean
  ended(running: ServerQuery): void
}

/** By hand, not a generator: `return()` must end a `next()` that waits for records. */
class PartIterator implements AsyncIterator<QueryPart, undefined> {
  readonly #query: PartitionQuery
  readonly #signal: AbortSignal
  readonly #hooks: IteratorHooks
  readonly #open: () => ServerQuery
  readonly #abort = (): void => this.#running?.cancel()
  #running: ServerQuery | undefined
  #isDone = false

  constructor(query: PartitionQuery, signal: AbortSignal, open: () => ServerQuery, hooks: IteratorHooks) {
    this.#query = query
    this.#signal = signal
    this.#open = open
    this.#hooks = hooks
  }

  async next(): Promise<IteratorResult<QueryPart, undefined>> {
    if (this.#isDone) return { done: true, value: undefined }
    try {
      this.#signal.throwIfAborted()
      if (this.#running === undefined) {
        this.#running = this.#open()
        this.#signal.addEventListener('abort', this.#abort, { once: true })
      }
      const part = await this.#running.next()
      this.#signal.throwIfAborted()
      if (part !== undefined && !this.#isDone) {
        if (!this.#hooks.hasResumeToken()) return { done: false, value: { records: part.records } }
        const resumeToken = encodePosition(part.after, this.#query)
        return { done: false, value: { records: part.records, resumeToken } }
      }
    } catch (error) {
      this.#end()
      throw error instanceof QueryStatusError ? sourceError(error, this.#query) : error
    }
    this.#end()
    return { done: true, value: undefined }
  }

  async return(): Promise<IteratorResult<QueryPart, undefined>> {
    this.#end()
    return { done: true, value: undefined }
  }

  #end(): void {
    this.#isDone = true
    this.#signal.removeEventListener('abort', this.#abort)
    if (this.#running === undefined) return
    this.#running.cancel()
    this.#hooks.ended(this.#running)
  }
}

function sourceError(cause: QueryStatusError, { token }: PartitionQuery): SourceError {
  return new SourceError(
    `The query of ${token === null ? 'the first partitions' : 'a partition'} ended: ${cause.message}`,
    {
      cause,
      status: cause.status,
      retryable: PASSING_CODES.includes(cause.status),
      ...(token === null ? {} : { partition: token }),
    },
  )
}
