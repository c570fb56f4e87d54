/** What map, filter, tap and flatMap share: one plain callback per value, under the error policy. */
import { attemptAgain } from '../core/attempt.ts'
import type { Clock } from '../core/clock.ts'
import { callback, knownKeys } from '../core/options.ts'
import { chunkOperator, type Item, isMark, type Operator } from '../core/stage.ts'
import type { Delivery } from '../core/types.ts'
import { asStage } from './as-stage.ts'

/** Options of the operators that call back without waiting. */
export interface CallbackOptions {
  /**
   * What the waits between retries are measured with.
   * @default the machine's clock
   */
  readonly clock?: Clock
}

/** Calls `work` for each value and lets `put` say what follows from its result: what leaves, or a settlement. */
export function callbackOperator<T, R, U>(
  name: string,
  work: (value: T) => R,
  put: (delivery: Delivery<T>, result: R, out: Item<U>[]) => void,
  options: CallbackOptions,
): Operator<T, U> {
  callback(name, 'callback', work)
  knownKeys(name, options, ['clock'])
  const { clock } = options
  const apply = chunkOperator<T, U>(async function* callForEach(source, signal) {
    for await (const chunk of source) {
      let out: Item<U>[] = []
      for (const item of chunk) {
        if (isMark(item)) {
          out.push(item)
          continue
        }
        let result: R
        try {
          result = work(item.value)
        } catch (thrown) {
          // What is done leaves before the waits of a retry.
          if (out.length > 0) yield out
          out = []
          const attempted = await attemptAgain(name, item, work, thrown, signal, clock)
          if (attempted === undefined) continue
          result = attempted.result
        }
        put(item, result, out)
      }
      if (out.length > 0) yield out
    }
  })
  return (source) => apply(asStage(source))
}
