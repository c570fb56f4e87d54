/** Opens the gRPC door of a simulated stream. */
import type { ServedStream, ServeStreamOptions } from './grpc-server.ts'
import type { SimulatedStream } from './simulated-stream.ts'

/**
 * Serves a stream as Spanner does, on 127.0.0.1: the real client connects to `host` without credentials. Large values
 * come in pieces now and then, messages carry resume tokens, cancels and slow readers are honoured. Needs real time:
 * the stream must run on the machine's clock.
 * @example
 * const served = await serveStream(stream)
 * spannerChangeStream({ database: served.database, stream: served.stream, emulatorHost: served.host })
 */
export async function serveStream(stream: SimulatedStream, options: ServeStreamOptions = {}): Promise<ServedStream> {
  // Loading the protos takes half a second, which programs that stay in process should not pay for.
  const { startGrpcServer } = await import('./grpc-server.ts')
  return startGrpcServer(stream, options)
}
