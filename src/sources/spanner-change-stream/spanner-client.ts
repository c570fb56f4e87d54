/** Reads a change stream through the v1 client of @google-cloud/spanner: own cancel, resume and pull. */

import type { protos, v1 } from '@google-cloud/spanner'
import { credentials } from '@grpc/grpc-js'
import { ConfigError, SourceError } from '../../core/errors.ts'
import { nearestName } from '../../core/options.ts'
import { abortable } from '../../core/signals.ts'
import type { ChangeStreamClient, PartitionQuery, QueryPart, StreamDescription } from '../../model/change-stream.ts'
import type { ValueCaptureType } from '../../model/data-change-record.ts'
import { decodeChangeRecord, type RecordLayout, recordLayout } from './decode-record.ts'
import { grpcCode, openError, readError } from './grpc-errors.ts'
import { type PartialResult, PartialResults, type WireValue } from './partial-results.ts'

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

interface Session {
  readonly name: Promise<string>
  /** Whether the server has answered in it: only then can a NOT_FOUND mean that the server forgot it since. */
  hasAnswered: boolean
}

type Request = protos.google.spanner.v1.IExecuteSqlRequest
type Message = PartialResult & protos.google.spanner.v1.IPartialResultSet

export class SpannerChangeStreamClient implements ChangeStreamClient {
  readonly #options: SpannerClientOptions
  #client: Promise<v1.SpannerClient> | undefined
  #session: Session | undefined
  #layout: RecordLayout | undefined

  constructor(options: SpannerClientOptions) {
    this.#options = options
  }

  async describe(signal: AbortSignal): Promise<StreamDescription> {
    const { database, stream } = this.#options
    try {
      const streams = await this.#select('SELECT change_stream_name FROM information_schema.change_streams', signal)
      const names = streams.map(([name]) => name ?? '')
      if (!names.includes(stream)) throw missingStream(database, stream, names)
      const options = await this.#select(
        'SELECT change_stream_name, option_name, option_value FROM information_schema.change_stream_options',
        signal,
      )
      const retention = options.find(([name, option]) => name === stream && option === 'retention_period')
      const capture = options.find(([name, option]) => name === stream && option === 'value_capture_type')
      return {
        dialect: 'googlesql',
        mode: 'immutable',
        valueCaptureType: (capture?.[2] ?? 'OLD_AND_NEW_VALUES') as ValueCaptureType,
        retentionMs: parseRetention(retention?.[2]),
        tables: undefined,
      }
    } catch (error) {
      if (signal.aborted) throw signal.reason
      if (error instanceof ConfigError) throw error
      throw openError(error, database, this.#options.emulatorHost ?? 'spanner.googleapis.com')
    }
  }

  async *query(query: PartitionQuery, signal: AbortSignal): AsyncGenerator<QueryPart, void, undefined> {
    const token = query.token ?? ''
    const session = this.#openSession()
    try {
      const request = readRequest(this.#options.stream, query)
      const results = new PartialResults()
      for await (const message of this.#stream(session, request, signal)) {
        const layout = this.#layoutOf(message)
        const records = results.take(message).flatMap((value) => decodeChangeRecord(value, token, layout))
        // A token behind a cut value is not used: resuming there would need the cut value kept as well.
        const resumeToken = results.isCut ? undefined : bytesOf(message.resumeToken)
        yield resumeToken === undefined ? { records } : { records, resumeToken }
      }
    } catch (error) {
      if (signal.aborted) throw signal.reason
      if (error instanceof SourceError) throw error
      throw this.#isForgotten(session, error) ? readError({ code: 14, cause: error }, token) : readError(error, token)
    }
  }

  async close(): Promise<void> {
    const client = this.#client
    const session = this.#session
    this.#client = undefined
    this.#session = undefined
    if (client === undefined) return
    try {
      const opened = await client
      const name = await session?.name.catch(() => undefined)
      if (name !== undefined)
        await opened.deleteSession({ name }, { timeout: 2_000, retry: null }).catch(() => undefined)
      await opened.close()
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

  #layoutOf({ metadata }: Message): RecordLayout {
    if (metadata) this.#layout = recordLayout(metadata.rowType?.fields?.[0]?.type)
    this.#layout ??= recordLayout(undefined)
    return this.#layout
  }

  async #select(sql: string, signal: AbortSignal): Promise<(string | undefined)[][]> {
    const results = new PartialResults()
    const values: WireValue[] = []
    let columns = 1
    for await (const message of this.#stream(this.#openSession(), { sql }, signal, SELECT_TIMEOUT_MS)) {
      columns = message.metadata?.rowType?.fields?.length ?? columns
      values.push(...results.take(message))
    }
    const rows: (string | undefined)[][] = []
    for (let i = 0; i < values.length; i += columns) {
      rows.push(values.slice(i, i + columns).map((value) => value.stringValue ?? undefined))
    }
    return rows
  }

  /** One streaming call. Ending the iteration cancels it at the server: destroying the stream alone would not. */
  async *#stream(
    session: Session,
    request: Request,
    signal: AbortSignal,
    timeout: number = QUERY_TIMEOUT_MS,
  ): AsyncGenerator<Message, void, undefined> {
    const client = await abortable(this.#connect(), signal)
    const name = await abortable(session.name, signal)
    const { priority, requestTag, directedRead, database } = this.#options
    const call = client.executeStreamingSql(
      {
        ...request,
        session: name,
        transaction: { singleUse: { readOnly: { strong: true } } },
        requestOptions: {
          ...(priority && { priority: `PRIORITY_${priority.toUpperCase()}` as 'PRIORITY_LOW' }),
          ...(requestTag && { requestTag }),
        },
        ...(directedRead && { directedReadOptions: directedRead }),
      },
      {
        // The client would otherwise retry what comes before the first message for seconds, unseen.
        retryRequestOptions: { noResponseRetries: 0, retries: 0 },
        timeout,
        otherArgs: { headers: { 'google-cloud-resource-prefix': database } },
      },
    )
    const cancel = (): void => call.cancel()
    signal.addEventListener('abort', cancel, { once: true })
    try {
      for await (const message of call) {
        session.hasAnswered = true
        yield message as Message
      }
    } finally {
      signal.removeEventListener('abort', cancel)
      // After the end a cancelled call may still report that it was cancelled: nobody is left to hear it.
      call.on('error', () => undefined)
      call.cancel()
    }
  }

  #connect(): Promise<v1.SpannerClient> {
    this.#client ??= this.#open()
    return this.#client
  }

  async #open(): Promise<v1.SpannerClient> {
    const { database, emulatorHost } = this.#options
    // Loading the client takes half a second, so commands that do not read do not pay for it.
    const { v1 } = await import('@google-cloud/spanner')
    const keepAlive = { 'grpc.keepalive_time_ms': 30_000, 'grpc.keepalive_timeout_ms': 10_000 }
    if (emulatorHost === undefined) return new v1.SpannerClient(keepAlive)
    const colon = emulatorHost.lastIndexOf(':')
    return new v1.SpannerClient({
      ...keepAlive,
      apiEndpoint: emulatorHost.slice(0, colon),
      servicePath: emulatorHost.slice(0, colon),
      port: Number(emulatorHost.slice(colon + 1)),
      sslCreds: credentials.createInsecure(),
      projectId: database.split('/')[1] ?? 'unknown',
      // Without it the client looks for credentials on the network, for nothing.
      clientOptions: { universeDomain: 'googleapis.com' },
    })
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
    const client = await this.#connect()
    const [session] = await client.createSession(
      { database, session: { multiplexed: true, ...(databaseRole && { creatorRole: databaseRole }) } },
      { timeout: 10_000, retry: null },
    )
    return session.name!
  }
}

/** Five named arguments, all typed: an untyped null would be taken for a number. */
function readRequest(stream: string, { token, start, end, heartbeatMs, resumeToken }: PartitionQuery): Request {
  return {
    sql:
      `SELECT ChangeRecord FROM READ_${stream}(start_timestamp => @start, end_timestamp => @end, ` +
      'partition_token => @token, heartbeat_milliseconds => @heartbeat, read_options => NULL)',
    params: {
      fields: {
        start: { stringValue: start },
        end: end === null ? NULL : { stringValue: end },
        token: token === null ? NULL : { stringValue: token },
        heartbeat: { stringValue: String(heartbeatMs) },
      },
    },
    paramTypes: {
      start: { code: 'TIMESTAMP' },
      end: { code: 'TIMESTAMP' },
      token: { code: 'STRING' },
      heartbeat: { code: 'INT64' },
    },
    ...(resumeToken && { resumeToken }),
  }
}

function missingStream(database: string, stream: string, names: readonly string[]): ConfigError {
  const nearest = nearestName(stream, names)
  const known = names.length === 0 ? 'It has no change streams.' : `It has ${names.join(', ')}.`
  return new ConfigError(`spannerChangeStream: there is no change stream '${stream}' in '${database}'`, {
    hint: nearest ? `Did you mean '${nearest}'?` : `${known} Create one: CREATE CHANGE STREAM ${stream} FOR ALL`,
  })
}

/** `7d`, `36h`, `90m`, `60s`; seven days if the stream does not say. */
function parseRetention(text: string | undefined): number {
  const match = /^(\d+)([dhms])$/.exec(text ?? '')
  if (!match) return 7 * UNIT_MS.d
  return Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS]
}

function bytesOf(token: Uint8Array | string | null | undefined): Uint8Array | undefined {
  if (token === null || token === undefined || token.length === 0) return undefined
  return typeof token === 'string' ? Buffer.from(token, 'base64') : token
}

const NULL = { nullValue: 'NULL_VALUE' as const }
const UNIT_MS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000 } as const
const SELECT_TIMEOUT_MS = 20_000
/** A query is renewed before the client's own limit of an hour: then it is resumed like any broken one. */
const QUERY_TIMEOUT_MS = 3_500_000
