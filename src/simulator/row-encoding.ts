/** What a read of the stream looks like on the wire: the function that is called, its column, its rows. */
import type { Dialect, PartitionMode } from '../model/change-stream.ts'
import type { ChangeStreamRecord } from '../model/data-change-record.ts'
import { encodeJson, JSON_TYPE } from './json-encoding.ts'
import { encodeProto, PROTO_BYTES_TYPE, PROTO_TYPE } from './proto-encoding.ts'
import { encodeStruct, STRUCT_TYPE } from './struct-encoding.ts'
import type { WireType, WireValue } from './wire-value.ts'

export interface RowEncoding {
  /** The read function's name. */
  readonly functionName: (stream: string) => string
  readonly columnName: (stream: string) => string
  readonly type: WireType
  encode(record: ChangeStreamRecord): WireValue
}

const googleSql = { functionName: (stream: string) => `READ_${stream}`, columnName: () => 'ChangeRecord' }
const readJson = (stream: string): string => `read_json_${stream}`
const readProto = (stream: string): string => `read_proto_bytes_${stream}`

const ENCODINGS: Readonly<Record<Dialect, Readonly<Record<PartitionMode, RowEncoding>>>> = {
  googlesql: {
    immutable: { ...googleSql, type: STRUCT_TYPE, encode: encodeStruct },
    mutable: { ...googleSql, type: PROTO_TYPE, encode: encodeProto },
  },
  postgresql: {
    immutable: { functionName: readJson, columnName: readJson, type: JSON_TYPE, encode: encodeJson },
    mutable: { functionName: readProto, columnName: readProto, type: PROTO_BYTES_TYPE, encode: encodeProto },
  },
}

export function rowEncoding(dialect: Dialect, mode: PartitionMode): RowEncoding {
  return ENCODINGS[dialect][mode]
}
