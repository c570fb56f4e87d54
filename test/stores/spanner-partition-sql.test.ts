/** The statements of the Spanner store: none may read all that was ever finished, which the emulator would not mind. */
import { describe, expect, test } from 'vitest'
import { PartitionSql } from '../../src/stores/spanner-partition-sql.ts'

describe.each(['googlesql', 'postgresql'] as const)('PartitionSql in %s', (dialect) => {
  const sql = new PartitionSql('progress', dialect)

  test.each([
    ['unfinished rows', sql.openRows('orders', { columns: 'all', isPage: false })],
    ['rows that ended at an end of the user', sql.endedRows('orders')],
  ])('finds %s by the index of the rows that do not expire', (_, query) => {
    expect(query.sql).toMatch(/FORCE_INDEX=[`"]progress_by_end[`"]/)
    expect(query.sql).toContain('finished_at IS NULL')
    expect(query.parameters).toEqual(['orders'])
  })
})
