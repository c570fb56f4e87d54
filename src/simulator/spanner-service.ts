/** What the simulated server answers to each call of Spanner's service. */
import type { protos } from '@google-cloud/spanner'
import type { handleUnaryCall, ServerWritableStream, UntypedServiceImplementation } from '@grpc/grpc-js'
import type { ChangeStreamRecord } from '../model/data-change-record.ts'
import { QueryStatusError } from './grpc-status.ts'
import { hashText } from './hash-text.ts'
import { encodePosition, type QueryPosition } from './query-position.ts'
import { type RowEncoding, rowEncoding } from './row-encoding.ts'
import { SeededRandom } from './seeded-random.ts'
import type { ServerPart, ServerQuery } from './server-query.ts'
import type { SimulatedStream } from './simulated-stream.ts'
import {
  bytesOf,
  encodeMessage,
  listOf,
  metadataOf,
  parametersOf,
  type ResultSetMetadata,
  type Session,
  type SqlRequest,
  toProto,
} from './spanner-messages.ts'
import { parseStatement, type Statement } from './sql-statement.ts'
import { cutValue, type WireValue } from './wire-value.ts'

type ReadStatement = Extract<Statement, { kind: 'read' }>
type StreamingCall = ServerWritableStream<SqlRequest, Buffer>

/** Sessions, statements and reads of one database with one change stream. */
export class SpannerService {
  readonly #stream: SimulatedStream
  readonly #database: string
  readonly #chunkChance: number
  readonly #random: SeededRandom
  readonly #encoding: RowEncoding
  readonly #wholeRows = new WeakMap<ChangeStreamRecord, readonly [Buffer]>()
  readonly #sessions = new Map<string, Session>()
  readonly #queries = new Set<ServerQuery>()
  #sessionCount = 0

  constructor(stream: SimulatedStream, database: string, chunkChance: number) {
    this.#stream = stream
    this.#database = database
    this.#chunkChance = chunkChance
    this.#random = new SeededRandom(`${stream.seed}/grpc`)
    this.#encoding = rowEncoding(stream.dialect, stream.mode)
  }

  get openQueries(): number {
    return this.#queries.size
  }

  close(): void {
    for (const query of [...this.#queries]) query.cancel()
  }

  readonly handlers: UntypedServiceImplementation = {
    CreateSession: unary(({ database, session }: protos.google.spanner.v1.CreateSessionRequest) =>
      this.#createSession(database, session ?? {}),
    ),
    BatchCreateSessions: unary(
      ({ database, sessionTemplate, sessionCount }: protos.google.spanner.v1.BatchCreateSessionsRequest) => ({
        session: Array.from({ length: sessionCount }, () => this.#createSession(database, sessionTemplate ?? {})),
      }),
    ),
    GetSession: unary(({ name }: protos.google.spanner.v1.GetSessionRequest) => this.#session(name)),
    DeleteSession: unary(({ name }: protos.google.spanner.v1.DeleteSessionRequest) => {
      this.#session(name)
      this.#sessions.delete(name)
      return {}
    }),
    ExecuteSql: unary((request: SqlRequest) => {
      const statement = this.#parse(request)
      if (statement.kind === 'rows')
        return { metadata: metadataOf(statement.columns), rows: statement.rows.map(listOf) }
      throw new QueryStatusError('INVALID_ARGUMENT', 'A change stream is read by ExecuteStreamingSql only')
    }),
    ExecuteStreamingSql: (call: StreamingCall): void => {
      this.#execute(call).then(
        () => call.end(),
        (error: unknown) => call.emit('error', statusOf(error)),
      )
    },
  }

  #createSession(database: string, template: Session): Session {
    if (database !== this.#database) throw new QueryStatusError('NOT_FOUND', `Database not found: ${database}`)
    const name = `${database}/sessions/${++this.#sessionCount}`
    const seconds = Math.floor(this.#stream.clock.now() / 1000)
    const { labels = {}, creatorRole = '', multiplexed = false } = template
    const session = { name, labels, creatorRole, multiplexed, createTime: { seconds } }
    this.#sessions.set(name, session)
    return session
  }

  #session(name: string): Session {
    const session = this.#sessions.get(name)
    if (session === undefined) throw new QueryStatusError('NOT_FOUND', `Session not found: ${name}`)
    return session
  }

  #parse(request: SqlRequest): Statement {
    this.#session(request.session)
    const { name: stream, dialect, mode, retentionMs, valueCaptureType, tables, clock } = this.#stream
    const nowMs = clock.now()
    const facts = { stream, dialect, mode, retentionMs, valueCaptureType, tables, nowMs }
    return parseStatement(request.sql, parametersOf(request), facts)
  }

  async #execute(call: StreamingCall): Promise<void> {
    const statement = this.#parse(call.request)
    if (statement.kind === 'rows') {
      const { columns, rows } = statement
      call.write(encodeMessage({ metadata: metadataOf(columns), values: rows.flat().map(toProto) }))
      return
    }
    if (statement.functionName !== this.#encoding.functionName(this.#stream.name)) {
      const status = this.#stream.dialect === 'googlesql' ? 'INVALID_ARGUMENT' : 'NOT_FOUND'
      throw new QueryStatusError(status, `Table-valued function not found: ${statement.functionName}`)
    }
    assertStrongSingleUse(call.request)
    await this.#read(call, statement)
  }

  async #read(call: StreamingCall, { token, start, end, heartbeatMs }: ReadStatement): Promise<void> {
    const resumeToken = bytesOf(call.request.resumeToken)
    const query = this.#stream.openQuery({ token, start, end, heartbeatMs, ...(resumeToken && { resumeToken }) })
    const cancel = (): void => query.cancel()
    this.#queries.add(query)
    call.on('cancelled', cancel)
    if (call.cancelled) query.cancel()
    let metadata: ResultSetMetadata | undefined = metadataOf([
      { name: this.#encoding.columnName(this.#stream.name), type: this.#encoding.type },
    ])
    const send = async (values: readonly Buffer[], position: QueryPosition, chunkedValue: boolean): Promise<void> => {
      const resume = this.#random.chance(this.#stream.resumeTokenChance)
      const head = encodeMessage({
        ...(metadata && { metadata }),
        ...(chunkedValue && { chunkedValue }),
        ...(resume && { resumeToken: encodePosition(position, { token, start, end }) }),
      })
      metadata = undefined
      // Protobuf messages that follow each other are one message: their repeated fields add up.
      if (!call.write(Buffer.concat([head, ...values]))) await drained(call)
    }
    try {
      for (let part = await query.next(); part !== undefined; part = await query.next()) {
        if (!(await this.#sendPart(part, query, token ?? '', send))) return
      }
      // Also a query without rows says of which form they would be.
      if (metadata !== undefined && !call.cancelled) call.write(encodeMessage({ metadata }))
    } finally {
      call.off('cancelled', cancel)
      query.cancel()
      this.#queries.delete(query)
    }
  }

  /** One message for all records, or more where a value is sent in pieces. False if the query ended between them. */
  async #sendPart(
    { records, before, after }: ServerPart,
    query: ServerQuery,
    token: string,
    send: (values: readonly Buffer[], position: QueryPosition, chunkedValue: boolean) => Promise<void>,
  ): Promise<boolean> {
    let values: Buffer[] = []
    for (const [index, record] of records.entries()) {
      const entry = before.entry + index
      const pieces = this.#pieces(record, token, entry)
      for (let piece = index === 0 ? before.piece : 0; piece < pieces.length; piece++) {
        values.push(pieces[piece]!)
        if (piece === pieces.length - 1) continue
        await send(values, { entry, piece: piece + 1, progress: before.progress }, true)
        values = []
        if (!(await query.betweenPieces())) return false
      }
    }
    await send(values, after, false)
    return true
  }

  /** The same pieces for the same entry each time: a continuation may begin in the middle of a value. */
  #pieces(record: ChangeStreamRecord, token: string, entry: number): readonly Buffer[] {
    if (record.kind === 'heartbeat') return [this.#encode(this.#encoding.encode(record))]
    const hash = hashText(`${entry}/${token}`, this.#stream.seed)
    if (hash / 2 ** 32 >= this.#chunkChance) return this.#encodedWhole(record)
    const random = new SeededRandom(hash)
    const value = this.#encoding.encode(record)
    return cutValue(value, 2 + random.int(3), random).map((piece) => this.#encode(piece))
  }

  #encode(value: WireValue): Buffer {
    return encodeMessage({ values: [toProto(value)] })
  }

  #encodedWhole(record: ChangeStreamRecord): readonly [Buffer] {
    let encoded = this.#wholeRows.get(record)
    if (encoded === undefined) {
      encoded = [this.#encode(this.#encoding.encode(record))]
      this.#wholeRows.set(record, encoded)
    }
    return encoded
  }
}

/** Resolves when the client has taken what was written, or is gone. */
function drained(call: StreamingCall): Promise<void> {
  if (call.cancelled) return Promise.resolve()
  return new Promise((resolve) => {
    const done = (): void => {
      call.off('drain', done)
      call.off('cancelled', done)
      resolve()
    }
    call.on('drain', done)
    call.on('cancelled', done)
  })
}

function assertStrongSingleUse({ transaction }: SqlRequest): void {
  if (!transaction) return
  const readOnly = transaction.singleUse?.readOnly
  const isStale =
    readOnly?.minReadTimestamp || readOnly?.maxStaleness || readOnly?.readTimestamp || readOnly?.exactStaleness
  if (readOnly && !isStale) return
  throw new QueryStatusError(
    'INVALID_ARGUMENT',
    'A change stream is read in a single-use, read-only, strong transaction',
  )
}

function unary<Request, Response>(handle: (request: Request) => Response): handleUnaryCall<Request, Response> {
  return (call, callback) => {
    try {
      callback(null, handle(call.request))
    } catch (error) {
      callback(statusOf(error))
    }
  }
}

function statusOf(error: unknown): { code: number; details: string } {
  if (error instanceof QueryStatusError) return { code: error.code, details: error.details }
  return { code: 13, details: `The simulator failed: ${error instanceof Error ? error.message : String(error)}` }
}
