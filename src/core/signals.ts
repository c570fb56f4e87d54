/** Abort signals without leaks: whatever is linked or waited for lets go of its listeners. */
import type { Clock } from './clock.ts'

/** A signal that follows two others; `unlink` lets go of them, so that long-lived ones collect no listeners. */
export function linkSignals(
  a: AbortSignal,
  b: AbortSignal,
): { readonly signal: AbortSignal; readonly unlink: () => void } {
  const controller = new AbortController()
  const onA = (): void => controller.abort(a.reason)
  const onB = (): void => controller.abort(b.reason)
  if (a.aborted) onA()
  else if (b.aborted) onB()
  a.addEventListener('abort', onA, { once: true })
  b.addEventListener('abort', onB, { once: true })
  const unlink = (): void => {
    a.removeEventListener('abort', onA)
    b.removeEventListener('abort', onB)
  }
  return { signal: controller.signal, unlink }
}

/** Waits for a promise or the abort, whichever is first; an abort rejects with the signal's reason. */
export function abortable<T>(promise: PromiseLike<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(signal.reason)
    if (signal.aborted) stop()
    signal.addEventListener('abort', stop, { once: true })
    // Also after an abort: a rejection that nobody hears would end the process.
    promise.then(
      (value) => {
        signal.removeEventListener('abort', stop)
        resolve(value)
      },
      (error: unknown) => {
        signal.removeEventListener('abort', stop)
        reject(error)
      },
    )
  })
}

/** Waits for a promise, but no longer than `ms`; says whether it was settled in time. Never rejects. */
export function settlesWithin(clock: Clock, ms: number, promise: PromiseLike<unknown>): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = clock.after(ms, () => resolve(false))
    const settled = (): void => {
      timer.cancel()
      resolve(true)
    }
    promise.then(settled, settled)
  })
}
