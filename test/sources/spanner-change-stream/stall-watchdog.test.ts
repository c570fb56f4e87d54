import { describe, expect, test } from 'vitest'
import { StallWatchdog } from '../../../src/sources/spanner-change-stream/stall-watchdog.ts'
import { RecordingClock } from '../../support/recording-clock.ts'

function watched(limitMs: number): { clock: RecordingClock; watchdog: StallWatchdog; stalls: number[] } {
  const clock = new RecordingClock()
  const stalls: number[] = []
  return { clock, stalls, watchdog: new StallWatchdog(clock, limitMs, () => stalls.push(clock.now())) }
}

describe('StallWatchdog', () => {
  test('calls when nothing came for longer than the limit, within a quarter of it', async () => {
    const { clock, watchdog, stalls } = watched(1000)
    watchdog.arm()
    await clock.advance(1000)
    expect(stalls).toEqual([])
    await clock.advance(250)
    expect(stalls).toEqual([1250])
  })

  test('every sign of life begins the wait anew, with one timer for all of them', async () => {
    const { clock, watchdog, stalls } = watched(1000)
    for (let n = 0; n < 50; n++) {
      watchdog.arm()
      await clock.advance(100)
      expect(clock.waiting).toBe(1)
    }
    await clock.advance(900)
    expect(stalls).toEqual([])
    await clock.advance(350)
    expect(stalls).toHaveLength(1)
  })

  test('sleeps while disarmed, and wakes up with the next arm', async () => {
    const { clock, watchdog, stalls } = watched(1000)
    watchdog.arm()
    await clock.advance(500)
    watchdog.disarm()
    await clock.advance(3_600_000)
    expect(stalls).toEqual([])
    watchdog.arm()
    await clock.advance(1250)
    expect(stalls).toHaveLength(1)
  })

  test('is not blinded by a clock that is set back', async () => {
    const { clock, stalls } = watched(1000)
    let setBackMs = 0
    const wall = { now: () => clock.now() - setBackMs, after: clock.after.bind(clock) }
    const watchdog = new StallWatchdog(wall, 1000, () => stalls.push(clock.now()))
    watchdog.arm()
    setBackMs = 3_600_000
    await clock.advance(1250)
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
