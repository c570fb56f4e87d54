import type { SeededRandom } from '../../../../src/simulator/index.ts'
import { cellText, type RandomData, type RandomRecord, randomCell, shuffled, times } from './random-results.ts'
import { valueBytes, type Wire, type WireType } from './wire-writer.ts'

/** The order of the fields of each struct; names that are not known may stand among them. */
export type StructOrder = Readonly<Record<keyof typeof FIELDS, readonly string[]>>

export const FIELDS = {
  record: ['data_change_record', 'heartbeat_record', 'child_partitions_record'],
  data: [
    'commit_timestamp',
    'record_sequence',
    'server_transaction_id',
    'is_last_record_in_transaction_in_partition',
    'table_name',
    'value_capture_type',
    'column_types',
    'mods',
    'mod_type',
    'number_of_records_in_transaction',
    'number_of_partitions_in_transaction',
    'transaction_tag',
    'is_system_transaction',
  ],
  heartbeat: ['timestamp'],
  children: ['start_timestamp', 'record_sequence', 'child_partitions'],
  child: ['token', 'parent_partition_tokens'],
  columnType: ['name', 'type', 'is_primary_key', 'ordinal_position'],
  mod: ['keys', 'new_values', 'old_values'],
} as const

/** The order of the documentation. */
export const DOCUMENTED_ORDER: StructOrder = { ...FIELDS }

export function randomOrder(random: SeededRandom): StructOrder {
  const order = (names: readonly string[]): string[] =>
    shuffled(random, [...names, ...times(random.chance(0.3) ? 1 + random.int(2) : 0, (i) => `new_field_${i}`)])
  return Object.fromEntries(
    Object.entries(FIELDS).map(([struct, names]) => [struct, order(names)]),
  ) as unknown as StructOrder
}

/** The type of the column, as the metadata describes it. */
export function structType(order: StructOrder): WireType {
  const structs = (names: readonly string[], nested: Readonly<Record<string, WireType>> = {}): WireType => ({
    element: { fields: names.map((name) => [name, nested[name] ?? 'STRING'] as const) },
  })
  return structs(order.record, {
    data_change_record: structs(order.data, { column_types: structs(order.columnType), mods: structs(order.mod) }),
    heartbeat_record: structs(order.heartbeat),
    child_partitions_record: structs(order.children, { child_partitions: structs(order.child) }),
  })
}

/** Fields of a struct by name; a missing one is left out of the list at the end, or is null. */
export type Fields = Readonly<Record<string, Wire>>

export function struct(names: readonly string[], fields: Fields, extra: () => Wire = () => null): Wire {
  return names.map((name) => fields[name] ?? extra())
}

export function toStruct(record: RandomRecord, order: StructOrder, random: SeededRandom): Wire {
  const extra = (): Wire => random.pick<Wire>([null, 'text', true, 2.5, [], [['x'], null]])
  const kind = { data: 'data_change_record', heartbeat: 'heartbeat_record', children: 'child_partitions_record' }[
    record.kind
  ]
  const kinds = Object.fromEntries(
    FIELDS.record.map((name) => [name, name === kind ? [structFields(record, order, extra)] : []]),
  )
  return [struct(order.record, kinds, extra)]
}

function structFields(record: RandomRecord, order: StructOrder, extra: () => Wire): Wire {
  if (record.kind === 'heartbeat') return struct(order.heartbeat, { timestamp: record.time }, extra)
  if (record.kind === 'children') {
    const children = record.children.map(({ token, parents }) =>
      struct(order.child, { token, parent_partition_tokens: parents }, extra),
    )
    const { time, sequence } = record
    return struct(
      order.children,
      { start_timestamp: time, record_sequence: sequence, child_partitions: children },
      extra,
    )
  }
  return struct(order.data, dataFields(record, order, extra), extra)
}

export function dataFields(record: RandomData, order: StructOrder, extra: () => Wire = () => null): Fields {
  return {
    commit_timestamp: record.time,
    record_sequence: record.sequence,
    server_transaction_id: record.transaction,
    is_last_record_in_transaction_in_partition: record.isLast,
    table_name: record.table,
    value_capture_type: record.capture,
    column_types: record.columns.map(({ name, type, isPrimaryKey, ordinal }) =>
      struct(
        order.columnType,
        { name, type: JSON.stringify(type), is_primary_key: isPrimaryKey, ordinal_position: String(ordinal) },
        extra,
      ),
    ),
    mods: record.mods.map(({ keys, newValues, oldValues }) => {
      // An absent side must not be mistaken for a field that is left out.
      const side = (text: string | null): Wire => text ?? { bytes: valueBytes(null) }
      return struct(order.mod, { keys: side(keys), new_values: side(newValues), old_values: side(oldValues) }, extra)
    }),
    mod_type: record.modType,
    number_of_records_in_transaction: String(record.records),
    number_of_partitions_in_transaction: String(record.partitions),
    transaction_tag: record.tag,
    is_system_transaction: record.isSystem,
  }
}

/** An object of JSON, its keys in random order, with a few that no reader knows. */
export function toJson(record: RandomRecord, random: SeededRandom): string {
  const object = (fields: Readonly<Record<string, string>>): string => {
    const extra = random.chance(0.2) ? { new_field: cellText(randomCell(random, 0)) } : {}
    const entries = shuffled(random, Object.entries({ ...fields, ...extra }))
    return `{${entries.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(',')}}`
  }
  const list = (texts: readonly string[]): string => `[${texts.join(random.pick([',', ', ']))}]`
  const text = JSON.stringify
  const time = text(random.chance(0.5) ? record.time.replace('Z', '+00:00') : record.time)
  if (record.kind === 'heartbeat') return object({ heartbeat_record: object({ timestamp: time }) })
  if (record.kind === 'children') {
    const children = record.children.map(({ token, parents }) =>
      object({ token: text(token), parent_partition_tokens: text(parents) }),
    )
    const fields = { start_timestamp: time, record_sequence: text(record.sequence), child_partitions: list(children) }
    return object({ child_partitions_record: object(fields) })
  }
  const count = (value: number): string => (random.chance(0.5) ? String(value) : text(String(value)))
  return object({
    data_change_record: object({
      commit_timestamp: time,
      record_sequence: text(record.sequence),
      server_transaction_id: text(record.transaction),
      is_last_record_in_transaction_in_partition: text(record.isLast),
      table_name: text(record.table),
      value_capture_type: text(record.capture),
      column_types: list(
        record.columns.map(({ name, type, isPrimaryKey, ordinal }) =>
          object({
            name: text(name),
            type: text(type),
            is_primary_key: text(isPrimaryKey),
            ordinal_position: count(ordinal),
          }),
        ),
      ),
      mods: list(
        record.mods.map(({ keys, newValues, oldValues }) =>
          object({ keys: keys ?? '{}', old_values: oldValues ?? 'null', ...(newValues && { new_values: newValues }) }),
        ),
      ),
      mod_type: text(record.modType),
      number_of_records_in_transaction: count(record.records),
      number_of_partitions_in_transaction: count(record.partitions),
      transaction_tag: text(record.tag),
      is_system_transaction: text(record.isSystem),
    }),
  })
}
