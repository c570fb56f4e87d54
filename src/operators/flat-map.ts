/** Changes each value into any number of values. */
import { callback } from '../core/options.ts'
import type { Operator } from '../core/stage.ts'
import { type CallbackOptions, callbackOperator } from './callback-operator.ts'

/**
 * Passes on every value of what `fn` returns. The delivery is settled when all of its parts are; no parts is an ack.
 * Keeps order. Holds the parts of one value at a time, so `fn` must not return an endless iterable. A throwing `fn`,
 * or one whose iterable throws, is tried again or given up as the error policy says.
 * @example changes.pipe(flatMap((change) => change.newValues.tags as string[]))
 */
export function flatMap<T, U>(fn: (value: T) => Iterable<U>, options: CallbackOptions = {}): Operator<T, U> {
  callback('flatMap', 'callback', fn)
  return callbackOperator<T, U[], U>(
    'flatMap',
    // Read out here, so that an iterable that throws halfway counts as a failing callback.
    (value) => [...fn(value)],
    (delivery, values, out) => {
      for (const part of delivery.split(values)) out.push(part)
    },
    options,
  )
}
