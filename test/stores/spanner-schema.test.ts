/** What the Spanner store makes of the information schema, where the emulator has no time in between to show. */
import { describe, expect, test } from 'vitest'
import type { SpannerConnection } from '../../src/stores/spanner-connection.ts'
import { ALL_COLUMNS } from '../../src/stores/spanner-partition-sql.ts'
import { ensureTable, findTable } from '../../src/stores/spanner-schema.ts'

const OPTIONS = { database: 'projects/p/instances/i/databases/d', table: 'millrace_partitions', keepFinishedDays: 60 }

/** A database with the table, whose index is in some state. */
function databaseWith(indexState: string): (sql: string) => Promise<unknown[][]> {
  return async (sql) => {
    if (sql.includes('information_schema.columns')) return ALL_COLUMNS.map((column) => [OPTIONS.table, column])
    if (sql.includes('information_schema.indexes')) {
      const isAskedFor = !sql.includes(`index_state = 'READ_WRITE'`) || indexState === 'READ_WRITE'
      return isAskedFor ? [[`${OPTIONS.table}_by_end`]] : []
    }
    return []
  }
}

describe('findTable', () => {
  test.each(['PREPARE', 'WRITE_ONLY'])('waits for an index that another process just makes: %s', async (state) => {
    expect(await findTable(databaseWith(state), OPTIONS)).toMatchObject({ hasTable: true, hasIndex: false })
  })

  test('finds an index that can be read', async () => {
    expect(await findTable(databaseWith('READ_WRITE'), OPTIONS)).toMatchObject({ hasTable: true, hasIndex: true })
  })
})

describe('ensureTable', () => {
  test('returns when the index can be read, also if a change of the schema returns earlier', async () => {
    const states = ['PREPARE', 'WRITE_ONLY', 'READ_WRITE']
    let changes = 0
    const connection = { changeSchema: async () => void changes++ } as unknown as SpannerConnection
    const select = (sql: string): Promise<unknown[][]> => databaseWith(states[changes]!)(sql)
    expect(await ensureTable(connection, select, OPTIONS)).toMatchObject({ table: OPTIONS.table })
    expect(changes).toBe(2)
  })
})
