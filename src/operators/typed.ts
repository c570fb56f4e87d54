/** Turns values as on the wire into JavaScript values, by column type. */
import type { Operator } from '../core/stage.ts'
import type { Change, DataChangeRecord, Gap } from '../model/data-change-record.ts'
import { type TypedChange, type TypedDataChangeRecord, typedChange, typedRecord } from '../model/typed-values.ts'
import { type CallbackOptions, callbackOperator } from './callback-operator.ts'

/** What `typed()` makes of a value. A gap stays as it is. */
export type Typed<T extends Change | DataChangeRecord | Gap> = T extends Change
  ? TypedChange
  : T extends DataChangeRecord
    ? TypedDataChangeRecord
    : T

/**
 * Passes on each change, or each record, with JavaScript values in place of those on the wire:
 *
 * | column type | becomes |
 * |---|---|
 * | BOOL | boolean |
 * | INT64 (and `oid`) | bigint |
 * | FLOAT32, FLOAT64 | number, with NaN and infinities |
 * | STRING, `varchar` | string |
 * | BYTES, PROTO | Uint8Array; the message's name is in the column type, `proto_type_fqn` |
 * | TIMESTAMP | text in UTC with nine fraction digits, never a Date |
 * | DATE | text, `YYYY-MM-DD` |
 * | NUMERIC | text, exact; `NaN` in the PostgreSQL dialect |
 * | JSON, `jsonb` | the parsed value; integers beyond 2^53 in it are bigint, other numbers are doubles |
 * | UUID, INTERVAL | text; an interval is ISO 8601 |
 * | ENUM | number |
 * | ARRAY | array of the above; elements may be null |
 *
 * NULL stays null. A type that is not known stays as on the wire, and so does `change.record` with its mods.
 * JSON.stringify refuses a bigint: turn it into text before a sink that writes JSON.
 *
 * Keeps order. Holds nothing. A gap passes untouched. A value that does not fit its type is an error that names table,
 * column and type, never the value; the error policy decides.
 * @example changes.pipe(typed(), map((change) => change.newValues.Total))
 */
export function typed<T extends Change | DataChangeRecord | Gap = Change>(
  options: CallbackOptions = {},
): Operator<T, Typed<T>> {
  return callbackOperator<T, Typed<T>, Typed<T>>(
    'typed',
    (value) => typedValue(value) as Typed<T>,
    (delivery, result, out) => out.push(delivery.derive(result)),
    options,
  )
}

function typedValue(value: Change | DataChangeRecord | Gap): TypedChange | TypedDataChangeRecord | Gap {
  if ('mods' in value) return typedRecord(value)
  return value.op === 'gap' ? value : typedChange(value)
}
