/** Cases about the form of rows: columns, names of fields, one record each, text of times and numbers. */
import { describe, expect, test } from 'vitest'
import type { Dialect } from '../../src/model/change-stream.ts'
import type { WireValue } from '../../src/simulator/wire-value.ts'
import type { Scene } from './scene.ts'

export function rowShapeCases(dialect: Dialect, scene: () => Scene): void {
  const values = (): WireValue[] => [
    ...scene().walk.first.answer.values,
    ...[...scene().walk.partitions.values()].flatMap(({ answer }) => answer.values),
  ]
  if (dialect === 'googlesql') structCases(scene, values)
  else jsonCases(scene, values)
}

function structCases(scene: () => Scene, values: () => WireValue[]): void {
  describe('a row', () => {
    test('is an array of one struct of three arrays of structs, with these names and types', () => {
      const [field, ...others] = scene().walk.first.answer.fields
      expect(others).toEqual([])
      expect(field!.name).toBe('ChangeRecord')
      expect(shownType(field!.type)).toBe(
        'ARRAY<STRUCT<' +
          'data_change_record ARRAY<STRUCT<commit_timestamp TIMESTAMP, record_sequence STRING, ' +
          'server_transaction_id STRING, is_last_record_in_transaction_in_partition BOOL, table_name STRING, ' +
          'column_types ARRAY<STRUCT<name STRING, type JSON, is_primary_key BOOL, ordinal_position INT64>>, ' +
          'mods ARRAY<STRUCT<keys JSON, new_values JSON, old_values JSON>>, mod_type STRING, ' +
          'value_capture_type STRING, number_of_records_in_transaction INT64, ' +
          'number_of_partitions_in_transaction INT64, transaction_tag STRING, is_system_transaction BOOL>>, ' +
          'heartbeat_record ARRAY<STRUCT<timestamp TIMESTAMP>>, ' +
          'child_partitions_record ARRAY<STRUCT<start_timestamp TIMESTAMP, record_sequence STRING, ' +
          'child_partitions ARRAY<STRUCT<token STRING, parent_partition_tokens ARRAY<STRING>>>>>>>',
      )
    })

    test('writes times with Z and without zeros at their end, and whole numbers as texts', () => {
      for (const text of leaves(values())) if (LIKE_A_TIME.test(text)) expect(text).toMatch(STRUCT_TIME)
      const data = values().find((value) => (value as WireValue[][][])[0]![0]!.length > 0)
      const record = (data as WireValue[][][][])[0]![0]![0]!
      expect([record[9], record[10]]).toEqual(['1', '1'])
    })
  })
}

function jsonCases(scene: () => Scene, values: () => WireValue[]): void {
  describe('a row', () => {
    test('is a column of JSON that has the name of the function', () => {
      const [field, ...others] = scene().walk.first.answer.fields
      expect(others).toEqual([])
      expect(field!.name).toBe(`read_json_${scene().site.streams.OLD_AND_NEW_VALUES.name}`)
      expect(shownType(field!.type)).toBe('JSON PG_JSONB')
    })

    test('sorts the names of every object', () => {
      for (const value of values()) {
        for (const names of objectNames(JSON.parse(value as string))) expect(names).toEqual(names.toSorted(byNames))
      }
    })

    test('writes times with an offset and without zeros at their end, whole numbers as numbers', () => {
      const texts = values().map((value) => value as string)
      for (const [, time] of texts
        .join('\n')
        .matchAll(/"(?:commit_timestamp|timestamp|start_timestamp)": ?"([^"]*)"/g)) {
        expect(time).toMatch(JSON_TIME)
      }
      const data = texts.find((text) => text.includes('data_change_record'))!
      const record = (JSON.parse(data) as Record<string, Record<string, unknown>>).data_change_record!
      expect(record).toMatchObject({ number_of_records_in_transaction: 1, number_of_partitions_in_transaction: 1 })
      const [column] = record.column_types as Record<string, unknown>[]
      expect(column).toEqual({ name: 'id', type: { code: 'INT64' }, is_primary_key: true, ordinal_position: 1 })
      const [mod] = record.mods as { keys: { id: unknown } }[]
      expect(typeof mod!.keys.id).toBe('string')
    })
  })
}

type Type = Scene['walk']['first']['answer']['fields'][number]['type']

function shownType({ code, arrayElementType, structType, typeAnnotation }: Type): string {
  if (arrayElementType) return `ARRAY<${shownType(arrayElementType)}>`
  if (structType) {
    return `STRUCT<${structType.fields!.map(({ name, type }) => `${name} ${shownType(type!)}`).join(', ')}>`
  }
  const annotation = typeAnnotation && typeAnnotation !== 'TYPE_ANNOTATION_CODE_UNSPECIFIED' ? ` ${typeAnnotation}` : ''
  return `${String(code)}${annotation}`
}

function leaves(value: WireValue): string[] {
  if (typeof value === 'string') return [value]
  return Array.isArray(value) ? (value as WireValue[]).flatMap(leaves) : []
}

function objectNames(value: unknown): string[][] {
  if (Array.isArray(value)) return value.flatMap(objectNames)
  if (typeof value !== 'object' || value === null) return []
  return [Object.keys(value), ...Object.values(value).flatMap(objectNames)]
}

function byNames(a: string, b: string): number {
  return a < b ? -1 : 1
}

const LIKE_A_TIME = /^\d{4}-\d\d-\d\dT/
const STRUCT_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d*[1-9])?Z$/
const JSON_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d*[1-9])?\+00:00$/
