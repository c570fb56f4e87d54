import { describe, expect, test } from 'vitest'
import { QueryStatusError } from '../../src/simulator/index.ts'
import { type Parameter, parseStatement, type SchemaFacts, type Statement } from '../../src/simulator/sql-statement.ts'

const FACTS: SchemaFacts = {
  stream: 'ShopChanges',
  dialect: 'googlesql',
  mode: 'immutable',
  nowMs: 0,
  retentionMs: 36 * 3_600_000,
  valueCaptureType: 'NEW_ROW',
  tables: undefined,
}
const PARAMETERS: Record<string, Parameter> = {
  s: { value: '2026-01-01T00:00:00Z', type: 'TIMESTAMP' },
  e: { value: null, type: 'TIMESTAMP' },
  t: { value: 'token', type: 'STRING' },
  h: { value: '1000', type: 'INT64' },
  untyped: { value: null, type: undefined },
  stream: { value: 'ShopChanges', type: 'STRING' },
}

function parse(sql: string): Statement {
  return parseStatement(sql, new Map(Object.entries(PARAMETERS)), FACTS)
}

function codeOf(sql: string): string {
  try {
    parse(sql)
  } catch (error) {
    if (error instanceof QueryStatusError) return error.status
    throw error
  }
  return 'OK'
}

const READ = {
  kind: 'read',
  functionName: 'READ_ShopChanges',
  start: '2026-01-01T00:00:00.000000000Z',
  end: null,
  token: 'token',
  heartbeatMs: 1000,
}
const read = (list: string): string => `SELECT ChangeRecord FROM READ_ShopChanges(${list})`

describe('parseStatement', () => {
  test.each([
    [
      'start_timestamp => @s, end_timestamp => @e, partition_token => @t, heartbeat_milliseconds => @h, read_options => NULL',
    ],
    ['heartbeat_milliseconds => @h, partition_token => @t, end_timestamp => NULL, start_timestamp => @s'],
    ['@s, @e, @t, @h, NULL'],
    ['@s, @e, @t, @h'],
    [`TIMESTAMP '2026-01-01T01:00:00+01:00', NULL, "token", 1000`],
  ])('reads the arguments %s', (list) => {
    expect(parse(read(list))).toEqual(READ)
  })

  test.each([
    ['NULL, @e, @t, @h', 'INVALID_ARGUMENT'],
    ['@s, @e, @t, NULL', 'INVALID_ARGUMENT'],
    ['@s, @untyped, @t, @h', 'INVALID_ARGUMENT'],
    ['@t, @e, @t, @h', 'INVALID_ARGUMENT'],
    ["'2026-01-01T00:00:00Z', @e, @t, @h", 'INVALID_ARGUMENT'],
    ["TIMESTAMP 'yesterday', @e, @t, @h", 'INVALID_ARGUMENT'],
    ['@missing, @e, @t, @h', 'INVALID_ARGUMENT'],
    ['@s, @e, @t', 'INVALID_ARGUMENT'],
    ['@s, @e, @t, @h, NULL, NULL', 'INVALID_ARGUMENT'],
    ['@s, @e, @t, @h, nope => 1', 'INVALID_ARGUMENT'],
  ])('refuses the arguments %s with %s', (list, code) => {
    expect(codeOf(read(list))).toBe(code)
  })

  test('refuses the read function together with other SQL, and what it does not understand', () => {
    expect(codeOf(`${read('@s, @e, @t, @h')} WHERE TRUE`)).toBe('UNIMPLEMENTED')
    expect(codeOf('SELECT COUNT(*) FROM READ_ShopChanges(@s, @e, @t, @h)')).toBe('UNIMPLEMENTED')
    expect(codeOf('SELECT * FROM Orders')).toBe('UNIMPLEMENTED')
    expect(codeOf('SELECT * FROM information_schema.tables')).toBe('UNIMPLEMENTED')
    expect(codeOf('SELECT nope FROM information_schema.change_streams')).toBe('INVALID_ARGUMENT')
    expect(codeOf('SELECT * FROM information_schema.change_streams WHERE ALL IS TRUE')).toBe('UNIMPLEMENTED')
  })

  test('answers from the information schema, whole or filtered', () => {
    const rows = (sql: string): unknown => {
      const statement = parse(sql)
      return statement.kind === 'rows' ? statement.rows : undefined
    }
    const options = 'SELECT option_name, option_value FROM information_schema.change_stream_options'
    expect(rows('SELECT change_stream_name FROM information_schema.change_streams')).toEqual([['ShopChanges']])
    expect(rows(options)).toEqual([
      ['retention_period', '36h'],
      ['value_capture_type', 'NEW_ROW'],
      ['partition_mode', 'IMMUTABLE_KEY_RANGE'],
    ])
    expect(rows(`${options} WHERE change_stream_name = @stream AND OPTION_NAME = 'retention_period'`)).toEqual([
      ['retention_period', '36h'],
    ])
    expect(rows(`${options} WHERE change_stream_name = 'Other'`)).toEqual([])
    expect(
      rows("SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'"),
    ).toEqual([['GOOGLE_STANDARD_SQL']])
    expect(rows('SELECT 1')).toEqual([['1']])
  })
})

describe('parseStatement in PostgreSQL', () => {
  const facts: SchemaFacts = { ...FACTS, dialect: 'postgresql', tables: ['orders'] }
  const parameters = new Map<string, Parameter>([
    ['p1', PARAMETERS.s!],
    ['p2', PARAMETERS.e!],
    ['p3', PARAMETERS.t!],
    ['p4', PARAMETERS.h!],
    ['p5', { value: 'text', type: 'STRING' }],
    ['p6', { value: null, type: undefined }],
  ])
  const parsePostgres = (sql: string): Statement => parseStatement(sql, parameters, facts)
  const postgresCode = (sql: string): string => {
    try {
      parsePostgres(sql)
    } catch (error) {
      if (error instanceof QueryStatusError) return error.status
      throw error
    }
    return 'OK'
  }

  test.each([
    ['SELECT * FROM "spanner"."read_json_Orders"($1, $2, $3, $4, NULL)', 'read_json_Orders'],
    ['select * from spanner.read_json_orders($1, $2, $3, $4)', 'read_json_orders'],
    ['SELECT read_json_s FROM spanner.read_json_s($1, $2, $3, $4, NULL)', 'read_json_s'],
    ['SELECT * FROM spanner.read_proto_bytes_s($1, $2, $3, $4, NULL)', 'read_proto_bytes_s'],
    ["SELECT * FROM spanner.read_json_s('2026-01-01T00:00:00Z', NULL, 'token', 1000, NULL)", 'read_json_s'],
  ])('reads %s', (sql, functionName) => {
    expect(parsePostgres(sql)).toEqual({ ...READ, functionName })
  })

  test.each([
    ['$5, $2, $3, $4', 'NOT_FOUND'],
    ['$1, $6, $3, $4', 'INVALID_ARGUMENT'],
    ['$1, $2, $3, $4, $5', 'UNIMPLEMENTED'],
    ['$1, $2, $3', 'INVALID_ARGUMENT'],
  ])('refuses the arguments %s with %s', (list, code) => {
    expect(postgresCode(`SELECT * FROM spanner.read_json_s(${list})`)).toBe(code)
  })

  test('has no GoogleSQL function, and nothing around its own', () => {
    expect(postgresCode('SELECT ChangeRecord FROM READ_s($1, $2, $3, $4)')).toBe('UNIMPLEMENTED')
    expect(postgresCode('SELECT * FROM spanner.read_json_s($1, $2, $3, $4) WHERE true')).toBe('UNIMPLEMENTED')
  })

  test('tells of watched tables and of the dialect', () => {
    expect(parsePostgres('SELECT table_name FROM information_schema.change_stream_tables')).toMatchObject({
      rows: [['orders']],
    })
    expect(parsePostgres('SELECT "all" FROM information_schema.change_streams')).toMatchObject({ rows: [['NO']] })
    const dialect =
      "SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'"
    expect(parsePostgres(dialect)).toMatchObject({ rows: [['POSTGRESQL']] })
  })
})
