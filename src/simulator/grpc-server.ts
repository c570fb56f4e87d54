/** The second door of the simulator: Spanner's own gRPC service on a port of this machine. */
import { type AddressInfo, createServer, type Server as NetServer, type Socket } from 'node:net'
import { Server, ServerCredentials } from '@grpc/grpc-js'
import type { SimulatedStream } from './simulated-stream.ts'
import { SERVICE } from './spanner-messages.ts'
import { SpannerService } from './spanner-service.ts'

export interface ServeStreamOptions {
  /** @default a free port */
  readonly port?: number
  /** @default 'projects/simulator/instances/simulator/databases/shop' */
  readonly database?: string
  /**
   * How often a row is sent in pieces over several messages.
   * @default 0.1
   */
  readonly chunkChance?: number
}

export interface ServedStream {
  /** `127.0.0.1:port` */
  readonly host: string
  readonly database: string
  readonly stream: string
  /** Reads of the stream that have begun and not ended at this server. */
  readonly openQueries: number
  /** Destroys the sockets of all clients; the server goes on. */
  killConnections(): void
  /** Ends all calls and gives up the port. Safe to call twice. */
  close(): Promise<void>
}

export async function startGrpcServer(
  stream: SimulatedStream,
  {
    port = 0,
    database = 'projects/simulator/instances/simulator/databases/shop',
    chunkChance = 0.1,
  }: ServeStreamOptions,
): Promise<ServedStream> {
  const service = new SpannerService(stream, database, chunkChance)
  const grpc = new Server({ 'grpc.max_send_message_length': -1, 'grpc.max_receive_message_length': -1 })
  grpc.addService(SERVICE, service.handlers)
  // Own sockets, so that they can be cut: grpc-js keeps those that it opens to itself.
  const injector = grpc.createConnectionInjector(ServerCredentials.createInsecure())
  const sockets = new Set<Socket>()
  const listener = createServer({ noDelay: true }, (socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.on('close', () => sockets.delete(socket))
    injector.injectConnection(socket)
  })
  await listen(listener, port)
  const killConnections = (): void => {
    for (const socket of [...sockets]) socket.destroy()
  }
  const forget = stream.onKill(killConnections)
  const close = async (): Promise<void> => {
    forget()
    service.close()
    const closed = new Promise<void>((resolve) => listener.close(() => resolve()))
    killConnections()
    grpc.forceShutdown()
    await closed
  }
  let closing: Promise<void> | undefined
  return {
    host: `127.0.0.1:${(listener.address() as AddressInfo).port}`,
    database,
    stream: stream.name,
    get openQueries() {
      return service.openQueries
    },
    killConnections,
    close: () => {
      closing ??= close()
      return closing
    },
  }
}

function listen(listener: NetServer, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    listener.once('error', reject)
    listener.listen(port, '127.0.0.1', () => {
      listener.removeListener('error', reject)
      resolve()
    })
  })
}
