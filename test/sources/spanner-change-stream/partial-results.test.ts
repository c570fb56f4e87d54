import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  type PartialResult,
  PartialResults,
  type WireValue,
} from '../../../src/sources/spanner-change-stream/partial-results.ts'

const text = (stringValue: string): WireValue => ({ stringValue })
const list = (...values: WireValue[]): WireValue => ({ listValue: { values } })

/** Any value that a result may hold. */
const anyValue: fc.Arbitrary<WireValue> = fc.letrec<{ value: WireValue; list: WireValue }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constant<WireValue>({ nullValue: 'NULL_VALUE' }),
    fc.boolean().map((boolValue): WireValue => ({ boolValue })),
    fc.double({ noNaN: true }).map((numberValue): WireValue => ({ numberValue })),
    fc.string({ unit: 'binary' }).map(text),
    tie('list'),
  ),
  list: fc.array(tie('value'), { maxLength: 4 }).map((values) => list(...values)),
})).value

/**
 * Cuts a value in two as Spanner does: a string anywhere, a list between two elements or inside one. Undefined if it
 * cannot be cut. Between two elements only where a reader would not take them for one.
 */
function cutOnce(value: WireValue, random: () => number): [WireValue, WireValue] | undefined {
  if (typeof value.stringValue === 'string') {
    const at = Math.floor(random() * (value.stringValue.length + 1))
    return [text(value.stringValue.slice(0, at)), text(value.stringValue.slice(at))]
  }
  const values = value.listValue?.values
  if (!values || values.length === 0) return undefined
  const at = Math.floor(random() * values.length)
  const inside = random() < 0.7 ? cutOnce(values[at]!, random) : undefined
  if (inside) return [list(...values.slice(0, at), inside[0]), list(inside[1], ...values.slice(at + 1))]
  const last = values[at - 1]
  const wouldMerge = last && ((isText(last) && isText(values[at]!)) || (last.listValue && values[at]!.listValue))
  // Where both neighbours are of one kind, the API puts an empty element in front of the second.
  const rest = wouldMerge ? [last.listValue ? list() : text(''), ...values.slice(at)] : values.slice(at)
  return [list(...values.slice(0, at)), list(...rest)]
}

function isText(value: WireValue): boolean {
  return typeof value.stringValue === 'string'
}

/** Messages that together hold the values, cut here and there. */
function messagesOf(values: readonly WireValue[], random: () => number): PartialResult[] {
  const messages: PartialResult[] = []
  let current: WireValue[] = []
  for (const value of values) {
    let rest = value
    while (random() < 0.5) {
      const cut = cutOnce(rest, random)
      if (cut === undefined) break
      messages.push({ values: [...current, cut[0]], chunkedValue: true })
      current = []
      rest = cut[1]
    }
    current.push(rest)
    if (random() < 0.5) continue
    messages.push({ values: current, chunkedValue: false })
    current = []
  }
  messages.push({ values: current })
  return messages
}

describe('PartialResults', () => {
  test('gives back any values, however they were cut', () => {
    fc.assert(
      fc.property(
        fc.array(anyValue, { maxLength: 5 }),
        fc.infiniteStream(fc.double({ min: 0, max: 0.999, noNaN: true })),
        (values, stream) => {
          const results = new PartialResults()
          const messages = messagesOf(values, () => stream.next().value)
          expect(messages.flatMap((message) => results.take(message))).toEqual(values)
          expect(results.isCut).toBe(false)
        },
      ),
      { numRuns: 2000, seed: 1118 },
    )
  })

  // The examples of the API's own documentation.
  const documented: [name: string, cut: WireValue, rest: WireValue, whole: WireValue][] = [
    ['strings are joined', text('foo'), text('bar'), text('foobar')],
    [
      'lists of other kinds are joined',
      list({ numberValue: 2 }, { numberValue: 3 }),
      list({ numberValue: 4 }),
      list({ numberValue: 2 }, { numberValue: 3 }, { numberValue: 4 }),
    ],
    [
      'the last and first of lists are merged',
      list(text('a'), text('b')),
      list(text('c'), text('d')),
      list(text('a'), text('bc'), text('d')),
    ],
    [
      'lists in lists are merged',
      list(text('a'), list(text('b'), text('c'))),
      list(list(text('d')), text('e')),
      list(text('a'), list(text('b'), text('cd')), text('e')),
    ],
  ]
  test.each(documented)('%s', (_, cut, rest, whole) => {
    const results = new PartialResults()
    expect(results.take({ values: [cut], chunkedValue: true })).toEqual([])
    expect(results.isCut).toBe(true)
    expect(results.take({ values: [rest] })).toEqual([whole])
    expect(results.isCut).toBe(false)
  })

  test('a value may be cut over many messages, and others follow it', () => {
    const results = new PartialResults()
    const messages = [
      { values: [text('whole'), text('a')], chunkedValue: true },
      { values: [text('b')], chunkedValue: true },
      { values: [] },
      { values: [text('c'), text('next')] },
    ]
    expect(messages.flatMap((message) => results.take(message))).toEqual([text('whole'), text('abc'), text('next')])
  })

  test('a message without values changes nothing', () => {
    const results = new PartialResults()
    expect(results.take({})).toEqual([])
    expect(results.take({ values: null, chunkedValue: null })).toEqual([])
    expect(results.isCut).toBe(false)
  })
})
