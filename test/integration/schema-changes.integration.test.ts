/** Changes of stream and schema under a running reader, on the Spanner emulator, if there is one on this machine. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Dialect } from '../../src/model/change-stream.ts'
import { alterSchema, execute, whileReading } from '../support/emulator-reading.ts'
import {
  hasSpannerEmulator,
  requireSpannerEmulator,
  type SpannerEmulator,
  startSpannerEmulator,
} from '../support/spanner-emulator.ts'

requireSpannerEmulator('schema-changes.integration.test.ts')

interface Ddl {
  readonly threeColumns: string
  readonly note: string
  readonly text: string
  readonly word: string
  capture(type: string): string
  readonly steps: readonly (readonly [ddl: string, insert: string])[]
}

const LONG = 'long'.repeat(9)

const DDL: Readonly<Record<Dialect, Ddl>> = {
  googlesql: {
    threeColumns: 'CREATE TABLE t (id INT64, a INT64, b INT64) PRIMARY KEY (id)',
    note: 'CREATE TABLE t (id INT64, note STRING(10)) PRIMARY KEY (id)',
    text: 'CREATE TABLE t (id INT64, text STRING(MAX)) PRIMARY KEY (id)',
    word: 'CREATE TABLE u (id STRING(9)) PRIMARY KEY (id)',
    capture: (type) => `ALTER CHANGE STREAM s SET OPTIONS (value_capture_type = '${type}')`,
    steps: [
      ['ALTER TABLE t ADD COLUMN day DATE', `INSERT INTO t (id, note, day) VALUES (2, 'b', '2026-01-02')`],
      ['ALTER TABLE t ALTER COLUMN note STRING(MAX)', `INSERT INTO t (id, note) VALUES (3, '${LONG}')`],
      ['ALTER TABLE t ALTER COLUMN note BYTES(MAX)', `INSERT INTO t (id, note) VALUES (4, b'c')`],
    ],
  },
  postgresql: {
    threeColumns: 'CREATE TABLE t (id bigint PRIMARY KEY, a bigint, b bigint)',
    note: 'CREATE TABLE t (id bigint PRIMARY KEY, note varchar(10))',
    text: 'CREATE TABLE t (id bigint PRIMARY KEY, text varchar)',
    word: 'CREATE TABLE u (id varchar(9) PRIMARY KEY)',
    capture: (type) => `ALTER CHANGE STREAM s SET (value_capture_type = '${type}')`,
    steps: [
      ['ALTER TABLE t ADD COLUMN day date', `INSERT INTO t (id, note, day) VALUES (2, 'b', '2026-01-02')`],
      ['ALTER TABLE t ALTER COLUMN note TYPE varchar', `INSERT INTO t (id, note) VALUES (3, '${LONG}')`],
      ['ALTER TABLE t ALTER COLUMN note TYPE bytea', `INSERT INTO t (id, note) VALUES (4, 'c'::bytea)`],
    ],
  },
}
const DIALECTS: readonly Dialect[] = ['googlesql', 'postgresql']

describe.skipIf(!hasSpannerEmulator).each(DIALECTS)('a running reader on the Spanner emulator, %s', (dialect) => {
  const ddl = DDL[dialect]
  let emulator: SpannerEmulator

  beforeAll(async () => {
    emulator = await startSpannerEmulator()
  })

  afterAll(() => emulator.stop())

  test('each record carries its capture type and the sides of that type', async () => {
    const database = await emulator.createDatabase([ddl.threeColumns, 'CREATE CHANGE STREAM s FOR t'], dialect)
    const captureTypes = ['OLD_AND_NEW_VALUES', 'NEW_VALUES', 'NEW_ROW', 'NEW_ROW_AND_OLD_VALUES']
    const changes = await whileReading(database, 's', async (seen) => {
      for (const [index, type] of captureTypes.entries()) {
        await alterSchema(database, ddl.capture(type))
        await execute(database, 'INSERT INTO t (id, a, b) VALUES (1, 1, 2)')
        // A mutation: to the emulator, an UPDATE statement modifies every column.
        await database.table('t').update({ id: 1, a: 3 })
        await execute(database, 'DELETE FROM t WHERE id = 1')
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
      ['OLD_AND_NEW_VALUES', 'insert', { a: 1n, b: 2n }, {}],
      ['OLD_AND_NEW_VALUES', 'update', { a: 3n }, { a: 1n }],
      ['OLD_AND_NEW_VALUES', 'delete', {}, { a: 3n, b: 2n }],
      ['NEW_VALUES', 'insert', { a: 1n, b: 2n }, {}],
      ['NEW_VALUES', 'update', { a: 3n }, {}],
      ['NEW_VALUES', 'delete', {}, {}],
      ['NEW_ROW', 'insert', { a: 1n, b: 2n }, {}],
      ['NEW_ROW', 'update', { a: 3n, b: 2n }, {}],
      ['NEW_ROW', 'delete', {}, {}],
      ['NEW_ROW_AND_OLD_VALUES', 'insert', { a: 1n, b: 2n }, {}],
      ['NEW_ROW_AND_OLD_VALUES', 'update', { a: 3n, b: 2n }, { a: 1n }],
      ['NEW_ROW_AND_OLD_VALUES', 'delete', {}, { a: 3n, b: 2n }],
    ])
  })

  test('column types follow the schema: added, dropped and widened columns, new tables', async () => {
    const database = await emulator.createDatabase([ddl.note, 'CREATE CHANGE STREAM s FOR ALL'], dialect)
    let count = 0
    const changes = await whileReading(database, 's', async (seen) => {
      const step = async (change: string, insert: string): Promise<void> => {
        if (change !== '') await alterSchema(database, change)
        await execute(database, insert)
        await seen(++count)
      }
      await step('', `INSERT INTO t (id, note) VALUES (1, 'a')`)
      for (const [change, insert] of ddl.steps) await step(change, insert)
      await step('ALTER TABLE t DROP COLUMN note', `INSERT INTO t (id, day) VALUES (5, '2026-01-03')`)
      await step(ddl.word, `INSERT INTO u (id) VALUES ('u')`)
    })
    const read = changes.map(({ table, keys, newValues, record }) => [
      table,
      { ...keys, ...newValues },
      record.columnTypes.map(({ name, type }) => `${name} ${type.code}`).join(),
    ])
    expect(read).toEqual([
      ['t', { id: 1n, note: 'a' }, 'id INT64,note STRING'],
      ['t', { id: 2n, note: 'b', day: '2026-01-02' }, 'id INT64,note STRING,day DATE'],
      ['t', { id: 3n, note: LONG, day: null }, 'id INT64,note STRING,day DATE'],
      ['t', { id: 4n, note: Buffer.from('c'), day: null }, 'id INT64,note BYTES,day DATE'],
      ['t', { id: 5n, day: '2026-01-03' }, 'id INT64,day DATE'],
      ['u', { id: 'u' }, 'id STRING'],
    ])
  })

  test('P1: a record over 4 MiB is read whole', async () => {
    const database = await emulator.createDatabase([ddl.text, 'CREATE CHANGE STREAM s FOR ALL'], dialect)
    // Two bytes a letter in UTF-8: cut anywhere, a letter may lie on the border.
    const texts = ['ä', 'ö', 'ü'].map((letter) => letter.repeat(1_300_000))
    const changes = await whileReading(database, 's', async (seen) => {
      await database.table('t').insert(texts.map((text, id) => ({ id, text })))
      await seen(texts.length)
    })
    expect(changes.map(({ keys }) => keys.id)).toEqual([0n, 1n, 2n])
    expect(changes.map(({ newValues }, index) => newValues.text === texts[index])).toEqual([true, true, true])
    expect(new Set(changes.map(({ record }) => record)).size).toBe(1)
  })
})
