/** JSON texts of users, without loss: an integer that a number cannot hold becomes a bigint, what is larger stays text. */

/** A parsed JSON text. Integers beyond 2^53 are bigint; a number beyond 1.8e308 with an exponent is its text. */
export type JsonValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue }

/** As JSON.parse, which also keeps a key named `__proto__`; numbers with a fraction or exponent stay numbers. */
export function parseJsonExactly(text: string): JsonValue {
  // Looking at each value takes several times as long: only where there is a number that may need it.
  return LONG_NUMBER.test(text) ? JSON.parse(text, exactInteger) : JSON.parse(text)
}

function exactInteger(_key: string, value: JsonValue, context?: { readonly source?: string }): JsonValue {
  if (typeof value !== 'number' || Number.isSafeInteger(value)) return value
  const source = context?.source
  if (source === undefined) return value
  if (INTEGER.test(source)) return BigInt(source)
  return Number.isFinite(value) ? value : source
}

const LONG_NUMBER = /\d{16}|\d[eE]\+?\d{3}/
const INTEGER = /^-?\d+$/
