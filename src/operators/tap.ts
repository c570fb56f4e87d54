/** Looks at each value on its way. */
import type { Operator } from '../core/stage.ts'
import { type CallbackOptions, callbackOperator } from './callback-operator.ts'

/**
 * Calls `fn` for each value and passes the delivery on unchanged; what `fn` returns is ignored and not awaited.
 * Keeps order. Holds nothing. A throwing `fn` is tried again or given up as the error policy says.
 * @example changes.pipe(tap((change) => counts.add(change.table)))
 */
export function tap<T>(fn: (value: T) => void, options: CallbackOptions = {}): Operator<T, T> {
  return callbackOperator<T, void, T>('tap', fn, (delivery, _, out) => out.push(delivery), options)
}
