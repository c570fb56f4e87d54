/** Asks a server for a change stream by raw calls of the plain client: it judges the server, not Millrace's reader. */
import { type protos, v1 } from '@google-cloud/spanner'
import { credentials } from '@grpc/grpc-js'
import type { Dialect, PartitionMode } from '../../src/model/change-stream.ts'
import type { WireValue } from '../../src/simulator/wire-value.ts'
import { ValueAssembler } from '../simulator/wire-decoder.ts'

type Type = protos.google.spanner.v1.IType
type Transaction = protos.google.spanner.v1.ITransactionSelector

/** A value with its type, or without one. */
export interface Bound {
  readonly value: string | null | readonly string[]
  readonly type?: 'TIMESTAMP' | 'STRING' | 'INT64' | 'STRINGS'
}

export interface Answer {
  /** 0 if it ended well. */
  readonly code: number
  readonly fields: readonly { readonly name: string; readonly type: Type }[]
  /** First column of each row, as it came. */
  readonly values: readonly WireValue[]
  /** All columns, row by row. */
  readonly rows: readonly (readonly WireValue[])[]
}

/** What the read function is called with; what is left out is a NULL of the right type. */
export interface ReadArguments {
  readonly start?: string | Bound
  readonly end?: string | Bound
  readonly token?: string | Bound
  readonly heartbeat?: number | Bound
}

export class RawProbe {
  readonly dialect: Dialect
  readonly mode: PartitionMode
  readonly #client: v1.SpannerClient
  readonly #database: string
  #session: Promise<string> | undefined

  constructor(host: string, database: string, dialect: Dialect, mode: PartitionMode = 'immutable') {
    this.dialect = dialect
    this.mode = mode
    this.#database = database
    const [servicePath, port] = host.split(':') as [string, string]
    this.#client = new v1.SpannerClient({
      servicePath,
      apiEndpoint: servicePath,
      port: Number(port),
      sslCreds: credentials.createInsecure(),
      projectId: 'test-project',
    })
  }

  close(): Promise<void> {
    return this.#client.close()
  }

  session(): Promise<string> {
    this.#session ??= this.#client.createSession({ database: this.#database }).then(([session]) => session.name!)
    return this.#session
  }

  get client(): v1.SpannerClient {
    return this.#client
  }

  /** The usual call of the read function. */
  read(stream: string, given: ReadArguments): Promise<Answer> {
    return this.query(readCall(this.dialect, stream, this.mode), bindings(given))
  }

  async query(
    sql: string,
    bound: Readonly<Record<string, Bound>> = {},
    transaction: Transaction = STRONG,
  ): Promise<Answer> {
    const session = await this.session()
    const fields = Object.fromEntries(Object.entries(bound).map(([name, { value }]) => [name, protoValue(value)]))
    const types = Object.entries(bound).flatMap(([name, { type }]) => (type ? [[name, TYPES[type]]] : []))
    const call = this.#client.executeStreamingSql(
      { session, sql, params: { fields }, paramTypes: Object.fromEntries(types), transaction },
      { retryRequestOptions: { noResponseRetries: 0, retries: 0 }, timeout: 30_000 },
    )
    const assembler = new ValueAssembler()
    const values: WireValue[] = []
    let columns: Answer['fields'] = []
    let code = 0
    try {
      for await (const message of call as AsyncIterable<protos.google.spanner.v1.IPartialResultSet>) {
        if (message.metadata?.rowType) columns = message.metadata.rowType.fields as Answer['fields']
        values.push(...assembler.take(message))
      }
    } catch (error) {
      code = (error as { code: number }).code
    }
    return { code, fields: columns, values: column(values, columns.length, 0), rows: rowsOf(values, columns.length) }
  }

  /** By the call that returns everything at once. */
  async unary(sql: string, bound: Readonly<Record<string, Bound>>): Promise<number> {
    const session = await this.session()
    const fields = Object.fromEntries(Object.entries(bound).map(([name, { value }]) => [name, protoValue(value)]))
    const types = Object.entries(bound).flatMap(([name, { type }]) => (type ? [[name, TYPES[type]]] : []))
    const request = { session, sql, params: { fields }, paramTypes: Object.fromEntries(types), transaction: STRONG }
    try {
      await this.#client.executeSql(request, { retry: null, timeout: 30_000 })
      return 0
    } catch (error) {
      return (error as { code: number }).code
    }
  }
}

/** The name of the function that reads a stream. */
export function readFunction(dialect: Dialect, stream: string, mode: PartitionMode): string {
  if (dialect === 'googlesql') return `READ_${stream}`
  return mode === 'mutable' ? `read_proto_bytes_${stream}` : `read_json_${stream}`
}

export function readCall(dialect: Dialect, stream: string, mode: PartitionMode): string {
  const name = readFunction(dialect, stream, mode)
  return dialect === 'googlesql'
    ? `SELECT ChangeRecord FROM ${name}(start_timestamp => @p1, end_timestamp => @p2, partition_token => @p3, heartbeat_milliseconds => @p4, read_options => NULL)`
    : `SELECT * FROM "spanner"."${name}"($1, $2, $3, $4, NULL)`
}

export function bindings({ start, end, token, heartbeat = 1000 }: ReadArguments): Record<string, Bound> {
  const time = (value: string | Bound | undefined): Bound =>
    typeof value === 'object' ? value : { value: value ?? null, type: 'TIMESTAMP' }
  return {
    p1: time(start),
    p2: time(end),
    p3: typeof token === 'object' ? token : { value: token ?? null, type: 'STRING' },
    p4: typeof heartbeat === 'object' ? heartbeat : { value: String(heartbeat), type: 'INT64' },
  }
}

function protoValue(value: Bound['value']): protos.google.protobuf.IValue {
  if (value === null) return { nullValue: 'NULL_VALUE' }
  if (typeof value === 'string') return { stringValue: value }
  return { listValue: { values: value.map((text) => ({ stringValue: text })) } }
}

function column(values: readonly WireValue[], width: number, at: number): WireValue[] {
  return rowsOf(values, width).map((row) => row[at]!)
}

function rowsOf(values: readonly WireValue[], width: number): WireValue[][] {
  if (width === 0) return []
  return Array.from({ length: values.length / width }, (_, row) => values.slice(row * width, (row + 1) * width))
}

export const STRONG: Transaction = { singleUse: { readOnly: { strong: true } } }
const TYPES: Readonly<Record<NonNullable<Bound['type']>, Type>> = {
  TIMESTAMP: { code: 'TIMESTAMP' },
  STRING: { code: 'STRING' },
  INT64: { code: 'INT64' },
  STRINGS: { code: 'ARRAY', arrayElementType: { code: 'STRING' } },
}
