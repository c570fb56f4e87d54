/** Random change records, and all the ways in which a server may write and send them. */
import type { ColumnTypeCode } from '../../../../src/model/data-change-record.ts'
import type { SeededRandom } from '../../../../src/simulator/index.ts'
import {
  doubleBytes,
  lengthed,
  message,
  type ResultMessage,
  type Sprinkle,
  tagged,
  varint,
  type Wire,
} from './wire-writer.ts'

/** A map of values as its JSON text. */
export type JsonText = string

export interface RandomColumn {
  readonly name: string
  readonly type: ColumnTypeCode
  readonly isPrimaryKey: boolean
  readonly ordinal: number
}

/** A record before it is written in one of the three forms. */
export type RandomRecord =
  | { readonly kind: 'heartbeat'; readonly time: string }
  | {
      readonly kind: 'children'
      readonly time: string
      readonly sequence: string
      readonly children: readonly { readonly token: string; readonly parents: readonly (string | null)[] }[]
    }
  | {
      readonly kind: 'data'
      readonly time: string
      readonly sequence: string
      readonly transaction: string
      readonly isLast: boolean
      readonly table: string
      readonly capture: string
      readonly columns: readonly RandomColumn[]
      readonly mods: readonly Readonly<Record<'keys' | 'newValues' | 'oldValues', JsonText | null>>[]
      readonly modType: string
      readonly records: number
      readonly partitions: number
      readonly tag: string
      readonly isSystem: boolean
    }

export type RandomData = Extract<RandomRecord, { kind: 'data' }>

export function randomRecord(random: SeededRandom): RandomRecord {
  const kind = random.next()
  if (kind < 0.15) return { kind: 'heartbeat', time: randomTime(random) }
  if (kind < 0.3) {
    const parents = (): (string | null)[] =>
      random.chance(0.2) ? [null] : times(random.int(3), () => nearName(random, 'parent-token'))
    const children = times(random.int(4), () => ({ token: nearName(random, 'child-token'), parents: parents() }))
    return { kind: 'children', time: randomTime(random), sequence: sequence(random), children }
  }
  return {
    kind: 'data',
    time: randomTime(random),
    sequence: sequence(random),
    transaction: nearName(random, 'NjQzMjE='),
    isLast: random.chance(0.5),
    table: nearName(random, 'Orders'),
    capture: random.pick(['OLD_AND_NEW_VALUES', 'NEW_VALUES', 'NEW_ROW', 'NEW_ROW_AND_OLD_VALUES']),
    columns: randomColumns(random),
    mods: times(random.chance(0.05) ? 40 : random.int(4), () => ({
      keys: jsonText(randomRow(random)),
      newValues: random.chance(0.2) ? null : jsonText(randomRow(random)),
      oldValues: random.chance(0.3) ? '{}' : jsonText(randomRow(random)),
    })),
    modType: random.pick(['INSERT', 'UPDATE', 'DELETE']),
    records: random.int(random.chance(0.5) ? 3 : 100_000),
    partitions: random.int(4),
    tag: random.chance(0.4) ? '' : nearName(random, 'app=shop,action=a-tag-of-some-length'),
    isSystem: random.chance(0.3),
  }
}

/** Two names out of a few that are equally long and differ in one byte, so that a careless cache mixes them up. */
export function nearName(random: SeededRandom, base: string): string {
  const bytes = [...base]
  bytes[random.int(bytes.length)] = random.pick(['a', 'b', 'é'])
  return bytes.join('')
}

/** A few seconds only, so that neighbours share them; any number of fraction digits. */
export function randomTime(random: SeededRandom): string {
  const second = random.pick([
    '2026-11-18T09:30:00',
    '2026-11-18T09:30:01',
    '2027-01-18T09:30:00',
    '0001-01-01T00:00:00',
  ])
  const digits = random.int(10)
  return digits === 0 ? `${second}Z` : `${second}.${String(random.int(10 ** digits)).padStart(digits, '0')}Z`
}

const sequence = (random: SeededRandom): string => String(random.int(12)).padStart(8, '0')

function randomColumns(random: SeededRandom): RandomColumn[] {
  return times(1 + random.int(4), (place) => ({
    name: random.pick(['Id', 'Ie', 'If', '__proto__', 'constructor', 'Name']) + (random.chance(0.1) ? 'ü' : ''),
    type: random.pick(COLUMN_TYPES),
    isPrimaryKey: random.chance(0.3),
    ordinal: place + 1,
  }))
}

function randomRow(random: SeededRandom): [string, unknown][] {
  const names = ['Id', '__proto__', 'constructor', 'toString', '', 'Näme', 'Ie'].filter(() => random.chance(0.4))
  return names.map((name) => [name, randomCell(random, 0)])
}

/** Bigints stand for bare numbers that are too long for a double. */
export function randomCell(random: SeededRandom, depth: number): unknown {
  const kinds: (() => unknown)[] = [
    () => null,
    () => random.chance(0.5),
    () => String(random.int(2 ** 31)),
    () => randomText(random),
    () => (random.chance(0.5) ? random.next() * 1e6 : random.int(1000)),
    () => random.pick([1e300, 1.5e-300, 1e21, -1e25, Number.MAX_SAFE_INTEGER, -0.5]),
    () => random.pick([9007199254740993n, -9223372036854775808n]),
  ]
  if (depth < 3) kinds.push(() => times(random.int(4), () => randomCell(random, depth + 1)))
  return random.pick(kinds)()
}

/** Texts of every width of UTF-8, some long enough for lengths of two and three bytes. */
export function randomText(random: SeededRandom): string {
  const letters = ['a', 'Z', '0', '"', '\\', '\n', '\u0000', 'é', '√', '\u2028', '😀', '𝒳']
  const text = times(random.int(12), () => random.pick(letters)).join('')
  return random.chance(0.005) ? text.repeat(2000) : random.chance(0.1) ? text.repeat(20) : text
}

export function jsonText(row: readonly (readonly [string, unknown])[]): JsonText {
  return `{${row.map(([name, cell]) => `${JSON.stringify(name)}:${cellText(cell)}`).join(',')}}`
}

export function cellText(cell: unknown): string {
  if (typeof cell === 'bigint') return String(cell)
  return Array.isArray(cell) ? `[${cell.map(cellText).join(',')}]` : JSON.stringify(cell)
}

export function times<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index))
}

export function shuffled<T>(random: SeededRandom, list: readonly T[]): T[] {
  return list
    .map((item) => ({ item, place: random.next() }))
    .sort((a, b) => a.place - b.place)
    .map(({ item }) => item)
}

/** Unknown fields of every wire type, with field numbers that need one to five bytes. */
export function randomSprinkle(random: SeededRandom, chance: number): Sprinkle {
  return () => (random.chance(chance) ? unknownField(random, 0) : NOTHING)
}

function unknownField(random: SeededRandom, depth: number): Buffer {
  const field = random.pick([50, 200, 5_000, 400_000, 536_870_911])
  const kinds = [
    () => tagged(field, 0, varint(random.int(2 ** 31) * random.pick([1, 2 ** 20]))),
    () => tagged(field, 1, doubleBytes(random.next())),
    () => lengthed(field, 'x'.repeat(random.pick([0, 1, 127, 128, 300]))),
    () => tagged(field, 5, Buffer.from([1, 2, 3, 0x0a])),
    () => message([tagged(field, 3), ...(depth < 3 ? [unknownField(random, depth + 1)] : []), tagged(field, 4)]),
  ]
  return random.pick(kinds)()
}

/** Sends values as a server may: many in a message, cut anywhere, over any number of messages, empty ones between. */
export function randomMessages(random: SeededRandom, metadata: Buffer, values: readonly Wire[]): ResultMessage[] {
  const messages: ResultMessage[] = []
  let current: Wire[] = []
  const cutChance = random.pick([0, 0.3, 0.8])
  const send = (isChunked: boolean): void => {
    const token = random.chance(0.4) ? { resumeToken: Buffer.from(randomText(random).slice(0, 20)) } : {}
    messages.push({ values: current, isChunked, ...token, ...(messages.length === 0 && { metadata }) })
    current = []
    if (random.chance(0.1)) messages.push({ ...(random.chance(0.5) && { isChunked }) })
  }
  for (const value of values) {
    let rest = value
    while (random.chance(cutChance)) {
      const cut = cutOnce(rest, random)
      if (cut === undefined) break
      current.push(cut[0])
      send(true)
      rest = cut[1]
    }
    current.push(rest)
    if (random.chance(0.3)) send(false)
  }
  send(false)
  return messages
}

/**
 * Cuts a value as the API allows it: a text anywhere, a list between two elements or inside one. Undefined if it cannot
 * be cut. Where both neighbours would be joined, an empty element keeps them apart.
 */
export function cutOnce(value: Wire, random: SeededRandom): [Wire, Wire] | undefined {
  if (typeof value === 'string') {
    const letters = [...value]
    const at = random.int(letters.length + 1)
    return [letters.slice(0, at).join(''), letters.slice(at).join('')]
  }
  if (!isList(value) || value.length === 0) return undefined
  const at = random.int(value.length)
  const inside = random.chance(0.7) ? cutOnce(value[at]!, random) : undefined
  if (inside)
    return [
      [...value.slice(0, at), inside[0]],
      [inside[1], ...value.slice(at + 1)],
    ]
  const [last, next] = [value[at - 1], value[at]!]
  const separator: Wire[] =
    isList(last) && isList(next) ? [[]] : typeof last === 'string' && typeof next === 'string' ? [''] : []
  return [value.slice(0, at), [...separator, ...value.slice(at)]]
}

export function isList(value: Wire | undefined): value is readonly Wire[] {
  return Array.isArray(value)
}

const NOTHING = Buffer.alloc(0)
const COLUMN_TYPES: readonly ColumnTypeCode[] = [
  { code: 'INT64' },
  { code: 'STRING' },
  { code: 'TIMESTAMP' },
  { code: 'ARRAY', array_element_type: { code: 'FLOAT32' } },
  { code: 'PROTO', proto_type_fqn: 'shop.Order' },
  { code: 'NUMERIC', type_annotation: 'PG_NUMERIC' },
  { code: 'UUID' },
]
