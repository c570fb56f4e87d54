/** Changes of stream and schema under a running reader, on the Spanner emulator, if there is one on this machine. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { alterSchema, execute, whileReading } from '../support/emulator-reading.ts'
import {
  hasSpannerEmulator,
  requireSpannerEmulator,
  type SpannerEmulator,
  startSpannerEmulator,
} from '../support/spanner-emulator.ts'

requireSpannerEmulator('schema-changes.integration.test.ts')

describe.skipIf(!hasSpannerEmulator)('a running reader on the Spanner emulator', () => {
  let emulator: SpannerEmulator

  beforeAll(async () => {
    emulator = await startSpannerEmulator()
  })

  afterAll(() => emulator.stop())

  test('each record carries its capture type and the sides of that type', async () => {
    const database = await emulator.createDatabase([
      'CREATE TABLE T (Id INT64, A INT64, B INT64) PRIMARY KEY (Id)',
      'CREATE CHANGE STREAM S FOR T',
    ])
    const captureTypes = ['OLD_AND_NEW_VALUES', 'NEW_VALUES', 'NEW_ROW', 'NEW_ROW_AND_OLD_VALUES']
    const changes = await whileReading(database, 'S', async (seen) => {
      for (const [index, type] of captureTypes.entries()) {
        await alterSchema(database, `ALTER CHANGE STREAM S SET OPTIONS (value_capture_type = '${type}')`)
        await execute(database, 'INSERT INTO T (Id, A, B) VALUES (1, 1, 2)')
        // A mutation: to the emulator, an UPDATE statement modifies every column.
        await database.table('T').update({ Id: 1, A: 3 })
        await execute(database, 'DELETE FROM T WHERE Id = 1')
        await seen(3 * (index + 1))
      }
    })
    const read = changes.map(({ op, newValues, oldValues, record }) => [
      record.valueCaptureType,
      op,
      { ...newValues },
      { ...oldValues },
    ])
    expect(read).toEqual([
      ['OLD_AND_NEW_VALUES', 'insert', { A: 1n, B: 2n }, {}],
      ['OLD_AND_NEW_VALUES', 'update', { A: 3n }, { A: 1n }],
      ['OLD_AND_NEW_VALUES', 'delete', {}, { A: 3n, B: 2n }],
      ['NEW_VALUES', 'insert', { A: 1n, B: 2n }, {}],
      ['NEW_VALUES', 'update', { A: 3n }, {}],
      ['NEW_VALUES', 'delete', {}, {}],
      ['NEW_ROW', 'insert', { A: 1n, B: 2n }, {}],
      ['NEW_ROW', 'update', { A: 3n, B: 2n }, {}],
      ['NEW_ROW', 'delete', {}, {}],
      ['NEW_ROW_AND_OLD_VALUES', 'insert', { A: 1n, B: 2n }, {}],
      ['NEW_ROW_AND_OLD_VALUES', 'update', { A: 3n, B: 2n }, { A: 1n }],
      ['NEW_ROW_AND_OLD_VALUES', 'delete', {}, { A: 3n, B: 2n }],
    ])
  })

  test('column types follow the schema: added, dropped and widened columns, new tables', async () => {
    const database = await emulator.createDatabase([
      'CREATE TABLE T (Id INT64, Note STRING(10)) PRIMARY KEY (Id)',
      'CREATE CHANGE STREAM S FOR ALL',
    ])
    let count = 0
    const changes = await whileReading(database, 'S', async (seen) => {
      const step = async (ddl: string, insert: string): Promise<void> => {
        if (ddl !== '') await alterSchema(database, ddl)
        await execute(database, insert)
        await seen(++count)
      }
      await step('', `INSERT INTO T (Id, Note) VALUES (1, 'a')`)
      await step('ALTER TABLE T ADD COLUMN Day DATE', `INSERT INTO T (Id, Note, Day) VALUES (2, 'b', '2026-01-02')`)
      await step(
        'ALTER TABLE T ALTER COLUMN Note STRING(MAX)',
        `INSERT INTO T (Id, Note) VALUES (3, '${'long'.repeat(9)}')`,
      )
      await step('ALTER TABLE T ALTER COLUMN Note BYTES(MAX)', `INSERT INTO T (Id, Note) VALUES (4, b'c')`)
      await step('ALTER TABLE T DROP COLUMN Note', `INSERT INTO T (Id, Day) VALUES (5, '2026-01-03')`)
      await step('CREATE TABLE U (Id STRING(9)) PRIMARY KEY (Id)', `INSERT INTO U (Id) VALUES ('u')`)
    })
    const read = changes.map(({ table, keys, newValues, record }) => [
      table,
      { ...keys, ...newValues },
      record.columnTypes.map(({ name, type }) => `${name} ${type.code}`).join(),
    ])
    expect(read).toEqual([
      ['T', { Id: 1n, Note: 'a' }, 'Id INT64,Note STRING'],
      ['T', { Id: 2n, Note: 'b', Day: '2026-01-02' }, 'Id INT64,Note STRING,Day DATE'],
      ['T', { Id: 3n, Note: 'long'.repeat(9), Day: null }, 'Id INT64,Note STRING,Day DATE'],
      ['T', { Id: 4n, Note: Buffer.from('c'), Day: null }, 'Id INT64,Note BYTES,Day DATE'],
      ['T', { Id: 5n, Day: '2026-01-03' }, 'Id INT64,Day DATE'],
      ['U', { Id: 'u' }, 'Id STRING'],
    ])
  })

  test('P1: a record over 4 MiB is read whole', async () => {
    const database = await emulator.createDatabase([
      'CREATE TABLE T (Id INT64, Text STRING(MAX)) PRIMARY KEY (Id)',
      'CREATE CHANGE STREAM S FOR ALL',
    ])
    // Two bytes a letter in UTF-8: cut anywhere, a letter may lie on the border.
    const texts = ['ä', 'ö', 'ü'].map((letter) => letter.repeat(1_300_000))
    const changes = await whileReading(database, 'S', async (seen) => {
      await database.table('T').insert(texts.map((Text, Id) => ({ Id, Text })))
      await seen(texts.length)
    })
    expect(changes.map(({ keys }) => keys.Id)).toEqual([0n, 1n, 2n])
    expect(changes.map(({ newValues }, index) => newValues.Text === texts[index])).toEqual([true, true, true])
    expect(new Set(changes.map(({ record }) => record)).size).toBe(1)
  })
})
