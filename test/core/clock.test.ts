import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { sleep, systemClock } from '../../src/core/clock.ts'
import { RecordingClock } from '../support/recording-clock.ts'

describe('systemClock', () => {
  beforeEach(() => {
    vi.useFakeTimers({ now: 1000 })
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  test('calls back once after the time', () => {
    let calls = 0
    systemClock.after(50, () => calls++)
    vi.advanceTimersByTime(49)
    expect(calls).toBe(0)
    vi.advanceTimersByTime(1000)
    expect(calls).toBe(1)
    expect(systemClock.now()).toBe(2049)
  })

  test('a cancelled timer does not call back, and cancelling twice or late is safe', () => {
    let calls = 0
    const cancelled = systemClock.after(50, () => calls++)
    cancelled.cancel()
    cancelled.cancel()
    const fired = systemClock.after(50, () => calls++)
    vi.advanceTimersByTime(100)
    fired.cancel()
    expect(calls).toBe(1)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('a time that has passed is due at once, without a warning', async () => {
    vi.useRealTimers()
    const warnings: string[] = []
    const note = ({ name }: Error): number => warnings.push(name)
    process.on('warning', note)
    await new Promise<void>((resolve) => systemClock.after(-5, resolve))
    await new Promise((resolve) => setImmediate(resolve))
    process.off('warning', note)
    expect(warnings).toEqual([])
  })

  test('waits longer than a timer of the platform can', () => {
    const day = 24 * 3600 * 1000
    let calls = 0
    systemClock.after(60 * day, () => calls++)
    const cancelled = systemClock.after(60 * day, () => calls++)
    vi.advanceTimersByTime(59 * day)
    expect(calls).toBe(0)
    cancelled.cancel()
    vi.advanceTimersByTime(day)
    expect(calls).toBe(1)
    expect(vi.getTimerCount()).toBe(0)
  })
})

describe('sleep', () => {
  test('resolves after the time', async () => {
    const clock = new RecordingClock()
    const waking = sleep(clock, 50).then(() => clock.now())
    await clock.advance(100)
    expect(await waking).toBe(50)
  })

  test('an abort ends the wait with its reason and leaves no timer', async () => {
    const clock = new RecordingClock()
    const controller = new AbortController()
    const reason = new Error('enough')
    const waking = sleep(clock, 50, controller.signal)
    controller.abort(reason)
    await expect(waking).rejects.toBe(reason)
    expect(clock.waiting).toBe(0)
  })

  test('a signal that is aborted already starts no timer', async () => {
    const clock = new RecordingClock()
    const reason = new Error('enough')
    await expect(sleep(clock, 50, AbortSignal.abort(reason))).rejects.toBe(reason)
    expect(clock.waiting).toBe(0)
  })

  test('leaves no listener on the signal', async () => {
    const clock = new RecordingClock()
    const { signal } = new AbortController()
    const removed = vi.spyOn(signal, 'removeEventListener')
    const waking = sleep(clock, 50, signal)
    await clock.advance(50)
    await waking
    expect(removed).toHaveBeenCalledTimes(1)
  })
})
