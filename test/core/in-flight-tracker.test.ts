import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Checkpoint, InFlightTracker } from '../../src/core/in-flight-tracker.ts'
import type { CommitTimestamp } from '../../src/core/types.ts'

const at = (second: number): CommitTimestamp => `2026-11-18T10:00:${String(second).padStart(2, '0')}.000000000Z`

function entered(tracker: InFlightTracker, seconds: readonly number[]): number[] {
  return seconds.map((second, index) => tracker.enter(at(second), `id${index + 1}`, 0))
}

describe('InFlightTracker', () => {
  test("D7: acks 3, 1, 2, 5, 4 move the watermark to 1, 3, 3, 5 as in the design's table", () => {
    const tracker = new InFlightTracker()
    const numbers = entered(tracker, [1, 2, 3, 4, 5])
    const watermarks = [3, 1, 2, 5, 4].map((ack) => {
      tracker.settle(numbers[ack - 1]!)
      return tracker.watermark
    })
    expect(watermarks).toEqual([undefined, at(1), at(3), at(3), at(5)])
  })

  test('P6: the checkpoint names what is settled at exactly its time', () => {
    const tracker = new InFlightTracker()
    const [a, b, c, d] = entered(tracker, [1, 2, 2, 2]) as [number, number, number, number]
    tracker.settle(a)
    expect(tracker.checkpoint).toEqual({ watermark: at(1), boundaryIds: ['id1'] })
    tracker.settle(d)
    expect(tracker.checkpoint).toEqual({ watermark: at(1), boundaryIds: ['id1'] })
    tracker.settle(b)
    expect(tracker.checkpoint).toEqual({ watermark: at(2), boundaryIds: ['id2'] })
    tracker.settle(c)
    expect(tracker.checkpoint).toEqual({ watermark: at(2), boundaryIds: ['id2', 'id3', 'id4'] })
    expect(tracker.boundaryCount).toBe(3)
  })

  test('P6: continues the boundary of the checkpoint it starts with', () => {
    const tracker = new InFlightTracker({ watermark: at(2), boundaryIds: ['old'] })
    expect(tracker.checkpoint).toEqual({ watermark: at(2), boundaryIds: ['old'] })
    tracker.settle(tracker.enter(at(2), 'new', 0))
    expect(tracker.checkpoint).toEqual({ watermark: at(2), boundaryIds: ['old', 'new'] })
    tracker.settle(tracker.enter(at(3), 'next', 0))
    expect(tracker.checkpoint).toEqual({ watermark: at(3), boundaryIds: ['next'] })
  })

  test('a checkpoint that was handed out does not change later', () => {
    const tracker = new InFlightTracker()
    tracker.settle(tracker.enter(at(1), 'a', 0))
    const before = tracker.checkpoint
    tracker.settle(tracker.enter(at(1), 'b', 0))
    expect(before).toEqual({ watermark: at(1), boundaryIds: ['a'] })
  })

  test('P8: heartbeats between deliveries move the watermark in their turn', () => {
    const tracker = new InFlightTracker()
    const first = tracker.enter(at(1), 'a', 0)
    tracker.pass(at(2))
    const second = tracker.enter(at(3), 'b', 0)
    tracker.pass(at(4))
    tracker.settle(second)
    expect(tracker.watermark).toBeUndefined()
    tracker.settle(first)
    expect(tracker.checkpoint).toEqual({ watermark: at(4), boundaryIds: [] })
    tracker.pass(at(5))
    expect(tracker.watermark).toBe(at(5))
  })

  test('P2: a heartbeat never passes an open delivery and never moves back', () => {
    const tracker = new InFlightTracker({ watermark: at(5), boundaryIds: ['x'] })
    tracker.pass(at(4))
    expect(tracker.checkpoint).toEqual({ watermark: at(5), boundaryIds: ['x'] })
    tracker.enter(at(6), 'a', 0)
    tracker.pass(at(9))
    expect(tracker.watermark).toBe(at(5))
  })

  test('P7: heartbeats in a row take one place while a delivery stays open', () => {
    const tracker = new InFlightTracker()
    const first = tracker.enter(at(1), 'a', 0)
    for (let second = 2; second < 60; second++) tracker.pass(at(second))
    expect(tracker.window).toBe(2)
    tracker.settle(first)
    expect(tracker.watermark).toBe(at(59))
    expect(tracker.window).toBe(0)
  })

  test('grows with what is open and keeps its place when numbers wrap around the ring', () => {
    const tracker = new InFlightTracker()
    for (let n = 0; n < 13; n++) tracker.settle(tracker.enter(at(0), `w${n}`, 0))
    const numbers = Array.from({ length: 1000 }, (_, n) => tracker.enter(at(1 + Math.floor(n / 20)), `n${n}`, n))
    expect({ open: tracker.open, window: tracker.window }).toEqual({ open: 1000, window: 1000 })
    for (const number of numbers.slice(1)) tracker.settle(number)
    expect(tracker.oldestOpen).toEqual({ id: 'n0', timestamp: at(1), sinceMs: 0 })
    expect({ open: tracker.open, window: tracker.window }).toEqual({ open: 1, window: 1000 })
    tracker.settle(numbers[0]!)
    expect({ open: tracker.open, window: tracker.window }).toEqual({ open: 0, window: 0 })
    expect(tracker.checkpoint).toEqual({
      watermark: at(50),
      boundaryIds: Array.from({ length: 20 }, (_, n) => `n${980 + n}`),
    })
  })

  test('a second settlement and numbers that are not open change nothing', () => {
    const tracker = new InFlightTracker()
    const [first, second] = entered(tracker, [1, 2, 3]) as [number, number]
    tracker.settle(second)
    tracker.settle(second)
    for (const foreign of [-1, 3, 99]) tracker.settle(foreign)
    expect({ open: tracker.open, watermark: tracker.watermark }).toEqual({ open: 2, watermark: undefined })
    tracker.settle(first)
    tracker.settle(first)
    expect({ open: tracker.open, watermark: tracker.watermark }).toEqual({ open: 1, watermark: at(2) })
  })

  test('names the oldest open delivery and since when it is open', () => {
    const tracker = new InFlightTracker()
    expect(tracker.oldestOpen).toBeUndefined()
    const first = tracker.enter(at(1), 'a', 100)
    tracker.enter(at(2), 'b', 200)
    expect(tracker.oldestOpen).toEqual({ id: 'a', timestamp: at(1), sinceMs: 100 })
    tracker.settle(first)
    expect(tracker.oldestOpen).toEqual({ id: 'b', timestamp: at(2), sinceMs: 200 })
  })

  test('idle resolves when nothing is open, for everyone who waits', async () => {
    const tracker = new InFlightTracker()
    await tracker.idle()
    const [first, second] = entered(tracker, [1, 2]) as [number, number]
    let woken = 0
    const waiting = [tracker.idle(), tracker.idle()].map((idle) => idle.then(() => woken++))
    tracker.settle(second)
    await Promise.resolve()
    expect(woken).toBe(0)
    tracker.settle(first)
    await Promise.all(waiting)
    expect(woken).toBe(2)
  })

  test('gives the bytes back once, also after the ring has grown', () => {
    const tracker = new InFlightTracker()
    const numbers = Array.from({ length: 100 }, (_, n) => tracker.enter(at(1), `n${n}`, 0, n))
    expect(numbers.map((number) => tracker.settle(number))).toEqual(Array.from({ length: 100 }, (_, n) => n))
    expect(tracker.settle(numbers[0]!)).toBeUndefined()
    expect(tracker.settle(tracker.enter(at(1), 'none', 0))).toBe(0)
  })

  test('P7: a reader can wait until the ring is short enough', async () => {
    const tracker = new InFlightTracker()
    const numbers = entered(tracker, [1, 2, 3, 4])
    const woken: number[] = []
    const waiting = [2, 4, 5].map((window) => tracker.windowBelow(window).then(() => woken.push(window)))
    tracker.settle(numbers[2]!)
    await waiting[2]
    expect(woken).toEqual([5])
    tracker.settle(numbers[0]!)
    await waiting[1]
    expect(woken).toEqual([5, 4])
    tracker.settle(numbers[1]!)
    await waiting[0]
    expect(woken).toEqual([5, 4, 2])
  })

  test('P2: agrees with a plain list after any sequence of calls', () => {
    const command = fc.oneof(
      { weight: 4, arbitrary: fc.record({ do: fc.constant('enter' as const), by: fc.nat(1) }) },
      { weight: 4, arbitrary: fc.record({ do: fc.constant('settle' as const), by: fc.nat(200) }) },
      { weight: 1, arbitrary: fc.record({ do: fc.constant('pass' as const), by: fc.nat(1) }) },
    )
    fc.assert(
      fc.property(fc.array(command, { maxLength: 200 }), (commands) => {
        const tracker = new InFlightTracker()
        const model = new NaiveTracker()
        const numbers: number[] = []
        let second = 0
        for (const { do: action, by } of commands) {
          if (action === 'settle') {
            if (numbers.length === 0) continue
            const index = by % numbers.length
            tracker.settle(numbers[index]!)
            model.settle(index)
          } else {
            second += by
            if (action === 'pass') tracker.pass(nano(second))
            else numbers.push(tracker.enter(nano(second), `id${numbers.length}`, 0))
            model.add(nano(second), action === 'pass' ? undefined : numbers.length - 1)
          }
          expect(tracker.checkpoint).toEqual(model.checkpoint)
          expect(tracker.open).toBe(model.open)
          expect(tracker.oldestOpen?.id).toBe(model.oldestOpenId)
          expect(tracker.window).toBeLessThanOrEqual(2 * (numbers.length + 1))
        }
      }),
      { numRuns: 300 },
    )
  })
})

function nano(number: number): CommitTimestamp {
  return `2026-11-18T10:00:00.${String(number).padStart(9, '0')}Z`
}

/** Everything that ever entered, looked through from the beginning each time. */
class NaiveTracker {
  readonly #entries: { readonly timestamp: CommitTimestamp; readonly index: number | undefined; isSettled: boolean }[] =
    []

  add(timestamp: CommitTimestamp, index: number | undefined): void {
    this.#entries.push({ timestamp, index, isSettled: index === undefined })
  }

  settle(index: number): void {
    for (const entry of this.#entries) if (entry.index === index) entry.isSettled = true
  }

  get open(): number {
    return this.#entries.filter((entry) => !entry.isSettled).length
  }

  get oldestOpenId(): string | undefined {
    const oldest = this.#entries.find((entry) => !entry.isSettled)
    return oldest && `id${oldest.index}`
  }

  get checkpoint(): Checkpoint | undefined {
    const firstOpen = this.#entries.findIndex((entry) => !entry.isSettled)
    const done = firstOpen < 0 ? this.#entries : this.#entries.slice(0, firstOpen)
    const watermark = done.at(-1)?.timestamp
    if (watermark === undefined) return undefined
    const boundary = done.filter((entry) => entry.timestamp === watermark && entry.index !== undefined)
    return { watermark, boundaryIds: boundary.map((entry) => `id${entry.index}`) }
  }
}
