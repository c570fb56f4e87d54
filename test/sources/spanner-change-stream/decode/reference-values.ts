/** What both halves of the reference decoder use: values as plain data, and checks that refuse what is not expected. */
import type { protos } from '@google-cloud/spanner'
import type { ChangeStreamRecord } from '../../../../src/model/data-change-record.ts'

export type Json = Readonly<Record<string, unknown>>
export type Plain = string | number | boolean | symbol | null | readonly Plain[]

export function plainValue(value: protos.google.protobuf.IValue): Plain {
  if (typeof value.stringValue === 'string') return value.stringValue
  if (typeof value.boolValue === 'boolean') return value.boolValue
  if (typeof value.numberValue === 'number') return value.numberValue
  if (value.listValue) return (value.listValue.values ?? []).map(plainValue)
  // Nobody takes it for a value, but where nobody looks it does no harm.
  if (value.structValue) return STRUCT
  return null
}

export function list(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw new Error('no list')
  return value
}

export function text(value: unknown): string {
  if (typeof value !== 'string') throw new Error('no text')
  return value
}

export function filled(value: unknown): string {
  if (text(value) === '') throw new Error('an empty text')
  return text(value)
}

export function flag(value: unknown): boolean {
  if (typeof value !== 'boolean') throw new Error('no flag')
  return value
}

export function count(value: unknown): number {
  const number = typeof value === 'string' && /^\d+$/.test(value) ? Number(value) : value
  if (typeof number !== 'number' || !Number.isSafeInteger(number) || number < 0) throw new Error('no count')
  return number
}

export function one(names: readonly string[], name: string | undefined): string {
  if (name === undefined || !names.includes(name)) throw new Error('no such name')
  return name
}

/** The same text for the same records, whatever the order of their fields. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) => {
    if (typeof part === 'number' && (Object.is(part, -0) || !Number.isFinite(part)))
      return `<${Object.is(part, -0) ? '-0' : part}>`
    if (typeof part !== 'object' || part === null || Array.isArray(part)) return part
    return Object.entries(part)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value]) => [`<${name}>`, value])
  })
}

/** Records without the estimate of their size, which is no part of what was sent. */
export function withoutBytes(records: readonly ChangeStreamRecord[]): object[] {
  return records.map(({ kind, record }) => ({ kind, record }))
}

export const CAPTURE_TYPES: readonly string[] = [
  'OLD_AND_NEW_VALUES',
  'NEW_VALUES',
  'NEW_ROW',
  'NEW_ROW_AND_OLD_VALUES',
]

const STRUCT = Symbol('struct')
