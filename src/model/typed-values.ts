/** From values as on the wire to JavaScript values, by column type. */
import { SourceError } from '../core/errors.ts'
import { type CommitTimestamp, parseTimestamp } from './commit-timestamp.ts'
import type { Change, ColumnType, ColumnTypeCode, DataChangeRecord, Mod, Row } from './data-change-record.ts'
import { type JsonValue, parseJsonExactly } from './exact-json.ts'

/** What a value of a known type becomes; see `typed()` for which type becomes what. */
export type TypedValue = JsonValue | CommitTimestamp | Uint8Array | readonly TypedValue[]

/** Column values by name, as JavaScript values. A type that is not known yet leaves its value as on the wire. */
export type TypedRow = Readonly<Record<string, TypedValue>>

export interface TypedMod extends Mod {
  readonly keys: TypedRow
  readonly newValues: TypedRow
  readonly oldValues: TypedRow
}

/** A row change with JavaScript values. `record` is still the record as Spanner sent it. */
export interface TypedChange extends Change {
  readonly keys: TypedRow
  readonly newValues: TypedRow
  readonly oldValues: TypedRow
}

/** A record whose mods hold JavaScript values. */
export interface TypedDataChangeRecord extends DataChangeRecord {
  readonly mods: readonly TypedMod[]
}

/** The same change with JavaScript values. Throws a SourceError if a value does not fit the type of its column. */
export function typedChange(change: Change): TypedChange {
  const { table, op, keys, newValues, oldValues, commitTimestamp, modIndex, record } = change
  const mod = typedMod({ keys, newValues, oldValues }, record)
  return {
    table,
    op,
    keys: mod.keys,
    newValues: mod.newValues,
    oldValues: mod.oldValues,
    commitTimestamp,
    modIndex,
    record,
  }
}

/** The same record with JavaScript values in its mods. Throws a SourceError as `typedChange` does. */
export function typedRecord(record: DataChangeRecord): TypedDataChangeRecord {
  return { ...record, mods: record.mods.map((mod) => typedMod(mod, record)) }
}

function typedMod({ keys, newValues, oldValues }: Mod, record: DataChangeRecord): TypedMod {
  const converters = convertersOf(record.columnTypes)
  return {
    keys: typedRow(keys, converters, record),
    newValues: typedRow(newValues, converters, record),
    oldValues: typedRow(oldValues, converters, record),
  }
}

/** Without a prototype: a column may be named `__proto__`, and assigning to that would lose it. */
function typedRow(row: Row, converters: Converters, record: DataChangeRecord): TypedRow {
  const typed: Record<string, TypedValue> = Object.create(null)
  for (const name of Object.keys(row)) {
    const value = row[name]
    const convert = converters.get(name)
    if (convert === undefined || value === null) {
      typed[name] = value as TypedValue
      continue
    }
    const converted = convert(value)
    if (converted === undefined) throw misfit(name, record)
    typed[name] = converted
  }
  return typed
}

/** Gives undefined for what does not fit the type: an error made here could hold the value. */
type Convert = (value: unknown) => TypedValue | undefined
type Converters = ReadonlyMap<string, Convert>

/** Records share their column types, so this is hardly ever asked for something new. */
const known = new WeakMap<readonly ColumnType[], Converters>()

function convertersOf(columnTypes: readonly ColumnType[]): Converters {
  let converters = known.get(columnTypes)
  if (converters === undefined) {
    const entries = columnTypes.map(({ name, type }) => [name, converterOf(type)] as const)
    converters = new Map(entries.filter((entry): entry is readonly [string, Convert] => entry[1] !== undefined))
    known.set(columnTypes, converters)
  }
  return converters
}

/** Undefined for a type that is not known. */
function converterOf(type: ColumnTypeCode): Convert | undefined {
  if (type.code === 'ARRAY') return arrayConverter(type.array_element_type)
  return CONVERTERS.get(type.code)
}

function arrayConverter(element: ColumnTypeCode | undefined): Convert | undefined {
  const convert = element === undefined ? undefined : converterOf(element)
  if (element === undefined || convert === undefined) return undefined
  const isNull = NULL_AS_TEXT.has(element.code)
    ? (value: unknown) => value === null || value === 'NULL'
    : (value: unknown) => value === null
  return (value) => {
    if (!Array.isArray(value)) return undefined
    const converted: TypedValue[] = []
    for (const item of value as readonly unknown[]) {
      const typed = isNull(item) ? null : convert(item)
      if (typed === undefined) return undefined
      converted.push(typed)
    }
    return converted
  }
}

/** The emulator writes a NULL in arrays of these types as the text `NULL`, which is no value of theirs. */
const NULL_AS_TEXT: ReadonlySet<string> = new Set(['INT64', 'DATE', 'NUMERIC', 'JSON'])

const CONVERTERS: ReadonlyMap<string, Convert> = new Map<string, Convert>([
  ['BOOL', (value) => (typeof value === 'boolean' ? value : undefined)],
  ['INT64', toBigInt],
  ['FLOAT32', toNumber],
  ['FLOAT64', toNumber],
  ['STRING', toText],
  ['BYTES', toBytes],
  ['PROTO', toBytes],
  ['TIMESTAMP', toTimestamp],
  ['DATE', textLike(/^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])$/)],
  ['NUMERIC', textLike(/^(?:NaN|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)$/)],
  ['JSON', toJson],
  ['UUID', textLike(/^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/i)],
  ['INTERVAL', textLike(/^P[\dYMWDTHS.,+-]+$/)],
  ['ENUM', toEnum],
])

function toBigInt(value: unknown): bigint | undefined {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? BigInt(value) : undefined
  if (typeof value !== 'string' || !INTEGER.test(value)) return undefined
  const integer = BigInt(value)
  return BigInt.asIntN(64, integer) === integer ? integer : undefined
}

function toNumber(value: unknown): number | undefined {
  if (typeof value === 'number') return value
  if (typeof value !== 'string') return undefined
  // Decoders keep a whole number beyond 2^53 as its digits: whether it may be rounded, the column's type tells.
  return LONG_INTEGER.test(value) ? finite(Number(value)) : NOT_FINITE.get(value)
}

function finite(number: number): number | undefined {
  return Number.isFinite(number) ? number : undefined
}

function toText(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined
}

function toBytes(value: unknown): Uint8Array | undefined {
  // Buffer.from skips what is not base64, which would lose data without a word.
  return typeof value === 'string' && BASE64.test(value) && value.length % 4 === 0
    ? Buffer.from(value, 'base64')
    : undefined
}

function toTimestamp(value: unknown): CommitTimestamp | undefined {
  if (typeof value !== 'string') return undefined
  const year = value.indexOf('-')
  try {
    // The emulator writes the year 1 with one digit.
    return parseTimestamp(year > 0 && year < 4 ? value.padStart(value.length + 4 - year, '0') : value)
  } catch {
    return undefined
  }
}

/** The value comes as a JSON text; what is no text has been parsed with the row. */
function toJson(value: unknown): JsonValue | undefined {
  if (typeof value !== 'string') return value as JsonValue
  try {
    return parseJsonExactly(value)
  } catch {
    return undefined
  }
}

function toEnum(value: unknown): number | undefined {
  const number = typeof value === 'string' && INTEGER.test(value) ? Number(value) : value
  return typeof number === 'number' && (number | 0) === number ? number : undefined
}

function textLike(form: RegExp): Convert {
  return (value) => (typeof value === 'string' && form.test(value) ? value : undefined)
}

function misfit(column: string, record: DataChangeRecord): SourceError {
  const type = record.columnTypes.find(({ name }) => name === column)!.type
  return new SourceError(
    `a value of column ${JSON.stringify(column)} of table ${JSON.stringify(record.tableName)} is no ${typeName(type)}`,
    {
      code: 'SOURCE_MALFORMED',
      partition: record.partitionToken,
      hint: `It came in record ${record.serverTransactionId}/${record.recordSequence}. Without typed() the value arrives as on the wire.`,
    },
  )
}

function typeName({ code, array_element_type: element, type_annotation: annotation }: ColumnTypeCode): string {
  if (element !== undefined) return `${code}<${typeName(element)}>`
  return annotation === undefined ? code : `${code} (${annotation})`
}

const INTEGER = /^-?\d{1,19}$/
const LONG_INTEGER = /^-?\d{16,309}$/
const BASE64 = /^[A-Za-z\d+/]*={0,2}$/
const NOT_FINITE: ReadonlyMap<string, number> = new Map([
  ['NaN', Number.NaN],
  ['Infinity', Number.POSITIVE_INFINITY],
  ['-Infinity', Number.NEGATIVE_INFINITY],
])
