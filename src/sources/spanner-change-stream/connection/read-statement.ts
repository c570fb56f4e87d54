/** The SQL that reads a partition, in each dialect and mode. */
import type { protos } from '@google-cloud/spanner'
import type { Dialect, PartitionMode, PartitionQuery } from '../../../model/change-stream.ts'

/** A statement as the service takes it, without session and transaction. */
export type Statement = Pick<
  protos.google.spanner.v1.IExecuteSqlRequest,
  'sql' | 'params' | 'paramTypes' | 'resumeToken'
>

/** Five arguments, all typed: an untyped null would be taken for a number. */
export function readStatement(
  stream: string,
  dialect: Dialect,
  mode: PartitionMode,
  { token, start, end, heartbeatMs, resumeToken }: PartitionQuery,
): Statement {
  const values = [
    ['start', 'TIMESTAMP', start],
    ['end', 'TIMESTAMP', end],
    ['token', 'STRING', token],
    ['heartbeat', 'INT64', String(heartbeatMs)],
  ] as const
  const isPostgres = dialect === 'postgresql'
  const fields: Record<string, protos.google.protobuf.IValue> = {}
  const paramTypes: Record<string, protos.google.spanner.v1.IType> = {}
  for (const [index, [name, code, value]] of values.entries()) {
    const parameter = isPostgres ? `p${index + 1}` : name
    fields[parameter] = value === null ? { nullValue: 'NULL_VALUE' } : { stringValue: value }
    paramTypes[parameter] = { code }
  }
  const sql = isPostgres ? postgresSql(stream, mode) : googleSql(stream)
  return { sql, params: { fields }, paramTypes, ...(resumeToken && { resumeToken }) }
}

function googleSql(stream: string): string {
  return (
    `SELECT ChangeRecord FROM READ_${stream}(start_timestamp => @start, end_timestamp => @end, ` +
    'partition_token => @token, heartbeat_milliseconds => @heartbeat, read_options => NULL)'
  )
}

/** Quoted, because the names of streams keep their case. */
function postgresSql(stream: string, mode: PartitionMode): string {
  const name = mode === 'mutable' ? `read_proto_bytes_${stream}` : `read_json_${stream}`
  return `SELECT * FROM "spanner"."${name}"($1, $2, $3, $4, NULL)`
}
