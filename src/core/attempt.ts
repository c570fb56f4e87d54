/** Runs user code for one delivery under the pipeline's error policy: retries in place, settles what is given up. */
import { type Clock, sleep, systemClock } from './clock.ts'
import { OperatorError } from './errors.ts'
import type { Delivery } from './types.ts'

/** The result of user code, or `undefined` when the delivery was given up and is settled. */
export type Attempted<R> = { readonly result: R } | undefined

/** Runs `work` until it succeeds or the policy says otherwise. Waits between tries stay inside the caller's lane. */
export async function attempt<T, R>(
  operator: string,
  delivery: Delivery<T>,
  work: (value: T, attempt: number) => R | PromiseLike<R>,
  signal: AbortSignal,
  clock: Clock = systemClock,
): Promise<Attempted<R>> {
  for (let tries = 1; ; tries++) {
    try {
      return { result: await work(delivery.value, tries) }
    } catch (thrown) {
      await failed(operator, delivery, thrown, tries, signal, clock)
      if (delivery.isSettled) return undefined
    }
  }
}

/**
 * For callbacks that are not async and hardly ever fail: the caller tries first on its own, without a promise, and
 * comes here with what was thrown.
 */
export async function attemptAgain<T, R>(
  operator: string,
  delivery: Delivery<T>,
  work: (value: T) => R,
  thrown: unknown,
  signal: AbortSignal,
  clock: Clock = systemClock,
): Promise<Attempted<R>> {
  let failure = thrown
  for (let tries = 1; ; tries++) {
    await failed(operator, delivery, failure, tries, signal, clock)
    if (delivery.isSettled) return undefined
    try {
      return { result: work(delivery.value) }
    } catch (again) {
      failure = again
    }
  }
}

async function failed<T>(
  operator: string,
  delivery: Delivery<T>,
  thrown: unknown,
  tries: number,
  signal: AbortSignal,
  clock: Clock,
): Promise<void> {
  // Work that fails because the run was aborted says nothing about its value.
  signal.throwIfAborted()
  const error = new OperatorError(operator, thrown)
  const decision = delivery.decide(error, tries)
  if (typeof decision === 'object') return sleep(clock, decision.retryInMs, signal)
  delivery.nack(error, { attempt: tries, decision })
  // Nothing that comes after a value that stops the run may be worked on: it would overtake that value.
  if (decision === 'stop') throw error
  signal.throwIfAborted()
}
