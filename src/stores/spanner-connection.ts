/** One Spanner database as the store calls it: sessions, reads and commits, each with a deadline, without hidden retries. */
import type { protos, v1 } from '@google-cloud/spanner'
import { credentials } from '@grpc/grpc-js'
import { abortable } from '../core/signals.ts'
import { sessionFailure } from './spanner-store-errors.ts'

export interface SpannerConnectionOptions {
  readonly database: string
  /** `host:port`; then no credentials are used. */
  readonly emulatorHost: string | undefined
}

/** A value as a column holds it: whole numbers of INT64 are text on the wire. */
export type Cell = string | number | null

export interface RowRead {
  readonly table: string
  readonly columns: readonly string[]
  /** Whole keys, or the beginning of keys: everything below it. */
  readonly keys: readonly (readonly Cell[])[] | { readonly prefix: readonly Cell[] }
  readonly limit?: number
}

export interface RowQuery {
  readonly sql: string
  /** `p1`, `p2`, ... of the statement; all are strings. */
  readonly parameters?: readonly string[]
}

export interface RowWrite {
  readonly kind: 'insert' | 'update'
  readonly table: string
  readonly columns: readonly string[]
  readonly rows: readonly (readonly Cell[])[]
}

export interface ReadResult {
  readonly rows: readonly (readonly Cell[])[]
  /** Of the transaction that this read has begun. */
  readonly transactionId: Uint8Array | undefined
}

type Selector = protos.google.spanner.v1.ITransactionSelector
type Message = protos.google.spanner.v1.IPartialResultSet
type Value = protos.google.protobuf.IValue
type Stream = AsyncIterable<unknown> & { cancel(): void; on(event: 'error', listener: () => void): unknown }

/**
 * A session of the server. `hasAnswered` tells a session that the server forgot since (after an hour without use) from
 * a table that is not there: both are NOT_FOUND.
 */
export interface SpannerSession {
  readonly name: Promise<string>
  hasAnswered: boolean
}

/**
 * The calls of the v1 client, not of the high-level one: that one keeps a pool of multiplexed sessions, which emulators
 * do not know, takes its emulator from the environment only, and retries for as long as it likes.
 */
export class SpannerConnection {
  readonly #options: SpannerConnectionOptions
  #client: Promise<v1.SpannerClient> | undefined
  #admin: Promise<v1.DatabaseAdminClient> | undefined

  constructor(options: SpannerConnectionOptions) {
    this.#options = options
  }

  /** Multiplexed sessions take any number of reads at a time; an emulator answers with an ordinary one, and does too. */
  openSession(timeoutMs: number, multiplexed = false): SpannerSession {
    const name = this.#createSession(timeoutMs, multiplexed)
    // Whoever uses the session hears of it.
    name.catch(() => undefined)
    return { name, hasAnswered: false }
  }

  async read(session: SpannerSession, read: RowRead, transaction: Selector, timeoutMs: number): Promise<ReadResult> {
    const { table, columns, keys, limit = 0 } = read
    const request = { table, columns: [...columns], keySet: keySet(keys), limit }
    return this.#collect(session, timeoutMs, (client, name) =>
      client.streamingRead(
        { ...request, session: name, transaction, ...TAGGED },
        streamOptions(this.#options, timeoutMs),
      ),
    )
  }

  async query(session: SpannerSession, query: RowQuery, transaction: Selector, timeoutMs: number): Promise<ReadResult> {
    const { sql, parameters = [] } = query
    const named = parameters.map((value, index) => [`p${index + 1}`, value] as const)
    const params = { fields: Object.fromEntries(named.map(([name, value]) => [name, { stringValue: value }])) }
    const paramTypes = Object.fromEntries(named.map(([name]) => [name, { code: 'STRING' as const }]))
    const request = { sql, params, paramTypes }
    return this.#collect(session, timeoutMs, (client, name) =>
      client.executeStreamingSql(
        { ...request, session: name, transaction, ...TAGGED },
        streamOptions(this.#options, timeoutMs),
      ),
    )
  }

  /** Safe to send again with the same transaction: Spanner applies it once. */
  async commit(
    session: SpannerSession,
    transactionId: Uint8Array,
    writes: readonly RowWrite[],
    timeoutMs: number,
  ): Promise<void> {
    const mutations = writes.map(({ kind, table, columns, rows }) => ({
      [kind]: { table, columns: [...columns], values: rows.map((row) => ({ values: row.map(wireValue) })) },
    }))
    await this.#unary(timeoutMs, async (client, options) =>
      client.commit({ session: await session.name, transactionId, mutations, ...TAGGED }, options),
    )
  }

  async rollback(session: SpannerSession, transactionId: Uint8Array, timeoutMs: number): Promise<void> {
    await this.#unary(timeoutMs, async (client, options) =>
      client.rollback({ session: await session.name, transactionId }, options),
    )
  }

  /** Ends what runs in the session too, so that no lock stays behind. Never fails: the server removes it in the end. */
  async deleteSession(session: SpannerSession, timeoutMs: number): Promise<void> {
    try {
      await this.#unary(timeoutMs, async (client, options) =>
        client.deleteSession({ name: await session.name }, options),
      )
    } catch {
      // It could not be reached, or was never made.
    }
  }

  /** Resolves when the schema is changed, which takes seconds to minutes on the real service. */
  async changeSchema(statements: readonly string[], timeoutMs: number): Promise<void> {
    this.#admin ??= loadClients().then(({ DatabaseAdminClient }) => new DatabaseAdminClient(this.#clientOptions()))
    const { database } = this.#options
    const change = async (admin: v1.DatabaseAdminClient): Promise<unknown> => {
      const options = { ...callOptions(this.#options, timeoutMs), retry: null }
      const [operation] = await admin.updateDatabaseDdl({ database, statements: [...statements] }, options)
      return operation.promise()
    }
    await abortable(this.#admin.then(change), AbortSignal.timeout(timeoutMs))
  }

  async close(): Promise<void> {
    const clients = [this.#client, this.#admin]
    this.#client = undefined
    this.#admin = undefined
    // One that could not be made needs no end.
    for (const client of clients) await client?.then((made) => made.close()).catch(() => undefined)
  }

  async #createSession(timeoutMs: number, multiplexed: boolean): Promise<string> {
    const { database } = this.#options
    try {
      const [session] = await this.#unary(timeoutMs, (client, options) =>
        client.createSession({ database, session: { multiplexed } }, options),
      )
      return session.name!
    } catch (error) {
      throw sessionFailure(error, this.#options)
    }
  }

  /** All rows of a stream of results. A value may be cut over messages: text only, so that its parts are joined as text. */
  async #collect(
    session: SpannerSession,
    timeoutMs: number,
    start: (client: v1.SpannerClient, name: string) => unknown,
  ): Promise<ReadResult> {
    const cells: Cell[] = []
    let columns = 1
    let transactionId: Uint8Array | undefined
    let isCut = false
    const collect = async (): Promise<void> => {
      const [client, name] = [await this.#connect(), await session.name]
      const stream = start(client, name) as Stream
      try {
        for await (const message of stream as AsyncIterable<Message>) {
          session.hasAnswered = true
          columns = message.metadata?.rowType?.fields?.length ?? columns
          transactionId ??= bytesOf(message.metadata?.transaction?.id)
          const [first, ...rest] = (message.values ?? []).map(cellOf)
          if (first === undefined) continue
          if (isCut) cells.push(`${cells.pop()}${first}`)
          else cells.push(first)
          cells.push(...rest)
          isCut = message.chunkedValue ?? false
        }
      } finally {
        stream.on('error', () => undefined)
        stream.cancel()
      }
    }
    await abortable(collect(), AbortSignal.timeout(timeoutMs))
    const rows: Cell[][] = []
    for (let at = 0; at < cells.length; at += columns) rows.push(cells.slice(at, at + columns))
    return { rows, transactionId }
  }

  /** The deadline of the call does not cover the search for credentials, so a timer does. */
  #unary<R>(
    timeoutMs: number,
    call: (client: v1.SpannerClient, options: CallOptions & { readonly retry: null }) => Promise<R>,
  ): Promise<R> {
    const options = { ...callOptions(this.#options, timeoutMs), retry: null }
    const made = this.#connect().then((client) => call(client, options))
    return abortable(made, AbortSignal.timeout(timeoutMs))
  }

  #connect(): Promise<v1.SpannerClient> {
    this.#client ??= loadClients().then(({ SpannerClient }) => new SpannerClient(this.#clientOptions()))
    return this.#client
  }

  /** An emulator is named here rather than in the environment, which belongs to the whole process. */
  #clientOptions(): ClientOptions {
    const { database, emulatorHost } = this.#options
    const keepAlive = { 'grpc.keepalive_time_ms': 30_000, 'grpc.keepalive_timeout_ms': 10_000 }
    if (emulatorHost === undefined) return keepAlive
    const colon = emulatorHost.lastIndexOf(':')
    return {
      ...keepAlive,
      apiEndpoint: emulatorHost.slice(0, colon),
      servicePath: emulatorHost.slice(0, colon),
      port: Number(emulatorHost.slice(colon + 1)),
      sslCreds: credentials.createInsecure(),
      projectId: database.split('/')[1] ?? 'unknown',
      // Without it the client looks for credentials on the network, for nothing.
      clientOptions: { universeDomain: 'googleapis.com' },
    }
  }
}

type ClientOptions = NonNullable<ConstructorParameters<typeof v1.SpannerClient>[0]>
interface CallOptions {
  readonly timeout: number
  readonly otherArgs: { readonly headers: Readonly<Record<string, string>> }
}

/** Loading the client takes half a second, so commands that do not use it do not pay for it. */
async function loadClients(): Promise<typeof v1> {
  return (await import('@google-cloud/spanner')).v1
}

function callOptions({ database }: SpannerConnectionOptions, timeout: number): CallOptions {
  return { timeout, otherArgs: { headers: { 'google-cloud-resource-prefix': database } } }
}

/** The client would otherwise retry what comes before the first message for seconds, unseen. */
function streamOptions(options: SpannerConnectionOptions, timeoutMs: number) {
  return { ...callOptions(options, timeoutMs), retryRequestOptions: { noResponseRetries: 0, retries: 0 } }
}

function keySet(keys: RowRead['keys']): protos.google.spanner.v1.IKeySet {
  if (!('prefix' in keys)) return { keys: keys.map((key) => ({ values: key.map(wireValue) })) }
  const prefix = { values: keys.prefix.map(wireValue) }
  return { ranges: [{ startClosed: prefix, endClosed: prefix }] }
}

function wireValue(cell: Cell): Value {
  if (cell === null) return { nullValue: 'NULL_VALUE' }
  return typeof cell === 'number' ? { numberValue: cell } : { stringValue: cell }
}

function cellOf(value: Value): Cell {
  return value.stringValue ?? value.numberValue ?? (value.boolValue == null ? null : String(value.boolValue))
}

function bytesOf(id: Uint8Array | string | null | undefined): Uint8Array | undefined {
  if (id === null || id === undefined || id.length === 0) return undefined
  return typeof id === 'string' ? Buffer.from(id, 'base64') : id
}

/** Who asks, for Spanner's own statistics. */
const TAGGED = { requestOptions: { requestTag: 'millrace-store', transactionTag: 'millrace-store' } }
