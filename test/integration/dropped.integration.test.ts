/** A stream or a database that is dropped under a running reader, on the Spanner emulator, if there is one here. */
import type { Database } from '@google-cloud/spanner'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { StreamError } from '../../src/core/errors.ts'
import type { Dialect } from '../../src/model/change-stream.ts'
import { alterSchema, execute, whileReading } from '../support/emulator-reading.ts'
import {
  hasSpannerEmulator,
  requireSpannerEmulator,
  type SpannerEmulator,
  startSpannerEmulator,
} from '../support/spanner-emulator.ts'

requireSpannerEmulator('dropped.integration.test.ts')

const TABLE: Readonly<Record<Dialect, string>> = {
  googlesql: 'CREATE TABLE t (id INT64) PRIMARY KEY (id)',
  postgresql: 'CREATE TABLE t (id bigint PRIMARY KEY)',
}
const DIALECTS: readonly Dialect[] = ['googlesql', 'postgresql']

describe.skipIf(!hasSpannerEmulator).each(DIALECTS)('a running reader on the Spanner emulator, %s', (dialect) => {
  let emulator: SpannerEmulator

  beforeAll(async () => {
    emulator = await startSpannerEmulator({ churn: true })
  })

  afterAll(() => emulator.stop())

  test.each<[what: string, drop: (database: Database) => Promise<unknown>]>([
    ['stream', (database) => alterSchema(database, 'DROP CHANGE STREAM s')],
    ['database', (database) => database.delete()],
  ])('P12: stops when the %s is dropped, and says what may have happened', async (_, drop) => {
    const database = await emulator.createDatabase([TABLE[dialect], 'CREATE CHANGE STREAM s FOR t'], dialect)
    const reading = whileReading(database, 's', async (seen) => {
      await execute(database, 'INSERT INTO t (id) VALUES (1)')
      await seen(1)
      await drop(database)
      // Only the reader itself can end this.
      await new Promise(() => undefined)
    })
    const error = await reading.catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(StreamError)
    expect(error).toMatchObject({ retryable: false, hint: expect.stringMatching(/dropped/) })
  })
})
