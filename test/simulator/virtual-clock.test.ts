import { describe, expect, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import { SimulationStalledError, VirtualClock } from '../../src/simulator/index.ts'

describe('VirtualClock', () => {
  test('fires timers in order of time, then of creation', async () => {
    const clock = new VirtualClock()
    const fired: string[] = []
    await clock.run(async () => {
      for (const [name, ms] of [
        ['c', 30],
        ['a', 10],
        ['b1', 20],
        ['b2', 20],
        ['now', 0],
      ] as const) {
        clock.after(ms, () => fired.push(name))
      }
      await sleep(clock, 100)
    })
    expect(fired).toEqual(['now', 'a', 'b1', 'b2', 'c'])
  })

  test('does all promise work before the next timer, also of the same time', async () => {
    const clock = new VirtualClock()
    const events: string[] = []
    await clock.run(async () => {
      clock.after(5, () => {
        events.push('first')
        void (async () => {
          for (let i = 0; i < 50; i++) await undefined
          events.push('work of the first')
        })()
      })
      clock.after(5, () => events.push('second'))
      await sleep(clock, 6)
    })
    expect(events).toEqual(['first', 'work of the first', 'second'])
  })

  test('stands still while there is work and jumps over hours when there is none', async () => {
    const clock = new VirtualClock({ startMs: 1000 })
    const times: number[] = []
    await clock.run(async () => {
      for (let i = 0; i < 1000; i++) await undefined
      times.push(clock.now())
      await sleep(clock, 3_600_000)
      times.push(clock.now())
    })
    expect(times).toEqual([1000, 3_601_000])
  })

  test('is not moved by cancelled timers', async () => {
    const clock = new VirtualClock({ startMs: 0 })
    await clock.run(async () => {
      const timers = Array.from({ length: 500 }, (_, i) => clock.after(1000 + i, () => expect.fail('was cancelled')))
      for (const timer of timers) {
        timer.cancel()
        timer.cancel()
      }
      expect(clock.pendingTimers).toBe(0)
      await sleep(clock, 5000)
    })
    expect(clock.now()).toBe(5000)
    await expect(clock.run(() => new Promise(() => clock.after(99, () => undefined).cancel()))).rejects.toThrow(
      'stalled',
    )
    expect(clock.now()).toBe(5000)
  })

  test('forgets timers that are cancelled after they fired', async () => {
    const clock = new VirtualClock()
    await clock.run(async () => {
      const timer = clock.after(1, () => undefined)
      await sleep(clock, 2)
      timer.cancel()
      expect(clock.pendingTimers).toBe(0)
    })
  })

  test('says when a run waits for something that can never come', async () => {
    const clock = new VirtualClock({ startMs: Date.UTC(2026, 0, 1) })
    const run = clock.run(async () => {
      await sleep(clock, 1500)
      await new Promise(() => undefined)
    })
    await expect(run).rejects.toBeInstanceOf(SimulationStalledError)
    await expect(run).rejects.toThrow('stalled at 2026-01-01T00:00:01.500Z (1500 ms simulated)')
    await expect(run).rejects.toMatchObject({ code: 'SIMULATION_STALLED', atMs: Date.UTC(2026, 0, 1) + 1500 })
  })

  test('ends a run whose simulated time is used up', async () => {
    const clock = new VirtualClock({ maxSimulatedMs: 60_000 })
    const run = clock.run(async () => {
      for (;;) await sleep(clock, 1000)
    })
    await expect(run).rejects.toThrow('maxSimulatedMs (60000) is used up at 2026-01-01T00:01:00.000Z')
  })

  test('settles as main does and can run again', async () => {
    const clock = new VirtualClock({ startMs: 0 })
    const failure = new Error('as thrown')
    await expect(clock.run(async () => 'value')).resolves.toBe('value')
    await expect(clock.run(() => Promise.reject(failure))).rejects.toBe(failure)
    await expect(
      clock.run(async () => {
        throw failure
      }),
    ).rejects.toBe(failure)
    await clock.advance(250)
    expect(clock.now()).toBe(250)
  })

  test('lets the error of a timer through', async () => {
    const clock = new VirtualClock()
    const run = clock.run(async () => {
      clock.after(1, () => {
        throw new Error('in a timer')
      })
      await sleep(clock, 2)
    })
    await expect(run).rejects.toThrow('in a timer')
  })

  test('refuses a run inside a run', async () => {
    const clock = new VirtualClock()
    await clock.run(async () => {
      expect(() => clock.run(async () => undefined)).toThrow('another run')
    })
  })

  test('keeps order with timers set and cancelled at random', async () => {
    const clock = new VirtualClock({ startMs: 0 })
    const fired: number[] = []
    await clock.run(async () => {
      for (let i = 0; i < 2000; i++) {
        const timer = clock.after((i * 7919) % 1009, () => fired.push(clock.now()))
        if (i % 3 === 0) timer.cancel()
      }
      await sleep(clock, 2000)
    })
    expect(fired).toHaveLength(1333)
    expect(fired).toEqual(fired.toSorted((a, b) => a - b))
  })
})
