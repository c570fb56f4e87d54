/** A change as one line: short for people, whole for machines. Nothing in it can move the cursor. */
import { styleText } from 'node:util'
import { type Change, type ColumnType, changeId, type Row } from '../model/data-change-record.ts'

/** Turns a text into a coloured one. */
export type Paint = (colour: 'green' | 'yellow' | 'red' | 'gray' | 'bold', text: string) => string

export const plainPaint: Paint = (_colour, text) => text

/** As far as the stream shows colours. */
export function paintFor(stream: NodeJS.WriteStream): Paint {
  return (colour, text) => styleText(colour, text, { stream })
}

/** `2026-11-18T09:30:00.123456Z  update  Orders  Id=42  Status: "new" → "paid"  tx 1a2b3c4d` */
export function changeLine(change: Change, paint: Paint = plainPaint): string {
  const { table, op, keys, commitTimestamp, record } = change
  const types = new Map(record.columnTypes.map((column) => [column.name, column]))
  const parts = [
    paint('gray', shortTime(commitTimestamp)),
    paint(OP_COLOURS[op], op),
    paint('bold', visible(table)),
    pairs(keys, types).join(','),
    columns(change, types).join('  '),
    paint('gray', `tx ${shortId(record.serverTransactionId)}`),
  ]
  return parts.filter((part) => part !== '').join('  ')
}

/** The change with its record and its id, in one line of JSON; the rows of the record are not repeated in each of them. */
export function changeAsJson(change: Change): string {
  const { table, op, keys, newValues, oldValues, commitTimestamp, modIndex } = change
  const { mods: _mods, ...record } = change.record
  const id = changeId(change)
  const text = JSON.stringify({ id, table, op, keys, newValues, oldValues, commitTimestamp, modIndex, record })
  // The same JSON to whoever parses it: these characters stand inside strings only.
  return text.replace(UNSAFE, jsonEscape)
}

function columns(change: Change, types: ReadonlyMap<string, ColumnType>): string[] {
  const { op, newValues, oldValues } = change
  if (op === 'insert') return pairs(newValues, types)
  if (op === 'delete') return pairs(oldValues, types)
  const before = Object.keys(oldValues)
  // With whole rows after and changed columns before, what changed is what has a before.
  const changed = before.length > 0 ? before : Object.keys(newValues)
  return changed.map((name) => {
    const after = value(newValues[name], types.get(name))
    if (!Object.hasOwn(oldValues, name)) return `${visible(name)}=${after}`
    const shown = Object.hasOwn(newValues, name) ? after : '?'
    return `${visible(name)}: ${value(oldValues[name], types.get(name))} → ${shown}`
  })
}

function pairs(row: Row, types: ReadonlyMap<string, ColumnType>): string[] {
  return Object.entries(row).map(([name, cell]) => `${visible(name)}=${value(cell, types.get(name))}`)
}

/** Numbers, times and JSON come as strings; only what is text is quoted. */
function value(cell: unknown, column: ColumnType | undefined): string {
  if (typeof cell !== 'string') return visible(shortened(JSON.stringify(cell) ?? 'NULL')).replace(/^null$/, 'NULL')
  const text = shortened(cell)
  return BARE.has(column?.type.code ?? '') ? visible(text) : visible(JSON.stringify(text))
}

/** By characters, so that none is cut in two. */
function shortened(text: string): string {
  if (text.length <= MAX_VALUE) return text
  return `${[...text.slice(0, MAX_VALUE * 2)].slice(0, MAX_VALUE - 1).join('')}…`
}

function visible(text: string): string {
  return text.replace(/\p{Cc}/gu, jsonEscape).replace(UNSAFE, jsonEscape)
}

function jsonEscape(character: string): string {
  const units = Array.from({ length: character.length }, (_, index) => character.charCodeAt(index))
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`).join('')
}

/** Without the zeros behind microseconds, and still good as a `--start`. */
function shortTime(timestamp: string): string {
  return timestamp.replace(/(\.\d{6})000Z$/, '$1Z')
}

/** The ends differ more than the beginnings. */
function shortId(id: string): string {
  const bare = visible(id.replace(/=+$/, ''))
  return bare.length <= 10 ? bare : `…${bare.slice(-8)}`
}

const OP_COLOURS = { insert: 'green', update: 'yellow', delete: 'red' } as const
const BARE: ReadonlySet<string> = new Set([
  ...['INT64', 'NUMERIC', 'FLOAT64', 'FLOAT32', 'BOOL', 'TIMESTAMP', 'DATE', 'UUID', 'INTERVAL', 'ENUM', 'JSON'],
])
const MAX_VALUE = 60
/** Controls that JSON leaves as they are, marks that turn the direction of text, and line separators. */
const UNSAFE = /[\u007f-\u009f\u2028\u2029]|\p{Cf}/gu
