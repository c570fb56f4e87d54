/** Makes the table of the PostgreSQL store where it is missing, or looks at it and makes nothing. */
import { createHash } from 'node:crypto'
import { EnvironmentError } from '../core/errors.ts'
import type { Partition } from '../model/partition.ts'
import { NO_RIGHTS_HINT, OWNER, PostgresDatabase, type PostgresDatabaseOptions } from './postgres-database.ts'
import { type PartitionRow, type PartitionSql, partitionOf } from './postgres-partition-sql.ts'

/** Looks first: who may only use a table that is there needs no right to make one. */
export async function openTable(
  options: PostgresDatabaseOptions,
  table: string,
  sql: PartitionSql,
): Promise<PostgresDatabase> {
  const database = await PostgresDatabase.open(options)
  try {
    if (!(await isThere(database, sql))) {
      // Two that make it at once would fail on the server's own catalogue: the lock lets the second one find it made.
      await database.transact('open', lockOf(table, 'schema'), (query) => query({ text: sql.create, values: [] }))
    }
    await database.run('open', { text: sql.probe, values: [] })
    return database
  } catch (error) {
    await database.close()
    throw error
  }
}

/** The rows of a pipeline, undefined without a table. Makes nothing, but asks whether a run could do its part. */
export async function peekTable(
  options: PostgresDatabaseOptions,
  sql: PartitionSql,
  pipeline: string,
): Promise<Partition[] | undefined> {
  const database = await PostgresDatabase.open(options)
  const assertMay = async (text: string, what: string): Promise<void> => {
    const [row] = await database.run<{ allowed: boolean | null }>('open', { text, values: [] })
    if (row?.allowed === true) return
    throw new EnvironmentError(`${OWNER}: this user may not ${what} in ${options.place}`, { hint: NO_RIGHTS_HINT })
  }
  try {
    if (!(await isThere(database, sql))) {
      await assertMay(sql.mayMake, 'create the table')
      return undefined
    }
    const rows = await database.run<PartitionRow>('read', { text: sql.list, values: [pipeline] })
    await assertMay(sql.mayWrite, 'write the table')
    return rows.map(partitionOf)
  } finally {
    await database.close()
  }
}

async function isThere(database: PostgresDatabase, sql: PartitionSql): Promise<boolean> {
  const [row] = await database.run<{ found: string | null }>('open', { text: sql.find, values: [] })
  return row?.found != null
}

/** Two numbers that stand for a pipeline of a table; if two pipelines ever share them, they wait for each other. */
export function lockOf(table: string, pipeline: string): readonly [number, number] {
  const hash = createHash('sha256').update(`${table}\0${pipeline}`).digest()
  return [hash.readInt32BE(0), hash.readInt32BE(4)]
}
