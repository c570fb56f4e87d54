/** Time as the code sees it: replaceable, so that an hour can pass in a test without waiting. */

export interface Timer {
  /** Safe to call twice and after it fired. */
  cancel(): void
}

export interface Clock {
  /** Milliseconds since 1970. */
  now(): number
  /** Calls back once after `ms`; soon, if that is not positive. */
  after(ms: number, callback: () => void): Timer
}

/** The machine's clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, callback) {
    let timeout: NodeJS.Timeout
    const wait = (leftMs: number): void => {
      timeout =
        leftMs > MAX_TIMEOUT_MS
          ? setTimeout(() => wait(leftMs - MAX_TIMEOUT_MS), MAX_TIMEOUT_MS)
          : setTimeout(callback, leftMs)
    }
    // What is due already is called at once; the platform would warn of a negative time.
    wait(Math.max(0, ms))
    return { cancel: () => clearTimeout(timeout) }
  },
}

/** Waits; an abort ends the wait with the signal's reason. */
export function sleep(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason)
    const stop = (): void => {
      timer.cancel()
      reject(signal?.reason)
    }
    const timer = clock.after(ms, () => {
      signal?.removeEventListener('abort', stop)
      resolve()
    })
    signal?.addEventListener('abort', stop, { once: true })
  })
}

// Longer waits overflow in setTimeout, which then calls back at once.
const MAX_TIMEOUT_MS = 2 ** 31 - 1
