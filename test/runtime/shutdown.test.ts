import { EventEmitter } from 'node:events'
import { describe, expect, test } from 'vitest'
import { listenForShutdown, type SignalEmitter } from '../../src/runtime/shutdown.ts'

function signals(): { emitter: EventEmitter; send(signal: 'SIGINT' | 'SIGTERM'): void; source: SignalEmitter } {
  const emitter = new EventEmitter()
  return { emitter, send: (signal) => emitter.emit(signal, signal), source: emitter as SignalEmitter }
}

describe('listenForShutdown', () => {
  test('P11: the first signal drains and closes nothing', () => {
    const { send, source } = signals()
    const shutdown = listenForShutdown(source)
    expect(shutdown.drain.aborted).toBe(false)
    send('SIGTERM')
    expect(shutdown.drain.aborted).toBe(true)
    expect(shutdown.close.aborted).toBe(false)
    expect(shutdown.exitCode).toBeUndefined()
  })

  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('P11: a second signal closes, and %s makes the exit code %d', (signal, exitCode) => {
    const { send, source } = signals()
    const shutdown = listenForShutdown(source)
    send('SIGTERM')
    send(signal)
    expect(shutdown.close.aborted).toBe(true)
    expect(shutdown.exitCode).toBe(exitCode)
  })

  test('a third signal changes nothing', () => {
    const { send, source } = signals()
    const shutdown = listenForShutdown(source)
    send('SIGINT')
    send('SIGINT')
    send('SIGTERM')
    expect(shutdown.exitCode).toBe(130)
  })

  test('gives the signals back', () => {
    const { emitter, send, source } = signals()
    const shutdown = listenForShutdown(source)
    shutdown.stopListening()
    shutdown.stopListening()
    expect(emitter.listenerCount('SIGINT') + emitter.listenerCount('SIGTERM')).toBe(0)
    send('SIGINT')
    expect(shutdown.drain.aborted).toBe(false)
  })
})
