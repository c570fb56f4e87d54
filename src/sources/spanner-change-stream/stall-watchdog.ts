/** Notices a stream that went silent: nothing came for longer than its heartbeats allow. */
import type { Clock, Timer } from '../../core/clock.ts'

/**
 * Runs only while armed; a reader that waits for its consumer disarms it, so back-pressure is never called a stall.
 * Counts the beats of a timer instead of comparing times: a clock that is set back must not blind it.
 */
export class StallWatchdog {
  readonly #clock: Clock
  readonly #beatMs: number
  readonly #onStall: () => void
  #isArmed = false
  #silentBeats = 0
  #timer: Timer | undefined

  constructor(clock: Clock, limitMs: number, onStall: () => void) {
    this.#clock = clock
    this.#beatMs = limitMs / BEATS
    this.#onStall = onStall
  }

  /** Starts waiting for a sign of life, anew. */
  arm(): void {
    this.#isArmed = true
    this.#silentBeats = 0
    if (this.#timer === undefined) this.#wait()
  }

  disarm(): void {
    this.#isArmed = false
  }

  close(): void {
    this.#timer?.cancel()
    this.#timer = undefined
  }

  #wait(): void {
    this.#timer = this.#clock.after(this.#beatMs, () => {
      this.#timer = undefined
      if (!this.#isArmed) return
      this.#silentBeats++
      // The first beat may have begun before the silence did.
      if (this.#silentBeats > BEATS) this.#onStall()
      else this.#wait()
    })
  }
}

const BEATS = 4
