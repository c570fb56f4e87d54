/** The values of a struct in a result: each opened where it lies, refused by name if it is of another kind. */
import { MalformedRecord } from './malformed.ts'
import type { Places } from './record-layout.ts'
import { VALUE_KIND, type WireReader } from './wire-reader.ts'

export function openList(reader: WireReader, start: number, end: number, field: string): void {
  reader.openValue(start, end)
  if (reader.kind !== VALUE_KIND.list) throw new MalformedRecord(field, 'is not a list')
}

export function text(reader: WireReader, start: number, end: number, field: string): string {
  reader.openValue(start, end)
  if (reader.kind !== VALUE_KIND.string) throw new MalformedRecord(field, 'is not a text')
  return reader.bytes.toString('utf8', reader.contentStart, reader.contentEnd)
}

export function flag(reader: WireReader, start: number, end: number, field: string): boolean {
  reader.openValue(start, end)
  if (reader.kind !== VALUE_KIND.bool) throw new MalformedRecord(field, 'is not true or false')
  return reader.contentStart === 1
}

export function isNull(reader: WireReader, start: number, end: number): boolean {
  reader.openValue(start, end)
  return reader.kind === VALUE_KIND.null || reader.kind === VALUE_KIND.none
}

/** Whether there is a row, as a text between `contentStart` and `contentEnd`; an absent side is null or `{}`. */
export function hasRow(reader: WireReader, start: number, end: number, field: string): boolean {
  if (isNull(reader, start, end)) return false
  if (reader.kind !== VALUE_KIND.string) throw new MalformedRecord(field, 'is not a text')
  return reader.contentEnd - reader.contentStart !== EMPTY_ROW.length || !isEmptyRow(reader)
}

function isEmptyRow({ bytes, contentStart }: WireReader): boolean {
  return bytes[contentStart] === EMPTY_ROW.charCodeAt(0) && bytes[contentStart + 1] === EMPTY_ROW.charCodeAt(1)
}

export type Range = readonly [start: number, end: number]

/** Where the elements of a list lie. For what is rare: it makes a list of its own. */
export function elementsOf(reader: WireReader, start: number, end: number, field: string): Range[] {
  openList(reader, start, end, field)
  const listEnd = reader.contentEnd
  reader.at = reader.contentStart
  const ranges: Range[] = []
  while (reader.hasElement(listEnd)) {
    const stop = reader.lengthEnd(listEnd)
    ranges.push([reader.at, stop])
    reader.at = stop
  }
  return ranges
}

/** Where each field of a struct lies, by name. For what is rare. */
export function fieldsOf<const Name extends string>(
  reader: WireReader,
  start: number,
  end: number,
  places: Places,
  owner: string,
  known: readonly Name[],
): (name: Name) => Range {
  const ranges = elementsOf(reader, start, end, owner)
  return (name) => {
    const place = places.indexOf(known.indexOf(name))
    const range = place === -1 ? undefined : ranges[place]
    if (range === undefined) throw new MalformedRecord(`${owner}.${name}`, 'is missing')
    return range
  }
}

const EMPTY_ROW = '{}'
