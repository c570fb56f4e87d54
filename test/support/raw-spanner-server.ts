/** Spanner's gRPC service on a port of this machine, answering with whatever bytes a test says. */
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { protos } from '@google-cloud/spanner'
import {
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
} from '@grpc/grpc-js'
import { SERVICE } from '../../src/simulator/spanner-messages.ts'
import { SpannerChangeStreamClient } from '../../src/sources/spanner-change-stream/connection/spanner-client.ts'

export type RawCall = ServerWritableStream<protos.google.spanner.v1.ExecuteSqlRequest, Buffer>

export interface RawServerOptions {
  /** @default as many as grpc-js allows */
  readonly maxStreams?: number
  /** Answers a streaming query; it has to end the call, or to leave it open. */
  readonly answer: (call: RawCall, token: string | null) => void
}

export class RawSpannerServer implements AsyncDisposable {
  readonly host: string
  /** Streaming calls that were begun and neither ended nor cancelled. */
  open = 0
  /** Connections that were ever made. */
  connections = 0
  readonly #close: () => Promise<void>

  private constructor(host: string, close: () => Promise<void>) {
    this.host = host
    this.#close = close
  }

  static async start({ maxStreams, answer }: RawServerOptions): Promise<RawSpannerServer> {
    const grpc = new Server(maxStreams === undefined ? {} : { 'grpc.max_concurrent_streams': maxStreams })
    const sockets = new Set<Socket>()
    const injector = grpc.createConnectionInjector(ServerCredentials.createInsecure())
    const listener = createServer({ noDelay: true }, (socket) => {
      server.connections++
      sockets.add(socket)
      socket.on('error', () => undefined)
      socket.on('close', () => sockets.delete(socket))
      injector.injectConnection(socket)
    })
    await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
    const server = new RawSpannerServer(`127.0.0.1:${(listener.address() as AddressInfo).port}`, async () => {
      const closed = new Promise((resolve) => listener.close(resolve))
      for (const socket of sockets) socket.destroy()
      grpc.forceShutdown()
      await closed
    })
    const session = { name: `${DATABASE}/sessions/s` }
    grpc.addService(SERVICE, {
      CreateSession: (_: ServerUnaryCall<unknown, unknown>, reply: sendUnaryData<unknown>) => reply(null, session),
      DeleteSession: (_: ServerUnaryCall<unknown, unknown>, reply: sendUnaryData<unknown>) => reply(null, {}),
      ExecuteStreamingSql: (call: RawCall) => {
        server.open++
        call.once('close', () => server.open--)
        call.on('error', () => undefined)
        const { sql, params } = call.request
        const schema = SCHEMA.find(([table]) => sql.includes(table))
        if (schema === undefined) return answer(call, params?.fields?.token?.stringValue ?? null)
        call.write(table(...schema[1]))
        call.end()
      },
    })
    return server
  }

  /** A client of the stream `S`. */
  client(): SpannerChangeStreamClient {
    return new SpannerChangeStreamClient({
      database: DATABASE,
      stream: 'S',
      emulatorHost: this.host,
      databaseRole: undefined,
      priority: undefined,
      requestTag: undefined,
      directedRead: undefined,
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#close()
  }
}

/** A result of one row. */
function table(...values: readonly string[]): Buffer {
  return protos.google.spanner.v1.PartialResultSet.encode({
    metadata: { rowType: { fields: values.map((_, place) => ({ name: `c${place}`, type: {} })) } },
    values: values.map((stringValue) => ({ stringValue })),
  }).finish() as Buffer
}

export const DATABASE = 'projects/p/instances/i/databases/d'
const SCHEMA: readonly (readonly [table: string, row: readonly string[]])[] = [
  ['database_options', ['GOOGLE_STANDARD_SQL']],
  ['change_streams', ['S', 'true']],
  ['change_stream_tables', ['S', 'T']],
  ['change_stream_options', ['S', 'retention_period', '7d']],
]
