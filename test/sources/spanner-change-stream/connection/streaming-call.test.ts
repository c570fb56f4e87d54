import { credentials, status } from '@grpc/grpc-js'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { GrpcChannels } from '../../../../src/sources/spanner-change-stream/connection/grpc-channels.ts'
import {
  type CallListener,
  messagesOf,
  type RunningCall,
} from '../../../../src/sources/spanner-change-stream/connection/streaming-call.ts'
import { DATABASE, type RawCall, RawSpannerServer } from '../../../support/raw-spanner-server.ts'
import { times } from '../decode/random-results.ts'

let server: RawSpannerServer
let channels: GrpcChannels
let answer: (call: RawCall) => void
const never = new AbortController().signal

beforeEach(async () => {
  server = await RawSpannerServer.start({ answer: (call) => answer(call) })
  channels = new GrpcChannels(server.host, credentials.createInsecure(), DATABASE)
})
afterEach(async () => {
  channels.close()
  await server[Symbol.asyncDispose]()
})

/** One call at a time: `end` ends the one that was opened last. */
let end: () => void
const open = (listener: CallListener): RunningCall => {
  const stream = channels.stream('ExecuteStreamingSql', new Uint8Array(), 60_000, 's', listener)
  end = () => stream.end()
  return stream
}

/** A call that brings what the test says, when it says it. */
class ScriptedCall implements RunningCall {
  reads = 0
  maxAheadBytes = 256 * 1024
  listener: CallListener | undefined
  readonly open = (listener: CallListener): RunningCall => {
    this.listener = listener
    return this
  }
  startRead(): void {
    this.reads++
  }
}

describe('messagesOf', () => {
  test('gives all messages in order and ends with the call', async () => {
    answer = (call) => {
      for (let i = 0; i < 500; i++) call.write(Buffer.from(String(i)))
      call.end()
    }
    const found: string[] = []
    for await (const messages of messagesOf(open, never)) {
      expect(messages).not.toEqual([])
      found.push(...messages.map(String))
    }
    expect(found).toEqual(times(500, String))
  })

  test('what arrives in one turn of the event loop comes together', async () => {
    const call = new ScriptedCall()
    const messages = messagesOf(call.open, never)
    const first = messages.next()
    for (const text of ['a', 'b', 'c']) call.listener!.message(Buffer.from(text))
    expect((await first).value).toEqual(['a', 'b', 'c'].map((text) => Buffer.from(text)))
    call.listener!.message(Buffer.from('d'))
    call.listener!.message(Buffer.from('e'))
    expect((await messages.next()).value).toEqual([Buffer.from('d'), Buffer.from('e')])
    call.listener!.ended(undefined)
    expect(await messages.next()).toEqual({ value: undefined, done: true })
  })

  test('back-pressure: a consumer that stands still stops the server', async () => {
    const chunk = Buffer.alloc(50_000)
    let written = 0
    const stuck = Promise.withResolvers<void>()
    answer = (call) => {
      const write = (): void => {
        while (written < 2000) {
          written++
          if (call.write(chunk)) continue
          stuck.resolve()
          return
        }
        call.end()
      }
      call.on('drain', write)
      write()
    }
    const messages = messagesOf(open, never)
    let taken = (await messages.next()).value!.length
    await stuck.promise
    // Other calls of the same connection make many round trips meanwhile: what could still be written has been.
    for (let i = 0; i < 50; i++) await channels.unary('CreateSession', new Uint8Array(), 10_000, 's')
    const standing = written
    for (let i = 0; i < 50; i++) await channels.unary('CreateSession', new Uint8Array(), 10_000, 's')
    expect(written).toBe(standing)
    expect(written * chunk.length).toBeLessThan(4_000_000)
    for await (const more of messages) taken += more.length
    expect(taken).toBe(2000)
  })

  test('early return cancels at the server', async () => {
    const cancelled = Promise.withResolvers<void>()
    answer = (call) => {
      call.on('cancelled', () => cancelled.resolve())
      call.write(Buffer.from('a'))
    }
    for await (const _ of messagesOf(open, never)) break
    end()
    await cancelled.promise
    await vi.waitFor(() => expect(server.open).toBe(0))
  })

  test('an abort while waiting ends the waiting with its reason', async () => {
    const abort = new AbortController()
    answer = (call) => call.write(Buffer.from('a'))
    const messages = messagesOf(open, abort.signal)
    await messages.next()
    const waiting = messages.next()
    abort.abort(new Error('enough'))
    await expect(waiting).rejects.toThrow('enough')
    end()
    await vi.waitFor(() => expect(server.open).toBe(0))
  })

  test('an abort before the first read gives its reason', async () => {
    const call = new ScriptedCall()
    await expect(messagesOf(call.open, AbortSignal.abort(new Error('enough'))).next()).rejects.toThrow('enough')
    expect(call.listener).toBeUndefined()
  })

  test.each([
    ['a few small ones', 3, 10],
    ['more than is read ahead', 40, 100_000],
  ])('an error comes after the messages before it: %s', async (_, count, bytes) => {
    answer = (call) => {
      for (let i = 0; i < count; i++) call.write(Buffer.alloc(bytes, i))
      call.emit('error', { code: status.UNAVAILABLE, details: 'gone' })
    }
    const found: number[] = []
    const reading = async (): Promise<void> => {
      for await (const messages of messagesOf(open, never)) found.push(...messages.map((message) => message[0]!))
    }
    await expect(reading()).rejects.toMatchObject({ code: status.UNAVAILABLE })
    expect(found).toEqual(times(count, (i) => i))
  })

  test('an error that comes while the consumer stands still waits for what arrived before it', async () => {
    const call = new ScriptedCall()
    const messages = messagesOf(call.open, never)
    const first = messages.next()
    call.listener!.message(Buffer.from('a'))
    await first
    call.listener!.message(Buffer.from('b'))
    call.listener!.ended(new Error('gone'))
    expect((await messages.next()).value).toEqual([Buffer.from('b')])
    await expect(messages.next()).rejects.toThrow('gone')
  })

  test('P7: no more is read ahead than the call allows, but always one message', async () => {
    const call = new ScriptedCall()
    const messages = messagesOf(call.open, never)
    const first = messages.next()
    call.listener!.message(Buffer.alloc(10))
    await first
    call.maxAheadBytes = 1000
    for (let i = 0; i < 10; i++) call.listener!.message(Buffer.alloc(100))
    // The tenth fills what is allowed; when they are taken, the next one is asked for.
    expect(call.reads).toBe(11)
    await messages.next()
    expect(call.reads).toBe(12)
    await messages.return()
  })

  test('P7: messages of a megabyte are read ahead one at a time', async () => {
    const call = new ScriptedCall()
    const messages = messagesOf(call.open, never)
    const first = messages.next()
    expect(call.reads).toBe(1)
    call.listener!.message(Buffer.alloc(1_000_000))
    expect(call.reads).toBe(1)
    await first
    expect(call.reads).toBe(2)
    call.listener!.message(Buffer.alloc(1_000_000))
    expect(call.reads).toBe(2)
    await messages.return()
  })
})
