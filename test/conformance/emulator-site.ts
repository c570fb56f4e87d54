/** The conformance cases' server: Spanner's emulator, one database. */
import type { Dialect } from '../../src/model/change-stream.ts'
import type { ValueCaptureType } from '../../src/model/data-change-record.ts'
import type { SpannerEmulator } from '../support/spanner-emulator.ts'
import { RawProbe } from './raw-probe.ts'
import { normalTime } from './server-record.ts'
import { CAPTURES, type Site, type StreamUnderTest, streamOf, tableOf, type Write } from './site.ts'

export async function emulatorSite(emulator: SpannerEmulator, dialect: Dialect): Promise<Site> {
  const isPostgres = dialect === 'postgresql'
  const statements = CAPTURES.flatMap((capture) => {
    const [table, stream] = [tableOf(capture), streamOf(capture)]
    return isPostgres
      ? [
          `CREATE TABLE ${table} (id bigint PRIMARY KEY, name varchar, count bigint)`,
          `CREATE CHANGE STREAM ${stream} FOR ${table} WITH (value_capture_type = '${capture}')`,
        ]
      : [
          `CREATE TABLE ${table} (id INT64 NOT NULL, name STRING(MAX), count INT64) PRIMARY KEY (id)`,
          `CREATE CHANGE STREAM ${stream} FOR ${table} OPTIONS (value_capture_type = '${capture}')`,
        ]
  })
  const database = await emulator.createDatabase(statements, dialect)
  const probe = new RawProbe(emulator.host, database.formattedName_, dialect)
  const start = new Date().toISOString()
  const streams = Object.fromEntries(
    CAPTURES.map((capture): [ValueCaptureType, StreamUnderTest] => [
      capture,
      {
        name: streamOf(capture),
        table: tableOf(capture),
        capture,
        probe,
        start,
        commit: (writes) => commit(probe, tableOf(capture), writes),
      },
    ]),
  )
  return { dialect, streams: streams as Site['streams'], close: () => probe.close() }
}

/** The emulator runs one transaction at a time, so one may be told to try again. */
async function commit(probe: RawProbe, table: string, writes: readonly Write[]): Promise<string> {
  const session = await probe.session()
  const mutations = writes.map(({ op, id, ...values }) => {
    if (op === 'delete') return { delete: { table, keySet: { keys: [{ values: [{ stringValue: String(id) }] }] } } }
    const columns = ['id', ...Object.keys(values)]
    const row = [id, ...Object.values(values)].map((value) =>
      value === null ? { nullValue: 'NULL_VALUE' as const } : { stringValue: String(value) },
    )
    return { [op]: { table, columns, values: [{ values: row }] } }
  })
  for (;;) {
    try {
      const request = { session, mutations, singleUseTransaction: { readWrite: {} } }
      const [{ commitTimestamp }] = await probe.client.commit(request)
      const { seconds, nanos } = commitTimestamp!
      const whole = new Date(Number(seconds) * 1000).toISOString().slice(0, 19)
      return normalTime(`${whole}.${String(nanos ?? 0).padStart(9, '0')}Z`)
    } catch (error) {
      if ((error as { code?: number }).code !== 10) throw error
    }
  }
}
