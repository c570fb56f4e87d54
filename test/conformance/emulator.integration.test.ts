/** The conformance cases on Spanner's emulator, if there is one on this machine. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  hasSpannerEmulator,
  requireSpannerEmulator,
  type SpannerEmulator,
  startSpannerEmulator,
} from '../support/spanner-emulator.ts'
import { describeChangeStreams } from './change-stream-cases.ts'
import { emulatorSite } from './emulator-site.ts'
import { dataOf } from './scene.ts'
import { normalTime } from './server-record.ts'
import type { Site, StreamUnderTest } from './site.ts'
import { walk } from './walk.ts'

requireSpannerEmulator('conformance/emulator.integration.test.ts')

describe.skipIf(!hasSpannerEmulator)('conformance', () => {
  let emulator: SpannerEmulator

  beforeAll(async () => {
    emulator = await startSpannerEmulator({ churn: true })
  })
  afterAll(() => emulator.stop())

  // It knows no mutable key ranges.
  describeChangeStreams('the emulator', ['immutable'], (dialect) => emulatorSite(emulator, dialect))

  // The rows of the table in docs/simulator.md: when one of these fails, the emulator has changed and the row goes.
  describe('what the emulator does otherwise', () => {
    let site: Site
    let stream: StreamUnderTest
    beforeAll(async () => {
      site = await emulatorSite(emulator, 'googlesql')
      stream = site.streams.OLD_AND_NEW_VALUES
    })
    afterAll(() => site.close())

    test('it puts the changes of all keys into one partition at a time', async () => {
      const ids = Array.from({ length: 40 }, (_, id) => id)
      const time = await stream.commit(ids.map((id) => ({ op: 'insert', id })))
      const { partitions } = await walk({ ...stream, start: time }, time, 1000)
      expect(partitions.size).toBeGreaterThan(1)
      expect([...partitions.values()].filter(({ records }) => dataOf(records).length > 0)).toHaveLength(1)
    })

    test('it orders the rows of a transaction by key', async () => {
      const time = await stream.commit([103, 101, 102].map((id) => ({ op: 'insert', id })))
      const { partitions } = await walk({ ...stream, start: time }, time, 1000)
      const mods = [...partitions.values()].flatMap(({ records }) => dataOf(records)).flatMap((record) => record.mods)
      expect(mods.map(({ keys }) => keys.id)).toEqual(['101', '102', '103'])
    })

    test('it finds the type of a parameter that has none', async () => {
      const { start } = stream
      const untyped = { value: null }
      expect((await stream.probe.read(stream.name, { start, end: start, token: untyped })).code).toBe(0)
    })

    test('it forgets the tag of a transaction', async () => {
      const session = await stream.probe.session()
      const columns = { table: stream.table, columns: ['id'], values: [{ values: [{ stringValue: '777' }] }] }
      await stream.probe.client.commit({
        session,
        mutations: [{ insert: columns }],
        singleUseTransaction: { readWrite: {} },
        requestOptions: { transactionTag: 'a tag' },
      })
      const { partitions } = await walk(stream, normalTime(new Date(Date.now() + 100).toISOString()), 1000)
      const records = [...partitions.values()].flatMap(({ records }) => dataOf(records))
      expect(records.find(({ mods }) => mods[0]!.keys.id === '777')!.tag).toBe('')
    })

    test('it lists the options that were set, and no others', async () => {
      const sql = 'SELECT option_name FROM information_schema.change_stream_options WHERE change_stream_name = @p1'
      const { rows } = await stream.probe.query(sql, { p1: { value: stream.name, type: 'STRING' } })
      expect(rows).toEqual([['value_capture_type']])
    })

    test.each([
      ['mutable key ranges', "partition_mode = 'MUTABLE_KEY_RANGE'"],
      ['a retention of more than 7 days', "retention_period = '8d'"],
    ])('it refuses %s', async (_, option) => {
      const table = 'CREATE TABLE t (id INT64 NOT NULL) PRIMARY KEY (id)'
      const creating = emulator.createDatabase([table, `CREATE CHANGE STREAM s FOR t OPTIONS (${option})`])
      await expect(creating).rejects.toThrow(/INVALID_ARGUMENT|unknown|retention/i)
    })
  })
})
