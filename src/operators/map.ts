/** Changes each value into another one. */
import type { Operator } from '../core/stage.ts'
import { type CallbackOptions, callbackOperator } from './callback-operator.ts'

/**
 * Passes on what `fn` returns for each value, with the same duty. For work that waits, use `parMap`.
 * Keeps order. Holds nothing. A throwing `fn` is tried again or given up as the error policy says.
 * @example changes.pipe(map((change) => change.keys))
 */
export function map<T, U>(fn: (value: T) => U, options: CallbackOptions = {}): Operator<T, U> {
  return callbackOperator<T, U, U>('map', fn, (delivery, result, out) => out.push(delivery.derive(result)), options)
}
