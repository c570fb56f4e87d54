import { describe, expect, test } from 'vitest'
import { StallWatchdog } from '../../../src/sources/spanner-change-stream/stall-watchdog.ts'
import { RecordingClock } from '../../support/recording-clock.ts'

function watched(limitMs: number): { clock: RecordingClock; watchdog: StallWatchdog; stalls: number[] } {
  const clock = new RecordingClock()
  const stalls: number[] = []
  return { clock, stalls, watchdog: new StallWatchdog(clock, limitMs, () => stalls.push(clock.now())) }
}

describe('StallWatchdog', () => {
  test('calls when nothing came for as long as the limit', async () => {
    const { clock, watchdog, stalls } = watched(1000)
    watchdog.arm()
    await clock.advance(999)
    expect(stalls).toEqual([])
    await clock.advance(1)
    expect(stalls).toEqual([1000])
  })

  test('every sign of life moves the deadline, with one timer for all of them', async () => {
    const { clock, watchdog, stalls } = watched(1000)
    for (let n = 0; n < 50; n++) {
      watchdog.arm()
      await clock.advance(100)
      expect(clock.waiting).toBe(1)
    }
    await clock.advance(899)
    expect(stalls).toEqual([])
    await clock.advance(1)
    expect(stalls).toEqual([5900])
  })

  test('sleeps while disarmed, and wakes up with the next arm', async () => {
    const { clock, watchdog, stalls } = watched(1000)
    watchdog.arm()
    await clock.advance(500)
    watchdog.disarm()
    await clock.advance(3_600_000)
    expect(stalls).toEqual([])
    watchdog.arm()
    await clock.advance(1000)
    expect(stalls).toHaveLength(1)
  })

  test('leaves no timer behind when it is closed', async () => {
    const { clock, watchdog, stalls } = watched(1000)
    watchdog.arm()
    watchdog.close()
    await clock.advance(5000)
    expect({ stalls, waiting: clock.waiting }).toEqual({ stalls: [], waiting: 0 })
  })
})
