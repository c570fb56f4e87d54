import { protos } from '@google-cloud/spanner'
import { describe, expect, test } from 'vitest'
import { readStatement } from '../../../../src/sources/spanner-change-stream/connection/read-statement.ts'

const START = '2026-11-18T09:30:00.000000001Z'
const END = '2026-11-18T10:30:00.000000000Z'
const NULL = { nullValue: 'NULL_VALUE' }

describe('readStatement', () => {
  test.each([
    [
      'googlesql',
      'immutable',
      'SELECT ChangeRecord FROM READ_S(start_timestamp => @start, end_timestamp => @end, partition_token => @token, heartbeat_milliseconds => @heartbeat, read_options => NULL)',
      ['start', 'end', 'token', 'heartbeat'],
    ],
    [
      'googlesql',
      'mutable',
      'SELECT ChangeRecord FROM READ_S(start_timestamp => @start, end_timestamp => @end, partition_token => @token, heartbeat_milliseconds => @heartbeat, read_options => NULL)',
      ['start', 'end', 'token', 'heartbeat'],
    ],
    [
      'postgresql',
      'immutable',
      'SELECT * FROM "spanner"."read_json_S"($1, $2, $3, $4, NULL)',
      ['p1', 'p2', 'p3', 'p4'],
    ],
    [
      'postgresql',
      'mutable',
      'SELECT * FROM "spanner"."read_proto_bytes_S"($1, $2, $3, $4, NULL)',
      ['p1', 'p2', 'p3', 'p4'],
    ],
  ] as const)(
    'five arguments for %s, %s, each with its type, nulls too',
    (dialect, mode, sql, [start, end, token, beat]) => {
      const types = {
        [start]: { code: 'TIMESTAMP' },
        [end]: { code: 'TIMESTAMP' },
        [token]: { code: 'STRING' },
        [beat]: { code: 'INT64' },
      }
      const query = { token: null, start: START, end: null, heartbeatMs: 2000 }
      expect(readStatement('S', dialect, mode, query)).toEqual({
        sql,
        params: {
          fields: { [start]: { stringValue: START }, [end]: NULL, [token]: NULL, [beat]: { stringValue: '2000' } },
        },
        paramTypes: types,
      })
      const resumed = { ...query, token: 't', end: END, resumeToken: Buffer.from('r') }
      expect(readStatement('S', dialect, mode, resumed)).toMatchObject({
        params: { fields: { [end]: { stringValue: END }, [token]: { stringValue: 't' } } },
        paramTypes: types,
        resumeToken: Buffer.from('r'),
      })
    },
  )

  test('the types arrive at the server', () => {
    const { ExecuteSqlRequest, TypeCode } = protos.google.spanner.v1
    const statement = readStatement('S', 'googlesql', 'immutable', {
      token: null,
      start: START,
      end: null,
      heartbeatMs: 1,
    })
    const sent = ExecuteSqlRequest.decode(ExecuteSqlRequest.encode(ExecuteSqlRequest.fromObject(statement)).finish())
    expect(sent.paramTypes.end?.code).toBe(TypeCode.TIMESTAMP)
    expect(sent.paramTypes.token?.code).toBe(TypeCode.STRING)
  })
})
