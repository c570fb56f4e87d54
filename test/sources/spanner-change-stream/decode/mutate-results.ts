/** Turns good results into garbage: wrong types, missing and doubled fields, broken bytes, at every place. */
import type { SeededRandom } from '../../../../src/simulator/index.ts'
import { isList } from './random-results.ts'
import { lengthed, tagged, valueBytes, varint, type Wire } from './wire-writer.ts'

/** Stands in row values: no error may repeat it. */
export const MARKER = 'PLANTED-ROW-CONTENT'

/** Replaces, removes, doubles or adds one value somewhere in the tree. */
export function mutateWire(value: Wire, random: SeededRandom): Wire {
  // Deep places are many: most walks go on, so that every level has its turn.
  if (isList(value) && value.length > 0 && random.chance(0.93)) {
    const at = random.int(value.length)
    const change = random.next()
    if (change < 0.03) return value.toSpliced(at, 1)
    if (change < 0.05) return value.toSpliced(at, 0, value[at]!)
    if (change < 0.07) return value.toSpliced(at, 0, oddWire(random))
    return value.with(at, mutateWire(value[at]!, random))
  }
  if (typeof value === 'string' && random.chance(0.5)) return mutateText(value, random)
  return oddWire(random)
}

function oddWire(random: SeededRandom): Wire {
  return random.pick<() => Wire>([
    () => null,
    () => true,
    () => random.pick([0, 7, -1.5, Number.NaN, Number.POSITIVE_INFINITY]),
    () => '',
    () => MARKER,
    () => 'NaN',
    () => '{}',
    () => `{"a":"${MARKER}"}`,
    () => [],
    () => [[]],
    () => [MARKER, null, [true]],
    () => ({ bytes: Buffer.alloc(0) }),
    () => ({ bytes: lengthed(5, lengthed(1, MARKER)) }),
    () => ({ bytes: lengthed(3, Buffer.from([0xff, 0xc3, 0x28, 0xed, 0xa0, 0x80])) }),
    () => ({ bytes: nestedBytes(random.pick([5, 150, 3_000])) }),
    () => ({ bytes: Buffer.concat([valueBytes(MARKER), valueBytes(true), valueBytes('last')]) }),
  ])()
}

/** A list in a list in a list, written without recursion. */
function nestedBytes(levels: number): Buffer {
  let bytes = nested.get(levels)
  if (bytes !== undefined) return bytes
  bytes = valueBytes(MARKER)
  for (let i = 0; i < levels; i++) bytes = lengthed(6, lengthed(1, bytes))
  nested.set(levels, bytes)
  return bytes
}

const nested = new Map<number, Buffer>()

/** Cuts a text, or puts something into it that does not belong there. */
export function mutateText(text: string, random: SeededRandom): string {
  const at = random.int(text.length + 1)
  return random.pick([
    () => text.slice(0, at),
    () => text.slice(at),
    () => text.slice(0, at) + random.pick(['{', '[', '"', ',', '0', 'Z', '\u0000', MARKER, '😀']) + text.slice(at),
    () => `${text}${random.pick([' ', 'x', '}', '=', '"'])}`,
    () => '['.repeat(random.pick([10, 5_000])),
    () =>
      random.pick([
        'UPSERT',
        'NEW_COLUMNS',
        '-1',
        '1e9',
        '2026-13-01T00:00:00Z',
        '0',
        'null',
        'true',
        '12345678901234567890',
      ]),
  ])()
}

/** As `mutateWire`, for values of JSON. */
export function mutateJson(value: unknown, random: SeededRandom): unknown {
  if (typeof value === 'object' && value !== null && random.chance(0.93)) {
    const entries = Object.entries(value)
    if (entries.length > 0) {
      const at = random.int(entries.length)
      const [name, part] = entries[at]!
      const change = random.next()
      const changed: [string, unknown][] =
        change < 0.05
          ? entries.toSpliced(at, 1)
          : change < 0.08
            ? [...entries, [random.pick(['new_field', '__proto__', '', MARKER]), oddJson(random)]]
            : entries.with(at, [name, mutateJson(part, random)])
      return Array.isArray(value) ? changed.map(([, element]) => element) : Object.fromEntries(changed)
    }
  }
  if (typeof value === 'string' && random.chance(0.4)) return mutateText(value, random)
  return oddJson(random)
}

function oddJson(random: SeededRandom): unknown {
  return random.pick<unknown>([
    null,
    true,
    0,
    -1,
    1.5,
    2 ** 60,
    1e300,
    '',
    MARKER,
    [],
    [null],
    [MARKER],
    {},
    { a: MARKER },
  ])
}

/** Adds a field to a message behind the others, where the last one counts: of any number, wire type and content. */
export function mutateFields(message: Buffer, random: SeededRandom): Buffer {
  const field = 1 + random.int(14)
  const odd = random.pick<() => Buffer>([
    () => tagged(field, 0, varint(random.pick([0, 1, 15, 40, 50, 2 ** 31, 2 ** 52]))),
    () => tagged(field, 0, Buffer.alloc(random.pick([3, 9, 12]), 0xff)),
    () => tagged(field, 1, Buffer.alloc(8, 0xff)),
    () => tagged(field, 5, Buffer.alloc(4, 0xff)),
    () => lengthed(field, ''),
    () => lengthed(field, MARKER),
    () => lengthed(field, tagged(1 + random.int(3), 0, varint(random.pick([0, 9, 2 ** 45])))),
    () => lengthed(field, lengthed(1 + random.int(3), lengthed(2, nestedBytes(random.pick([3, 3_000]))))),
    () => tagged(field, 2, varint(random.pick([1, 2 ** 31, 2 ** 40]))),
    () => tagged(field, random.pick([3, 4, 6, 7])),
  ])()
  return Buffer.concat([message, odd])
}

/** Breaks bytes wherever they are. */
export function mutateBytes(bytes: Buffer, random: SeededRandom): Buffer {
  const at = random.int(bytes.length + 1)
  const [head, tail] = [bytes.subarray(0, at), bytes.subarray(at)]
  return random.pick<() => Buffer>([
    () => head,
    () => tail,
    () => flipped(bytes, random, 1),
    () => flipped(bytes, random, 8),
    () => Buffer.concat([head, Buffer.alloc(1 + random.int(12), random.pick([0, 0xff])), tail]),
    () => Buffer.concat([head, tail.subarray(1 + random.int(4))]),
    () => Buffer.concat([head, head]),
    () => Buffer.alloc(random.int(30), random.pick([0, 0x0a, 0x12, 0xff])),
    () => mutateFields(bytes, random),
  ])()
}

function flipped(bytes: Buffer, random: SeededRandom, count: number): Buffer {
  const changed = Buffer.from(bytes)
  if (changed.length === 0) return changed
  for (let i = 0; i < count; i++) changed[random.int(changed.length)]! ^= 1 << random.int(8)
  return changed
}
