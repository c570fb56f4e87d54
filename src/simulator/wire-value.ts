/** Values as Spanner's API sends them, and how a large one is sent in pieces. */
import type { SeededRandom } from './seeded-random.ts'

export type WireValue = string | boolean | null | readonly WireValue[]

/** A type as the API describes it; the code goes by name. */
export interface WireType {
  readonly code: string
  readonly arrayElementType?: WireType
  readonly typeAnnotation?: string
  readonly protoTypeFqn?: string
  readonly structType?: { readonly fields: readonly { readonly name: string; readonly type: WireType }[] }
}

/**
 * Cuts a value so that the API's rules put it together again: strings are joined; lists are joined, and where they
 * meet, two strings or two lists are joined in turn.
 */
export function cutValue(value: WireValue, count: number, random: SeededRandom): WireValue[] {
  const pieces: WireValue[] = []
  let rest = value
  while (pieces.length < count - 1) {
    const [head, tail] = cutOnce(rest, random)
    pieces.push(head)
    rest = tail
  }
  pieces.push(rest)
  return pieces
}

function cutOnce(value: WireValue, random: SeededRandom): [head: WireValue, tail: WireValue] {
  if (typeof value === 'string') return cutString(value, random)
  if (!isList(value) || value.length === 0) return [value, typeof value === 'object' ? [] : value]
  const at = random.int(value.length)
  const element = value[at]!
  // An element that cannot be joined stays whole: the cut comes behind it.
  if (!isList(element) && typeof element !== 'string') return [value.slice(0, at + 1), value.slice(at + 1)]
  const [head, tail] = cutOnce(element, random)
  return [
    [...value.slice(0, at), head],
    [tail, ...value.slice(at + 1)],
  ]
}

function cutString(text: string, random: SeededRandom): [head: string, tail: string] {
  let at = random.int(text.length + 1)
  // Half of a surrogate pair is not valid UTF-8.
  if (/[\uDC00-\uDFFF]/.test(text[at] ?? '')) at--
  return [text.slice(0, at), text.slice(at)]
}

function isList(value: WireValue): value is readonly WireValue[] {
  return Array.isArray(value)
}
