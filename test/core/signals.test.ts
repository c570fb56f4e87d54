import { describe, expect, test, vi } from 'vitest'
import { abortable, linkSignals, settlesWithin } from '../../src/core/signals.ts'
import { RecordingClock } from '../support/recording-clock.ts'
import { unhandledRejections } from '../support/unhandled-rejections.ts'

const reason = new Error('enough')

describe('linkSignals', () => {
  test.each([0, 1])('follows signal %i with its reason', (which) => {
    const controllers = [new AbortController(), new AbortController()] as const
    const { signal } = linkSignals(controllers[0].signal, controllers[1].signal)
    expect(signal.aborted).toBe(false)
    controllers[which]!.abort(reason)
    expect(signal.reason).toBe(reason)
  })

  test.each([0, 1])('is aborted at once if signal %i is', (which) => {
    const signals = [new AbortController().signal, new AbortController().signal]
    signals[which] = AbortSignal.abort(reason)
    expect(linkSignals(signals[0]!, signals[1]!).signal.reason).toBe(reason)
  })

  test('follows nothing any more once it is unlinked', () => {
    const [a, b] = [new AbortController(), new AbortController()]
    const { signal, unlink } = linkSignals(a.signal, b.signal)
    unlink()
    a.abort(reason)
    b.abort(reason)
    expect(signal.aborted).toBe(false)
  })
})

describe('abortable', () => {
  test('gives what the promise gives', async () => {
    const { signal } = new AbortController()
    expect(await abortable(Promise.resolve(1), signal)).toBe(1)
    await expect(abortable(Promise.reject(reason), signal)).rejects.toBe(reason)
  })

  test('an abort rejects with its reason, before or while it waits', async () => {
    const controller = new AbortController()
    const waiting = expect(abortable(new Promise(() => undefined), controller.signal)).rejects.toBe(reason)
    controller.abort(reason)
    await waiting
    await expect(abortable(Promise.resolve(1), controller.signal)).rejects.toBe(reason)
  })

  test('hears a rejection that comes after the abort', async () => {
    const unheard = unhandledRejections()
    await expect(abortable(Promise.reject(new Error('late')), AbortSignal.abort(reason))).rejects.toBe(reason)
    expect(await unheard()).toEqual([])
  })

  test.each([false, true])('leaves no listener on the signal, rejected: %o', async (isRejected) => {
    const { signal } = new AbortController()
    const added = vi.spyOn(signal, 'addEventListener')
    const removed = vi.spyOn(signal, 'removeEventListener')
    await abortable(isRejected ? Promise.reject(reason) : Promise.resolve(1), signal).catch(() => undefined)
    expect(removed.mock.calls.map(([, listener]) => listener)).toEqual(added.mock.calls.map(([, listener]) => listener))
    expect(added).toHaveBeenCalledTimes(1)
  })
})

describe('settlesWithin', () => {
  test.each([
    ['resolves', () => Promise.resolve(1)],
    ['rejects', () => Promise.reject(reason)],
  ])('is true for a promise that %s in time, and leaves no timer', async (_, promise) => {
    const clock = new RecordingClock()
    expect(await settlesWithin(clock, 1000, promise())).toBe(true)
    expect(clock.waiting).toBe(0)
  })

  test('is false for one that takes longer', async () => {
    const clock = new RecordingClock()
    const settles = settlesWithin(clock, 1000, new Promise(() => undefined))
    await clock.advance(1000)
    expect(await settles).toBe(false)
  })
})
