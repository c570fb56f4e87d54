/** Writes random records as the protobuf messages of streams with mutable key ranges. */
import { timestampToNanos } from '../../../../src/model/commit-timestamp.ts'
import type { ColumnTypeCode } from '../../../../src/model/data-change-record.ts'
import type { SeededRandom } from '../../../../src/simulator/index.ts'
import { type RandomData, type RandomRecord, randomCell, shuffled } from './random-results.ts'
import { lengthed, message, nothing, type Sprinkle, tagged, valueBytes, varint, type Wire } from './wire-writer.ts'

/** An encoded `ChangeStreamRecord`; fields with proto3's default are left out now and then. */
export function toProto(record: RandomRecord, random: SeededRandom, sprinkle: Sprinkle = nothing): Buffer {
  const time = protoTime(record.time)
  if (record.kind === 'heartbeat') return message([lengthed(2, message([lengthed(1, time)], sprinkle))], sprinkle)
  const sequence = lengthed(2, record.sequence)
  if (record.kind === 'data') return message([lengthed(1, protoData(record, random, sprinkle))], sprinkle)
  const token = record.children[0]?.token ?? 'token'
  const tokens = record.children.map((child) => child.token)
  if (record.children.length === 0) {
    return message([lengthed(4, message([lengthed(1, time), sequence, lengthed(3, token)], sprinkle))], sprinkle)
  }
  if (random.chance(0.5)) {
    const fields = [lengthed(1, time), sequence, ...tokens.map((name) => lengthed(3, name))]
    return message([lengthed(3, message(fields, sprinkle))], sprinkle)
  }
  const events = tokens.map((name) => lengthed(random.chance(0.5) ? 4 : 5, message([lengthed(1, name)], sprinkle)))
  return message(
    [lengthed(5, message([lengthed(1, time), sequence, lengthed(3, token), ...events], sprinkle))],
    sprinkle,
  )
}

function protoTime(time: string): Buffer {
  const [seconds, fraction = ''] = time.slice(0, -1).split('.') as [string, string?]
  const nanos = Number(fraction.padEnd(9, '0'))
  const whole = timestampToNanos(`${seconds}.000000000Z`) / 1_000_000_000n
  const parts = [tagged(1, 0, signedVarint(whole)), ...(nanos === 0 ? [] : [tagged(2, 0, varint(nanos))])]
  return Buffer.concat(parts)
}

function signedVarint(value: bigint): Buffer {
  const bytes: number[] = []
  let rest = BigInt.asUintN(64, value)
  while (rest > 0x7fn) {
    bytes.push(Number(rest & 0x7fn) | 0x80)
    rest >>= 7n
  }
  return Buffer.from([...bytes, Number(rest)])
}

function protoData(record: RandomData, random: SeededRandom, sprinkle: Sprinkle): Buffer {
  const flag = (field: number, value: boolean): Buffer[] =>
    value || random.chance(0.5) ? [tagged(field, 0, varint(value ? 1 : 0))] : []
  const columns = record.columns.map(({ name, type, isPrimaryKey, ordinal }) =>
    lengthed(
      6,
      message(
        [
          lengthed(1, name),
          lengthed(2, protoType(type, sprinkle)),
          ...flag(3, isPrimaryKey),
          tagged(4, 0, varint(ordinal)),
        ],
        sprinkle,
      ),
    ),
  )
  const mods = record.mods.map(() => {
    const side = (field: number): Buffer[] =>
      shuffled(random, [...record.columns.keys()])
        .filter((index) => record.columns.findIndex(({ name }) => name === record.columns[index]!.name) === index)
        .slice(random.int(3))
        .map((index) => {
          const value = lengthed(2, valueBytes(protoCell(random), sprinkle))
          return lengthed(field, message([...(index > 0 ? [tagged(1, 0, varint(index))] : []), value], sprinkle))
        })
    return lengthed(7, message([...side(1), ...side(2), ...side(3)], sprinkle))
  })
  const captures = { OLD_AND_NEW_VALUES: 10, NEW_VALUES: 20, NEW_ROW: 30, NEW_ROW_AND_OLD_VALUES: 40 }
  const modTypes = { INSERT: 10, UPDATE: 20, DELETE: 30 }
  // Fields may come in any order; those of one number keep theirs.
  const groups = shuffled(random, [
    [lengthed(1, protoTime(record.time))],
    [lengthed(2, record.sequence)],
    [lengthed(3, record.transaction)],
    flag(4, record.isLast),
    [lengthed(5, record.table)],
    columns,
    mods,
    [tagged(8, 0, varint(modTypes[record.modType as keyof typeof modTypes]))],
    [tagged(9, 0, varint(captures[record.capture as keyof typeof captures]))],
    record.records === 0 ? [] : [tagged(10, 0, varint(record.records))],
    [tagged(11, 0, varint(record.partitions))],
    record.tag === '' ? [] : [lengthed(12, record.tag)],
    flag(13, record.isSystem),
  ])
  return message(groups.flat(), sprinkle)
}

function protoCell(random: SeededRandom): Wire {
  const cell = (value: unknown): Wire => {
    if (typeof value === 'bigint') return String(value)
    return Array.isArray(value) ? value.map(cell) : (value as Wire)
  }
  return random.chance(0.1) ? random.pick([Number.NaN, Number.POSITIVE_INFINITY, -0]) : cell(randomCell(random, 0))
}

function protoType(
  { code, array_element_type, proto_type_fqn, type_annotation }: ColumnTypeCode,
  sprinkle: Sprinkle,
): Buffer {
  const codes = [
    '',
    'BOOL',
    'INT64',
    'FLOAT64',
    'TIMESTAMP',
    'DATE',
    'STRING',
    'BYTES',
    'ARRAY',
    'STRUCT',
    'NUMERIC',
    'JSON',
    '',
    'PROTO',
    'ENUM',
    'FLOAT32',
    'INTERVAL',
    'UUID',
  ]
  const fields = [
    tagged(1, 0, varint(codes.indexOf(code))),
    ...(array_element_type ? [lengthed(2, protoType(array_element_type, sprinkle))] : []),
    ...(type_annotation ? [tagged(4, 0, varint(2))] : []),
    ...(proto_type_fqn ? [lengthed(5, proto_type_fqn)] : []),
  ]
  return message(fields, sprinkle)
}
