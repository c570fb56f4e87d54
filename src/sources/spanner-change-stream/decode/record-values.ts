/** The values that all three forms of a record have in common: rows, names of kinds, counts, times. */
import { type CommitTimestamp, parseTimestamp } from '../../../model/commit-timestamp.ts'
import type { ColumnTypeCode, ModType, Row, ValueCaptureType } from '../../../model/data-change-record.ts'
import { MalformedRecord } from './malformed.ts'

export const NO_VALUES: Row = Object.freeze(Object.create(null) as Row)

/** About what a record takes in memory besides its values. */
export const RECORD_BYTES = 500

/** JSON.parse keeps names such as `__proto__` as they are. An absent side comes as an empty object or as null. */
export function parseRow(text: string, field: string): Row {
  if (text === '{}') return NO_VALUES
  const row = asRow(parseJson(text, field), field)
  return row === INEXACT ? asRow(parseExactly(text, field), field, true) : row
}

/**
 * INEXACT if a number may have lost digits on its way through JSON.parse: then `parseExactly` keeps it as a text. What
 * it returns is exact; the large doubles in it are what they are.
 */
export function asRow(value: unknown, field: string, isExact = false): Row {
  if (value === null || value === undefined) return NO_VALUES
  if (typeof value !== 'object' || Array.isArray(value)) throw new MalformedRecord(field, 'is not a JSON object')
  const row = value as Row
  for (const name in row) {
    const cell = row[name]
    if (typeof cell === 'string') continue
    if ((typeof cell === 'object' ? !isExactInside(cell, field, 1) : isInexact(cell)) && !isExact) return INEXACT
  }
  return row
}

/** INT64 is sent as a text; where a server sends it as a number, one beyond 2^53 becomes a text. */
export function parseExactly(text: string, field: string): unknown {
  try {
    return parseWithSource(text, (_, value, { source }) =>
      isInexact(value) && source !== undefined && INTEGER.test(source) ? source : value,
    )
  } catch {
    throw new MalformedRecord(field, 'is not JSON')
  }
}

/** Without the parser's message: it quotes the text, which is row content. */
export function parseJson(text: string, field: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new MalformedRecord(field, 'is not JSON')
  }
}

export function parseTime(text: unknown, field: string): CommitTimestamp {
  if (typeof text !== 'string') throw new MalformedRecord(field, 'is not a text')
  try {
    return parseTimestamp(text)
  } catch {
    throw new MalformedRecord(field, 'is not a timestamp')
  }
}

export function asModType(text: string, field: string): ModType {
  if (text === 'INSERT' || text === 'UPDATE' || text === 'DELETE') return text
  throw new MalformedRecord(field, 'is a kind of change that Millrace does not know')
}

export function asCaptureType(text: string, field: string): ValueCaptureType {
  if (CAPTURE_TYPES.has(text)) return text as ValueCaptureType
  throw new MalformedRecord(field, 'is a capture type that Millrace does not know')
}

export function asCount(value: unknown, field: string): number {
  const count = typeof value === 'string' && DIGITS.test(value) ? Number(value) : value
  if (typeof count === 'number' && Number.isSafeInteger(count) && count >= 0) return count
  throw new MalformedRecord(field, 'is not a number')
}

export function asColumnType(value: unknown, field: string): ColumnTypeCode {
  const code = (value as { code?: unknown } | null)?.code
  if (typeof code !== 'string') throw new MalformedRecord(field, 'is not a type')
  // Throws if it is too deep.
  isExactInside(value, field, 1)
  return value as ColumnTypeCode
}

/** What is nested deeper than MAX_DEPTH can be read but not written as JSON again. */
function isExactInside(value: unknown, field: string, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return !isInexact(value)
  if (depth > MAX_DEPTH) throw new MalformedRecord(field, `is nested deeper than ${MAX_DEPTH} levels`)
  let isExact = true
  // All of them, also behind an inexact one: each may be too deep.
  for (const element of Object.values(value)) if (!isExactInside(element, field, depth + 1)) isExact = false
  return isExact
}

function isInexact(value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value)
}

/** Stands for a row whose numbers have to be read again. */
export const INEXACT: Row = Object.freeze({})
/** The reviver hears the text of each number, which the types of the language do not know yet. */
const parseWithSource = JSON.parse as (
  text: string,
  revive: (key: string, value: unknown, context: { readonly source?: string }) => unknown,
) => unknown
const INTEGER = /^-?\d+$/
const DIGITS = /^\d{1,16}$/
const MAX_DEPTH = 200
const CAPTURE_TYPES: ReadonlySet<string> = new Set([
  'OLD_AND_NEW_VALUES',
  'NEW_VALUES',
  'NEW_ROW',
  'NEW_ROW_AND_OLD_VALUES',
])
