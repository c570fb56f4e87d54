/** Spanner's protobuf messages and service, as far as the simulator speaks them. */
import { protos } from '@google-cloud/spanner'
import type { MethodDefinition, ServiceDefinition } from '@grpc/grpc-js'
import type { Column, Parameter } from './sql-statement.ts'
import type { WireValue } from './wire-value.ts'

export type SqlRequest = protos.google.spanner.v1.ExecuteSqlRequest
export type Session = protos.google.spanner.v1.ISession
export type ResultSetMetadata = protos.google.spanner.v1.ResultSetMetadata

export function parametersOf({ params, paramTypes }: SqlRequest): Map<string, Parameter> {
  const parameters = new Map<string, Parameter>()
  for (const [name, value] of Object.entries(params?.fields ?? {})) {
    const code = paramTypes[name]?.code
    const type = typeof code === 'number' ? protos.google.spanner.v1.TypeCode[code] : (code ?? undefined)
    parameters.set(name, { value: plainValue(value), type })
  }
  return parameters
}

function plainValue(value: protos.google.protobuf.IValue): WireValue {
  return value.stringValue ?? value.boolValue ?? value.listValue?.values?.map(plainValue) ?? null
}

export function toProto(value: WireValue): protos.google.protobuf.IValue {
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'boolean') return { boolValue: value }
  return value === null ? { nullValue: 0 as unknown as 'NULL_VALUE' } : { listValue: listOf(value) }
}

export function listOf(values: readonly WireValue[]): protos.google.protobuf.IListValue {
  return { values: values.map(toProto) }
}

/** Type codes by name are encoded as 0 unless they pass through `fromObject`. */
export function metadataOf(columns: readonly Column[]): ResultSetMetadata {
  return protos.google.spanner.v1.ResultSetMetadata.fromObject({ rowType: { fields: columns } })
}

export function encodeMessage(message: protos.google.spanner.v1.IPartialResultSet): Buffer {
  return protos.google.spanner.v1.PartialResultSet.encode(message).finish() as Buffer
}

export function bytesOf(token: Uint8Array | string): Uint8Array | undefined {
  const bytes = typeof token === 'string' ? Buffer.from(token, 'base64') : token
  return bytes.length === 0 ? undefined : bytes
}

interface Codec<T> {
  encode(message: T): { finish(): Uint8Array }
  decode(bytes: Uint8Array): T
}

function method<Q, R>(
  name: string,
  request: Codec<Q>,
  response: Codec<R> | 'bytes',
  responseStream = false,
): MethodDefinition<Q, R | Buffer> {
  const encodeResponse = (message: R | Buffer): Buffer =>
    response === 'bytes' ? (message as Buffer) : (response.encode(message as R).finish() as Buffer)
  return {
    path: `/google.spanner.v1.Spanner/${name}`,
    requestStream: false,
    responseStream,
    requestSerialize: (message: Q): Buffer => request.encode(message).finish() as Buffer,
    requestDeserialize: (bytes: Buffer): Q => request.decode(bytes),
    responseSerialize: encodeResponse,
    responseDeserialize: (bytes: Buffer): R | Buffer => (response === 'bytes' ? bytes : response.decode(bytes)),
  }
}

const v1 = protos.google.spanner.v1

export const SERVICE: ServiceDefinition = {
  CreateSession: method('CreateSession', v1.CreateSessionRequest, v1.Session),
  BatchCreateSessions: method('BatchCreateSessions', v1.BatchCreateSessionsRequest, v1.BatchCreateSessionsResponse),
  GetSession: method('GetSession', v1.GetSessionRequest, v1.Session),
  DeleteSession: method('DeleteSession', v1.DeleteSessionRequest, protos.google.protobuf.Empty),
  ExecuteSql: method('ExecuteSql', v1.ExecuteSqlRequest, v1.ResultSet),
  ExecuteStreamingSql: method('ExecuteStreamingSql', v1.ExecuteSqlRequest, 'bytes', true),
}
