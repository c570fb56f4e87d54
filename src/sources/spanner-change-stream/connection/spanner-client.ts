/** Reads a change stream of Spanner over gRPC: own sessions, own cancel, resume and pull. */
import type { protos } from '@google-cloud/spanner'
import { ConfigError, SourceError } from '../../../core/errors.ts'
import { abortable } from '../../../core/signals.ts'
import type { ChangeStreamClient, PartitionQuery, QueryPart, StreamDescription } from '../../../model/change-stream.ts'
import { RecordCaches } from '../decode/record-caches.ts'
import { RecordStream } from '../decode/record-stream.ts'
import { ResultRows } from '../decode/result-rows.ts'
import type { GrpcChannels, OpenStream } from './grpc-channels.ts'
import { grpcCode, openError, readError } from './grpc-errors.ts'
import { readStatement, type Statement } from './read-statement.ts'
import { openChannels, type SpannerCodec, spannerCodec } from './spanner-connection.ts'
import { describeStream } from './stream-description.ts'
import { type CallListener, messagesOf } from './streaming-call.ts'

export interface SpannerClientOptions {
  readonly database: string
  readonly stream: string
  /** `host:port` of an emulator or of the simulator; then no credentials are used. */
  readonly emulatorHost: string | undefined
  readonly databaseRole: string | undefined
  readonly priority: 'low' | 'medium' | 'high' | undefined
  readonly requestTag: string | undefined
  readonly directedRead: protos.google.spanner.v1.IDirectedReadOptions | undefined
}

/** All partitions share one session: it carries any number of queries. */
interface Session {
  readonly name: Promise<string>
  /** Whether the server has answered in it: only then can a NOT_FOUND mean that the server forgot it since. */
  hasAnswered: boolean
}

export class SpannerChangeStreamClient implements ChangeStreamClient {
  readonly #options: SpannerClientOptions
  readonly #caches = new RecordCaches()
  #channels: Promise<GrpcChannels> | undefined
  #session: Session | undefined
  #description: StreamDescription | undefined

  constructor(options: SpannerClientOptions) {
    this.#options = options
  }

  async describe(signal: AbortSignal): Promise<StreamDescription> {
    const { database, stream, emulatorHost } = this.#options
    try {
      this.#description = await describeStream(database, stream, (sql) => this.select(sql, signal))
      return this.#description
    } catch (error) {
      if (signal.aborted) throw signal.reason
      if (error instanceof ConfigError) throw error
      throw openError(error, database, emulatorHost ?? 'spanner.googleapis.com')
    }
  }

  async *query(query: PartitionQuery, signal: AbortSignal): AsyncGenerator<QueryPart, void, undefined> {
    const token = query.token ?? ''
    const { dialect, mode } = this.#description ?? (await this.describe(signal))
    const statement = readStatement(this.#options.stream, dialect, mode, query)
    const records = new RecordStream(dialect, mode, token, this.#caches)
    const session = this.#openSession()
    try {
      for await (const messages of this.#stream(session, statement, signal, queryTimeoutMs())) {
        yield records.take(messages)
        records.assertWell()
      }
      records.end()
    } catch (error) {
      if (signal.aborted) throw signal.reason
      if (error instanceof SourceError) throw error
      throw this.#isForgotten(session, error) ? readError({ code: 14, cause: error }, token) : readError(error, token)
    }
  }

  /** Runs a small statement and returns its rows, all values as texts. Throws the server's own error. */
  async select(sql: string, signal: AbortSignal): Promise<(string | undefined)[][]> {
    const rows = new ResultRows()
    for await (const messages of this.#stream(this.#openSession(), { sql }, signal, SELECT_TIMEOUT_MS)) {
      for (const message of messages) rows.take(message)
    }
    return rows.rows()
  }

  async close(): Promise<void> {
    const channels = this.#channels
    const session = this.#session
    this.#channels = undefined
    this.#session = undefined
    if (channels === undefined) return
    try {
      const open = await channels
      const name = await session?.name.catch(() => undefined)
      if (name !== undefined) {
        const { deleteSession } = await spannerCodec()
        await open
          .unary('DeleteSession', deleteSession(name), 2_000, `name=${encodeURIComponent(name)}`)
          .catch(() => undefined)
      }
      open.close()
    } catch {
      // Nothing was opened, so there is nothing to close.
    }
  }

  /** All partitions share the session, so all find it gone: each tries again, and the first makes a new one. */
  #isForgotten(session: Session, error: unknown): boolean {
    if (grpcCode(error) !== 'NOT_FOUND' || !session.hasAnswered) return false
    if (this.#session === session) this.#session = undefined
    return true
  }

  /** One streaming call. Ending the iteration cancels it at the server. */
  async *#stream(
    session: Session,
    statement: Statement,
    signal: AbortSignal,
    timeoutMs: number,
  ): AsyncGenerator<Buffer[], void, undefined> {
    const channels = await abortable(this.#connect(), signal)
    const name = await abortable(session.name, signal)
    const { executeSql } = await spannerCodec()
    const request = executeSql(name, statement, this.#options)
    const routing = `session=${encodeURIComponent(name)}`
    let stream: OpenStream | undefined
    const open = (listener: CallListener): OpenStream => {
      stream = channels.stream('ExecuteStreamingSql', request, timeoutMs, routing, listener)
      return stream
    }
    try {
      for await (const messages of messagesOf(open, signal)) {
        session.hasAnswered = true
        yield messages
      }
    } finally {
      stream?.end()
    }
  }

  #connect(): Promise<GrpcChannels> {
    if (this.#channels === undefined) {
      const opening = openChannels(this.#options)
      this.#channels = opening
      // Credentials may be there at the next try.
      opening.catch(() => {
        if (this.#channels === opening) this.#channels = undefined
      })
    }
    return this.#channels
  }

  #openSession(): Session {
    if (this.#session !== undefined) return this.#session
    const session: Session = { name: this.#createSession(), hasAnswered: false }
    this.#session = session
    session.name.catch(() => {
      if (this.#session === session) this.#session = undefined
    })
    return session
  }

  async #createSession(): Promise<string> {
    const { database, databaseRole } = this.#options
    const channels = await this.#connect()
    const { createSession, sessionName }: SpannerCodec = await spannerCodec()
    const request = createSession(database, databaseRole)
    return sessionName(
      await channels.unary('CreateSession', request, 10_000, `database=${encodeURIComponent(database)}`),
    )
  }
}

/**
 * Every query gets a deadline and is renewed when it comes: a server that lost the query must not hold it for ever.
 * Spread out, so that a thousand partitions are not renewed in the same moment.
 */
function queryTimeoutMs(): number {
  return MIN_QUERY_MS + Math.random() * (MAX_QUERY_MS - MIN_QUERY_MS)
}

const SELECT_TIMEOUT_MS = 20_000
const MIN_QUERY_MS = 2_700_000
const MAX_QUERY_MS = 3_500_000
