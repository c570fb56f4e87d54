/** gRPC connections to Spanner: calls in bytes, and more connections as more streams are open. */
import {
  type ChannelCredentials,
  type ChannelOptions,
  Client,
  InterceptingCall,
  type Interceptor,
  Metadata,
  type ServiceError,
  type StatusObject,
} from '@grpc/grpc-js'
import type { CallListener, RunningCall } from './streaming-call.ts'

export interface OpenStream extends RunningCall {
  end(): void
}

interface Connection {
  readonly client: Client
  streams: number
}

/**
 * Each connection carries at most `MAX_STREAMS` streams: beyond about a hundred a server makes further ones wait, in
 * silence. Requests and answers are bytes; who calls encodes and decodes.
 */
export class GrpcChannels {
  readonly #address: string
  readonly #credentials: ChannelCredentials
  readonly #database: string
  #connections: Connection[] = []
  #openStreams = 0
  #isClosed = false

  constructor(address: string, credentials: ChannelCredentials, database: string) {
    this.#address = address
    this.#credentials = credentials
    this.#database = database
  }

  get connectionCount(): number {
    return this.#connections.length
  }

  unary(method: string, request: Uint8Array, timeoutMs: number, routing: string): Promise<Buffer> {
    const { client } = this.#leastUsed()
    return new Promise((resolve, reject) => {
      client.makeUnaryRequest(
        `${SERVICE}${method}`,
        asBuffer,
        unchanged,
        request,
        this.#metadata(routing),
        { deadline: Date.now() + timeoutMs },
        (error: ServiceError | null, answer?: Buffer) => {
          if (error === null) resolve(answer!)
          else reject(error)
        },
      )
    })
  }

  /**
   * Opens a stream for a listener. `end` is to be called once when nothing more is wanted of it: it cancels what is left.
   * The messages are taken where they come in: grpc-js would otherwise hold up to 16 of them, however large they are.
   */
  stream(method: string, request: Uint8Array, timeoutMs: number, routing: string, listener: CallListener): OpenStream {
    const connection = this.#leastUsed()
    connection.streams++
    this.#openStreams++
    let reading: InterceptingCall | undefined
    const takeMessages: Interceptor = (options, nextCall) => {
      reading = new InterceptingCall(nextCall(options), {
        start: (metadata, _listener, next) =>
          next(metadata, {
            onReceiveMessage: (message: Buffer) => listener.message(message),
            onReceiveStatus: (status: StatusObject) => listener.ended(status.code === 0 ? undefined : errorOf(status)),
          }),
      })
      return reading
    }
    const call = connection.client.makeServerStreamRequest(
      `${SERVICE}${method}`,
      asBuffer,
      unchanged,
      request,
      this.#metadata(routing),
      { deadline: Date.now() + timeoutMs, interceptors: [takeMessages] },
    )
    let isOpen = true
    const end = (): void => {
      if (!isOpen) return
      isOpen = false
      connection.streams--
      this.#openStreams--
      call.cancel()
    }
    const maxAheadBytes = (): number => this.#maxAheadBytes
    return {
      startRead: () => reading!.startRead(),
      get maxAheadBytes() {
        return maxAheadBytes()
      },
      end,
    }
  }

  close(): void {
    this.#isClosed = true
    for (const { client } of this.#connections) client.close()
    this.#connections = []
  }

  /** What arrives together is decoded together, so a little ahead is cheaper; a thousand times a little is not. */
  get #maxAheadBytes(): number {
    return Math.min(MAX_AHEAD_BYTES, Math.max(MIN_AHEAD_BYTES, ALL_AHEAD_BYTES / this.#openStreams))
  }

  #leastUsed(): Connection {
    let best: Connection | undefined
    for (const connection of this.#connections) {
      if (best === undefined || connection.streams < best.streams) best = connection
    }
    if (best !== undefined && best.streams < MAX_STREAMS) return best
    const opened = { client: new Client(this.#address, this.#credentials, CHANNEL_OPTIONS), streams: 0 }
    if (this.#isClosed) opened.client.close()
    else this.#connections.push(opened)
    return opened
  }

  #metadata(routing: string): Metadata {
    const metadata = new Metadata()
    metadata.set('google-cloud-resource-prefix', this.#database)
    metadata.set('x-goog-request-params', routing)
    return metadata
  }
}

function errorOf({ code, details, metadata }: StatusObject): Error {
  return Object.assign(new Error(details), { code, details, metadata })
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

function unchanged(bytes: Buffer): Buffer {
  return bytes
}

const SERVICE = '/google.spanner.v1.Spanner/'
const MAX_STREAMS = 100
const MAX_AHEAD_BYTES = 256 * 1024
const MIN_AHEAD_BYTES = 8 * 1024
/** Of all streams together, as long as each has its least. */
const ALL_AHEAD_BYTES = 8 * 1024 * 1024
const CHANNEL_OPTIONS: ChannelOptions = {
  // Connections to one address would otherwise be one connection.
  'grpc.use_local_subchannel_pool': 1,
  // A connection that died without a word is noticed within this time and a little; Google's own clients ask as often.
  'grpc.keepalive_time_ms': 120_000,
  'grpc.keepalive_timeout_ms': 10_000,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 5_000,
  // Values are cut into pieces long before this, but the default of 4 MiB is not promised to be enough.
  'grpc.max_receive_message_length': 128 * 1024 * 1024,
  'grpc.service_config_disable_resolution': 1,
}
