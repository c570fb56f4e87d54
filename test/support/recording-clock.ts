/** A clock that stands still until a test moves it. */
import type { Clock, Timer } from '../../src/core/clock.ts'

export class RecordingClock implements Clock {
  #now = 0
  #count = 0
  #timers: WaitingTimer[] = []

  /** How many timers wait: none may be left when a stream is over. */
  get waiting(): number {
    return this.#timers.length
  }

  now(): number {
    return this.#now
  }

  after(ms: number, callback: () => void): Timer {
    const timer = { at: this.#now + ms, number: this.#count++, callback }
    this.#timers.push(timer)
    return {
      cancel: () => {
        this.#timers = this.#timers.filter((other) => other !== timer)
      },
    }
  }

  /** Lets time pass: fires what is due in order, and lets everything happen that follows from it. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms
    await settled()
    for (let timer = this.#next(end); timer !== undefined; timer = this.#next(end)) {
      this.#timers = this.#timers.filter((other) => other !== timer)
      this.#now = Math.max(this.#now, timer.at)
      timer.callback()
      await settled()
    }
    this.#now = end
  }

  /** Runs until `work` is done, moving to the next timer whenever nothing else happens. */
  async runUntil<R>(work: Promise<R>): Promise<R> {
    let isDone = false
    const done = (): void => {
      isDone = true
    }
    work.then(done, done)
    await settled()
    while (!isDone) {
      const next = this.#next(Number.POSITIVE_INFINITY)
      if (next === undefined) throw new Error('nothing happens any more, and the work is not done')
      await this.advance(Math.max(0, next.at - this.#now))
    }
    return work
  }

  #next(end: number): WaitingTimer | undefined {
    let first: WaitingTimer | undefined
    for (const timer of this.#timers) {
      if (timer.at > end) continue
      if (first === undefined || timer.at < first.at || (timer.at === first.at && timer.number < first.number)) {
        first = timer
      }
    }
    return first
  }
}

interface WaitingTimer {
  readonly at: number
  readonly number: number
  readonly callback: () => void
}

/** Resolves when every promise that can go on without a timer has done so. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
