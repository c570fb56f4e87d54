/** Abort signals without leaks: whatever is linked or waited for lets go of its listeners. */

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
    if (signal.aborted) return reject(signal.reason)
    const stop = (): void => reject(signal.reason)
    signal.addEventListener('abort', stop, { once: true })
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
