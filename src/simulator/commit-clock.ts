/** Commit timestamps in microsecond steps, and the promise that nothing more is committed up to a time. */
import type { Clock } from '../core/clock.ts'
import type { CommitTimestamp } from '../model/commit-timestamp.ts'

/**
 * Hands out timestamps that never decrease. Once something was said about a time (a heartbeat, the end of a query, a
 * split), that time is closed: everything that comes later is committed later.
 */
export class CommitClock {
  readonly #clock: Clock
  #lowestMicros = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The latest time up to which all commits are known: nothing will be committed at or before it once it is closed. */
  get presentMicros(): number {
    return Math.max(Math.floor(this.#clock.now() * 1000), this.#lowestMicros - 1)
  }

  /** The lowest time that is still open. */
  get lowestMicros(): number {
    return this.#lowestMicros
  }

  /** The time that a commit takes now if it shares it with no other. */
  get nextMicros(): number {
    return Math.max(Math.floor(this.#clock.now() * 1000), this.#lowestMicros)
  }

  /** From now on everything is committed after this time. */
  close(micros: number): void {
    this.#lowestMicros = Math.max(this.#lowestMicros, micros + 1)
  }

  /** From now on everything is committed at this time or after it. */
  closeBefore(micros: number): void {
    this.close(micros - 1)
  }
}

export function timestampFromMicros(micros: number): CommitTimestamp {
  const second = Math.floor(micros / 1_000_000)
  if (second !== cachedSecond) {
    cachedSecond = second
    cachedText = new Date(second * 1000).toISOString().slice(0, 19)
  }
  return `${cachedText}.${String(micros - second * 1_000_000).padStart(6, '0')}000Z`
}

/** Nanoseconds are cut off. */
export function timestampToMicros(timestamp: CommitTimestamp): number {
  return Date.parse(`${timestamp.slice(0, 19)}Z`) * 1000 + Number(timestamp.slice(20, 26))
}

// Most commits fall into the same second as the one before.
let cachedSecond = Number.NaN
let cachedText = ''
