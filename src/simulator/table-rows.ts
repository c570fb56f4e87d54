/** The tables of a simulated database and their rows: which writes are possible and what a stream captures of them. */
import { ConfigError } from '../core/errors.ts'
import {
  type ColumnType,
  type ColumnTypeCode,
  type Mod,
  type ModType,
  type Row,
  rowKey,
  type ValueCaptureType,
} from '../model/data-change-record.ts'

export interface ColumnDefinition {
  readonly name: string
  /** A type code such as `INT64`, or a whole type for arrays and protos. */
  readonly type: string | ColumnTypeCode
  /** @default false */
  readonly isPrimaryKey?: boolean
}

export interface TableDefinition {
  readonly name: string
  readonly columns: readonly ColumnDefinition[]
}

/**
 * One row written. Values are as on the wire; INT64 may be given as a number or bigint, NaN and infinities as numbers.
 */
export interface RowWrite {
  readonly table: string
  readonly op: 'insert' | 'update' | 'delete'
  readonly keys: Row
  /** Columns that are not keys; columns left out are null in an insert and unchanged in an update. */
  readonly values?: Row
}

/** A write as the stream captures it. */
export interface CapturedWrite {
  readonly key: string
  readonly table: string
  readonly modType: ModType
  readonly mod: Mod
  readonly columnTypes: readonly ColumnType[]
  readonly valueCaptureType: ValueCaptureType
}

interface Table {
  readonly name: string
  readonly columnTypes: readonly ColumnType[]
  readonly keyColumns: readonly ColumnType[]
  readonly valueColumns: readonly ColumnType[]
  /** Column types by the captured columns' names, so that equal lists are the same object. */
  readonly columnTypesOf: Map<string, readonly ColumnType[]>
}

/** What a transaction does to one row. */
interface RowChange {
  readonly key: string
  readonly keys: Row
  readonly table: Table
  readonly before: Row | undefined
  after: Row | undefined
  readonly modified: Set<ColumnType>
  /** Whether the row as it is afterwards was inserted by this transaction. */
  isNew: boolean
}

/** Current rows of all tables. */
export class TableRows {
  valueCaptureType: ValueCaptureType
  readonly #tables = new Map<string, Table>()
  readonly #rows = new Map<string, Row>()

  constructor(valueCaptureType: ValueCaptureType) {
    this.valueCaptureType = valueCaptureType
  }

  define({ name, columns }: TableDefinition): void {
    if (this.#tables.has(name)) throw new ConfigError(`SimulatedStream: table ${name} is defined already`)
    const columnTypes = columns.map(({ name, type, isPrimaryKey = false }, index) => ({
      name,
      type: typeof type === 'string' ? { code: type } : type,
      isPrimaryKey,
      ordinalPosition: index + 1,
    }))
    // Spanner sorts the members of JSON objects: rows name their columns in this order, not in the table's.
    const byName = columnTypes.toSorted((a, b) => (a.name < b.name ? -1 : 1))
    const keyColumns = byName.filter((column) => column.isPrimaryKey)
    if (keyColumns.length === 0) throw new ConfigError(`SimulatedStream: table ${name} needs a primary key column`)
    const valueColumns = byName.filter((column) => !column.isPrimaryKey)
    this.#tables.set(name, { name, columnTypes, keyColumns, valueColumns, columnTypesOf: new Map() })
  }

  has(table: string): boolean {
    return this.#tables.has(table)
  }

  /** The current values of a row that are not keys; undefined if there is no such row. */
  get(table: string, keys: Row): Row | undefined {
    return this.#rows.get(this.keyOf(table, keys))
  }

  /** The ordering key of a row, whatever order its key columns are given in. */
  keyOf(tableName: string, keys: Row): string {
    const table = this.#table(tableName, 'a row key')
    return rowKey(table.name, pickColumns(table.keyColumns, keys))
  }

  /**
   * Applies all writes of a transaction, or none of them if one is impossible. What is captured is the net effect on
   * each row, in the order in which rows were first written.
   */
  apply(writes: readonly RowWrite[]): CapturedWrite[] {
    const changes = new Map<string, RowChange>()
    for (const [index, write] of writes.entries()) this.#note(write, `writes[${index}]`, changes)
    for (const [key, { after }] of changes) {
      if (after === undefined) this.#rows.delete(key)
      else this.#rows.set(key, after)
    }
    return [...changes.values()].flatMap((change) => this.#captured(change) ?? [])
  }

  #note(write: RowWrite, owner: string, changes: Map<string, RowChange>): void {
    const table = this.#table(write.table, owner)
    assertColumns(owner, table.name, 'keys', write.keys, table.keyColumns)
    const keys = pickColumns(table.keyColumns, write.keys)
    for (const { name } of table.keyColumns) {
      if (!(name in keys)) throw refuse(owner, `lacks key column ${name} of table ${table.name}`)
    }
    const given = write.values ?? NO_VALUES
    assertColumns(owner, table.name, 'values', given, table.valueColumns)
    const key = rowKey(table.name, keys)
    const row = this.#rows.get(key)
    const change = changes.get(key) ?? { key, keys, table, before: row, after: row, modified: new Set(), isNew: false }
    changes.set(key, change)
    const { after } = change
    if (write.op === 'insert') {
      if (after !== undefined) throw refuse(owner, `inserts a row into ${table.name} that exists already`)
      change.after = pickColumns(table.valueColumns, given, null)
      change.isNew = true
      return
    }
    if (after === undefined) throw refuse(owner, `${write.op}s a row of ${table.name} that does not exist`)
    if (write.op === 'delete') {
      if (Object.keys(given).length > 0) throw refuse(owner, `deletes a row of ${table.name} and gives it values`)
      change.after = undefined
      return
    }
    const modified = table.valueColumns.filter((column) => Object.hasOwn(given, column.name))
    if (modified.length === 0) throw refuse(owner, `updates no column of ${table.name}`)
    for (const column of modified) change.modified.add(column)
    change.after = pickColumns(table.valueColumns, given, after)
  }

  /** Undefined for a row that was neither there before nor is after. */
  #captured({ key, keys, table, before, after, modified, isNew }: RowChange): CapturedWrite | undefined {
    const capture = (
      modType: ModType,
      newValues: Row,
      oldValues: Row,
      columnTypes = table.columnTypes,
    ): CapturedWrite => {
      const mod = { keys, newValues, oldValues: this.#capturesOld ? oldValues : NO_VALUES }
      return { key, table: table.name, modType, mod, columnTypes, valueCaptureType: this.valueCaptureType }
    }
    if (after === undefined) return before && capture('DELETE', NO_VALUES, before)
    // A row that was deleted and inserted again is an insert.
    if (isNew) return capture('INSERT', after, NO_VALUES)
    const columns = table.valueColumns.filter((column) => modified.has(column))
    const oldValues = pickColumns(columns, before!)
    if (this.#capturesWholeRow) return capture('UPDATE', after, oldValues)
    return capture('UPDATE', pickColumns(columns, after), oldValues, columnTypesFor(table, columns))
  }

  get #capturesOld(): boolean {
    return this.valueCaptureType === 'OLD_AND_NEW_VALUES' || this.valueCaptureType === 'NEW_ROW_AND_OLD_VALUES'
  }

  get #capturesWholeRow(): boolean {
    return this.valueCaptureType === 'NEW_ROW' || this.valueCaptureType === 'NEW_ROW_AND_OLD_VALUES'
  }

  #table(name: string, owner: string): Table {
    const table = this.#tables.get(name)
    if (table !== undefined) return table
    throw new ConfigError(`SimulatedStream: ${owner} names table ${name}, which is not defined`, {
      hint: `Defined tables: ${[...this.#tables.keys()].join(', ') || 'none; call defineTable first'}`,
    })
  }
}

/** An update names only the columns that it changed, so records with other columns have other column types. */
function columnTypesFor(table: Table, modified: readonly ColumnType[]): readonly ColumnType[] {
  if (modified.length === table.valueColumns.length) return table.columnTypes
  const names = modified.map((column) => column.name).join('\n')
  let columnTypes = table.columnTypesOf.get(names)
  if (columnTypes === undefined) {
    columnTypes = table.columnTypes.filter((column) => column.isPrimaryKey || modified.includes(column))
    table.columnTypesOf.set(names, columnTypes)
  }
  return columnTypes
}

/**
 * The columns' values in the columns' order, missing ones from `otherwise`: a row, null for null, or left out.
 * A null prototype keeps a column called `__proto__`.
 */
function pickColumns(columns: readonly ColumnType[], values: Row, otherwise?: Row | null): Row {
  const row: Record<string, unknown> = Object.create(null)
  for (const { name, type } of columns) {
    if (Object.hasOwn(values, name)) row[name] = onTheWire(values[name], type)
    else if (otherwise !== undefined) row[name] = otherwise?.[name] ?? null
  }
  return row
}

/** JSON has no bigint, and would make null of a number that is not finite. */
function onTheWire(value: unknown, { code, array_element_type: element }: ColumnTypeCode): unknown {
  if (value === undefined) return null
  if (typeof value === 'bigint') return String(value)
  if (typeof value === 'number') return code === 'INT64' || !Number.isFinite(value) ? String(value) : value
  return Array.isArray(value) && element !== undefined ? value.map((item) => onTheWire(item, element)) : value
}

function assertColumns(owner: string, table: string, what: string, row: Row, columns: readonly ColumnType[]): void {
  for (const name of Object.keys(row)) {
    if (columns.some((column) => column.name === name)) continue
    throw refuse(owner, `has ${what}.${name}, which is not a ${what === 'keys' ? 'key' : 'value'} column of ${table}`)
  }
}

function refuse(owner: string, rule: string): ConfigError {
  return new ConfigError(`SimulatedStream: ${owner} ${rule}`)
}

const NO_VALUES: Row = Object.freeze(Object.create(null))
