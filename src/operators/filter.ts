/** Keeps the values that pass a test; what fails it is settled on the spot. */
import type { Operator } from '../core/stage.ts'
import { type CallbackOptions, callbackOperator } from './callback-operator.ts'

/**
 * Passes on the values for which `keep` returns true and acks the others.
 * Keeps order. Holds nothing. A throwing `keep` is tried again or given up as the error policy says.
 * @example changes.pipe(filter((change) => change.table === 'Orders'))
 */
export function filter<T, U extends T>(keep: (value: T) => value is U, options?: CallbackOptions): Operator<T, U>
export function filter<T>(keep: (value: T) => boolean, options?: CallbackOptions): Operator<T, T>
export function filter<T>(keep: (value: T) => boolean, options: CallbackOptions = {}): Operator<T, T> {
  return callbackOperator<T, boolean, T>(
    'filter',
    keep,
    (delivery, isKept, out) => {
      if (isKept) out.push(delivery)
      else delivery.ack()
    },
    options,
  )
}
