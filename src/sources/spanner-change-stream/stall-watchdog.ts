/** Notices a stream that went silent: nothing came for longer than its heartbeats allow. */
import type { Clock, Timer } from '../../core/clock.ts'

/** Runs only while armed; a reader that waits for its consumer disarms it, so back-pressure is never called a stall. */
export class StallWatchdog {
  readonly #clock: Clock
  readonly #limitMs: number
  readonly #onStall: () => void
  #deadlineMs = Number.POSITIVE_INFINITY
  #timer: Timer | undefined

  constructor(clock: Clock, limitMs: number, onStall: () => void) {
    this.#clock = clock
    this.#limitMs = limitMs
    this.#onStall = onStall
  }

  /** Starts waiting for a sign of life. One timer serves many calls: it looks at the deadline when it fires. */
  arm(): void {
    this.#deadlineMs = this.#clock.now() + this.#limitMs
    if (this.#timer === undefined) this.#watch(this.#limitMs)
  }

  disarm(): void {
    this.#deadlineMs = Number.POSITIVE_INFINITY
  }

  close(): void {
    this.#timer?.cancel()
    this.#timer = undefined
  }

  #watch(ms: number): void {
    this.#timer = this.#clock.after(ms, () => {
      this.#timer = undefined
      const remainingMs = this.#deadlineMs - this.#clock.now()
      if (remainingMs <= 0) this.#onStall()
      else if (remainingMs !== Number.POSITIVE_INFINITY) this.#watch(remainingMs)
    })
  }
}
