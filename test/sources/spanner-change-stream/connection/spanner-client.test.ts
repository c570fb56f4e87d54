import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { SpannerChangeStreamClient } from '../../../../src/sources/spanner-change-stream/connection/spanner-client.ts'
import { DATABASE, type RawCall, RawSpannerServer } from '../../../support/raw-spanner-server.ts'
import { times } from '../decode/random-results.ts'
import { DOCUMENTED_ORDER, structType } from '../decode/record-forms.ts'
import { metadataBytes, resultBytes } from '../decode/wire-writer.ts'

const never = new AbortController().signal
const BEAT = resultBytes({
  metadata: metadataBytes(structType(DOCUMENTED_ORDER)),
  values: [[[[], [['2026-11-18T09:30:00.5Z']], []]]],
})
const QUERY = { token: 'a', start: '2026-11-18T09:30:00.000000000Z', end: null, heartbeatMs: 1000 }

let server: RawSpannerServer
let calls: RawCall[]

beforeEach(async () => {
  calls = []
  server = await RawSpannerServer.start({
    answer: (call) => {
      calls.push(call)
      call.write(BEAT)
    },
  })
})
afterEach(async () => {
  vi.useRealTimers()
  await server[Symbol.asyncDispose]()
})

function clientOf(emulatorHost: string): SpannerChangeStreamClient {
  const unset = { databaseRole: undefined, priority: undefined, requestTag: undefined, directedRead: undefined }
  return new SpannerChangeStreamClient({ ...unset, database: DATABASE, stream: 'S', emulatorHost })
}

describe('SpannerChangeStreamClient', () => {
  test('every query has a deadline of its own, below an hour, and its expiry is an error to be retried', async () => {
    const client = clientOf(server.host)
    await client.describe(never)
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const queries = times(20, () => client.query(QUERY, never))
    const begunMs = Date.now()
    await Promise.all(queries.map((query) => query.next()))
    const minutes = calls.map((call) => (Number(call.getDeadline()) - begunMs) / 60_000)
    expect(Math.min(...minutes)).toBeGreaterThan(40)
    expect(Math.max(...minutes)).toBeLessThan(60)
    expect(new Set(minutes.map(Math.round)).size).toBeGreaterThan(3)

    const ends = Promise.allSettled(queries.map((query) => query.next()))
    await vi.advanceTimersByTimeAsync(3_600_000)
    const expired = { status: 'rejected', reason: { status: 'DEADLINE_EXCEEDED', retryable: true, partition: 'a' } }
    expect(await ends).toMatchObject(times(20, () => expired))
    await client.close()
  })

  test('a connection that died without a word is noticed within some minutes', async () => {
    const proxy = await SilentProxy.start(server.host)
    const client = clientOf(proxy.host)
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    await client.describe(never)
    const query = client.query(QUERY, never)
    await query.next()
    proxy.fallSilent()
    const end = query.next().catch((error: unknown) => error)
    // Asked whether it lives, it does not answer: two steps, between which the question goes out.
    await vi.advanceTimersByTimeAsync(150_000)
    await vi.advanceTimersByTimeAsync(30_000)
    expect(await end).toMatchObject({ status: 'UNAVAILABLE', retryable: true, partition: 'a' })
    vi.useRealTimers()
    proxy.close()
    await client.close()
  })
})

/** Stands between client and server, until it keeps everything to itself without closing anything. */
class SilentProxy {
  readonly host: string
  readonly #sockets: Socket[]
  readonly #close: () => void

  private constructor(host: string, sockets: Socket[], close: () => void) {
    this.host = host
    this.#sockets = sockets
    this.#close = close
  }

  static async start(target: string): Promise<SilentProxy> {
    const sockets: Socket[] = []
    const [address, port] = target.split(':')
    const listener = createServer((near) => {
      const far = connect(Number(port), address!)
      sockets.push(near, far)
      for (const socket of [near, far]) socket.on('error', () => undefined)
      near.pipe(far).pipe(near)
    })
    await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
    return new SilentProxy(`127.0.0.1:${(listener.address() as AddressInfo).port}`, sockets, () => listener.close())
  }

  fallSilent(): void {
    for (const socket of this.#sockets) socket.unpipe().pause()
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy()
    this.#close()
  }
}
