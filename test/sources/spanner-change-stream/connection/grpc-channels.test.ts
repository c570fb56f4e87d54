import { credentials } from '@grpc/grpc-js'
import { afterEach, describe, expect, test, vi } from 'vitest'
import {
  GrpcChannels,
  type OpenStream,
} from '../../../../src/sources/spanner-change-stream/connection/grpc-channels.ts'
import { messagesOf } from '../../../../src/sources/spanner-change-stream/connection/streaming-call.ts'
import { DATABASE, type RawCall, type RawServerOptions, RawSpannerServer } from '../../../support/raw-spanner-server.ts'
import { times } from '../decode/random-results.ts'
import { DOCUMENTED_ORDER, structType } from '../decode/record-forms.ts'
import { metadataBytes, resultBytes, type Wire } from '../decode/wire-writer.ts'

const never = new AbortController().signal

/** What is open, closed in turn at the end of a test. */
const opened: { close(): void | Promise<void> }[] = []
afterEach(async () => {
  for (const thing of opened.splice(0).reverse()) await thing.close()
})

async function connect(options: RawServerOptions): Promise<{ server: RawSpannerServer; channels: GrpcChannels }> {
  const server = await RawSpannerServer.start(options)
  const channels = new GrpcChannels(server.host, credentials.createInsecure(), DATABASE)
  opened.push({ close: () => server[Symbol.asyncDispose]() }, channels)
  return { server, channels }
}

interface TestStream {
  readonly messages: AsyncGenerator<Buffer[], void, undefined>
  end(): void
}

/** Opened at the first read. */
function open(channels: GrpcChannels): TestStream {
  let stream: OpenStream | undefined
  const messages = messagesOf((listener) => {
    stream = channels.stream('ExecuteStreamingSql', new Uint8Array(), 60_000, 'session=s', listener)
    return stream
  }, never)
  return { messages, end: () => stream?.end() }
}

async function firstMessage({ messages }: TestStream): Promise<Buffer> {
  const { value } = await messages.next()
  return (value as Buffer[])[0]!
}

describe('GrpcChannels', () => {
  test('1,000 streams at a time all get their first message from a server that allows 100 a connection', async () => {
    const { server, channels } = await connect({ maxStreams: 100, answer: (call) => call.write(Buffer.from('hello')) })
    const streams = times(1000, () => open(channels))
    const messages = await Promise.all(streams.map(firstMessage))
    expect(new Set(messages.map(String))).toEqual(new Set(['hello']))
    expect(server.open).toBe(1000)
    expect(server.connections).toBe(10)
    expect(channels.connectionCount).toBe(10)
  })

  test('P7: a thousand streams together run ahead by megabytes, not by a thousand times what one may', async () => {
    const { channels } = await connect({ answer: () => undefined })
    const stream = (): OpenStream =>
      channels.stream('ExecuteStreamingSql', new Uint8Array(), 60_000, 's', { message: () => {}, ended: () => {} })
    const first = stream()
    const alone = first.maxAheadBytes
    const others = times(999, stream)
    expect(alone).toBeGreaterThan(200_000)
    expect(first.maxAheadBytes).toBeLessThan(20_000)
    for (const other of others) other.end()
    expect(first.maxAheadBytes).toBe(alone)
  })

  test('streams that ended free their place: 1,000 one after the other need one connection', async () => {
    const { server, channels } = await connect({ maxStreams: 100, answer: (call) => call.write(Buffer.from('hello')) })
    for (let round = 0; round < 20; round++) {
      const streams = times(50, () => open(channels))
      await Promise.all(streams.map(firstMessage))
      for (const stream of streams) stream.end()
      // The second call changes nothing.
      streams[0]!.end()
    }
    expect(server.connections).toBe(1)
  })

  test('a stream that is not read does not hold up another one on the same connection', async () => {
    const chunk = Buffer.alloc(100_000, 'x')
    const { server, channels } = await connect({
      answer: (call) => {
        const write = (): void => {
          while (!call.cancelled && call.write(chunk));
        }
        call.on('drain', write)
        write()
      },
    })
    const idle = open(channels)
    await idle.messages.next()
    const busy = open(channels)
    let bytes = 0
    for await (const messages of busy.messages) {
      bytes += messages.reduce((sum, message) => sum + message.length, 0)
      if (bytes > 40_000_000) break
    }
    busy.end()
    idle.end()
    expect(bytes).toBeGreaterThan(40_000_000)
    expect(server.connections).toBe(1)
  })

  test('says which database and session a call is for', async () => {
    const calls: RawCall[] = []
    const { channels } = await connect({ answer: (call) => calls.push(call) && call.end() })
    await open(channels).messages.next()
    expect(calls[0]!.metadata.getMap()).toMatchObject({
      'google-cloud-resource-prefix': DATABASE,
      'x-goog-request-params': 'session=s',
    })
  })
})

describe('SpannerChangeStreamClient', () => {
  test('1,000 concurrent partition queries work', async () => {
    const type = structType(DOCUMENTED_ORDER)
    const beat: Wire = [[[], [['2026-11-18T09:30:00.5Z']], []]]
    const message = resultBytes({ metadata: metadataBytes(type), values: [beat], resumeToken: Buffer.from('r') })
    const server = await RawSpannerServer.start({ maxStreams: 100, answer: (call) => call.write(message) })
    opened.push({ close: () => server[Symbol.asyncDispose]() })
    const client = server.client()
    opened.push(client)
    await client.describe(never)
    const abort = new AbortController()
    const query = { start: '2026-11-18T09:30:00.000000000Z', end: null, heartbeatMs: 1000 }
    const queries = times(1000, (i) => client.query({ ...query, token: `token-${i}` }, abort.signal))
    const parts = await Promise.all(queries.map(async (parts) => (await parts.next()).value))
    const record = { kind: 'heartbeat', record: { timestamp: '2026-11-18T09:30:00.500000000Z' } }
    expect(parts).toEqual(times(1000, () => ({ records: [record], resumeToken: Buffer.from('r') })))
    expect(server.open).toBe(1000)
    expect(server.connections).toBeLessThanOrEqual(11)
    const rests = queries.map((parts) => parts.next())
    abort.abort(new Error('enough'))
    const ends = await Promise.allSettled(rests)
    expect(new Set(ends.map((end) => end.status === 'rejected' && end.reason.message))).toEqual(new Set(['enough']))
    await vi.waitFor(() => expect(server.open).toBe(0))
  })
})
