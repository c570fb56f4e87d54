/** Counters on the real emulator whose partitions live for a second: nothing lost or invented, order as it can be. */
import { setTimeout } from 'node:timers/promises'
import { type protos, Spanner } from '@google-cloud/spanner'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Dialect } from '../../src/model/change-stream.ts'
import { SeededRandom } from '../../src/simulator/index.ts'
import type { StoreOrders } from '../support/counter-worker.ts'
import {
  type CounterRun,
  childrenBeforeParents,
  countUp,
  disorderInPartitions,
  KILLS,
  misses,
  readCounters,
} from '../support/counters.ts'
import { hasPostgres, type PostgresServer, requirePostgres, startPostgres } from '../support/postgres.ts'
import {
  hasSpannerEmulator,
  requireSpannerEmulator,
  type SpannerEmulator,
  startSpannerEmulator,
} from '../support/spanner-emulator.ts'

requireSpannerEmulator('counters-emulator.integration.test.ts')
requirePostgres('counters-emulator.integration.test.ts')

const DIALECTS: readonly Dialect[] = ['googlesql', 'postgresql']

const KILL_EVERY_MS = 2_000
const PARTITION_LIFE_MS = 1_100

describe.skipIf(!hasSpannerEmulator).each(DIALECTS)('counters in %s', (dialect) => {
  let emulator: SpannerEmulator
  let postgres: PostgresServer | undefined

  beforeAll(async () => {
    emulator = await startSpannerEmulator({ churn: true })
    if (hasPostgres) postgres = await startPostgres()
  })

  afterAll(async () => {
    await postgres?.stop()
    await emulator.stop()
  })

  test('P1 P4: nothing is lost or invented, order holds inside partitions and from parents to descendants', async () => {
    expectWhole(await run(sqlite, undefined), emulator.hasChurn)
  })

  test.for(['sqlite', 'spanner', 'postgres'] as const)(
    'P1 P4: the same while the reader is killed every two seconds, with %s as store',
    { timeout: 240_000 },
    async (kind, { skip }) => {
      if (kind === 'postgres' && postgres === undefined) return skip('there is no PostgreSQL')
      const counted = await run(await storeOf(kind), KILL_EVERY_MS)
      expect(counted.deadOwners).toHaveLength(KILLS)
      expect(new Set(counted.deadOwners).size).toBe(KILLS)
      expectWhole(counted, emulator.hasChurn)
    },
  )

  async function storeOf(kind: 'sqlite' | 'spanner' | 'postgres'): Promise<(folder: string) => StoreOrders> {
    if (kind === 'sqlite') return sqlite
    if (kind === 'postgres') return () => ({ kind, connectionString: postgres!.connectionString })
    const { formattedName_: database } = await emulator.createDatabase([], dialect)
    return () => ({ kind, database, emulatorHost: emulator.host })
  }

  async function run(store: (folder: string) => StoreOrders, killEveryMs: number | undefined): Promise<CounterRun> {
    const database = await emulator.createDatabase(SCHEMA[dialect], dialect)
    const start = new Date().toISOString()
    const table = database.table(dialect === 'googlesql' ? 'Counters' : 'counters')
    const [id, total] = dialect === 'googlesql' ? ['Id', 'Total'] : ['id', 'total']
    // The time of the last commit, by the server's clock.
    let last = ''
    let commits = 0
    const count = async (gates: readonly Promise<void>[]): Promise<string> => {
      const commit = async (values: ReadonlyMap<string, number>): Promise<void> => {
        const rows = [...values].map(([key, value]) => ({ [id]: key, [total]: Spanner.int(value) }))
        const [{ commitTimestamp }] = await table.upsert(rows)
        last = timeOf(commitTimestamp!)
        // The pace of the writer: a fast machine must not be done before partitions have come and gone.
        if (++commits % 300 === 0 && killEveryMs === undefined) await setTimeout(PARTITION_LIFE_MS)
      }
      await countUp(new SeededRandom(7), commit, gates)
      return last
    }
    const stream = dialect === 'googlesql' ? 'CounterChanges' : 'counter_changes'
    const orders = { host: emulator.host, database: database.formattedName_, stream, start }
    return await readCounters(orders, store, count, killEveryMs)
  }
})

function timeOf({ seconds, nanos }: protos.google.protobuf.ITimestamp): string {
  const whole = new Date(Number(seconds) * 1000).toISOString().slice(0, 19)
  return `${whole}.${String(nanos ?? 0).padStart(9, '0')}Z`
}

function sqlite(folder: string): StoreOrders {
  return { kind: 'sqlite', path: `${folder}/state.db` }
}

function expectWhole(run: CounterRun, hasChurn: boolean): void {
  expect(misses(run)).toEqual([])
  // The emulator puts changes into partitions without regard to their keys: order across lineages cannot be judged.
  expect(disorderInPartitions(run)).toEqual([])
  expect(childrenBeforeParents(run)).toEqual([])
  if (hasChurn) expect(new Set(run.lines.map(({ partition }) => partition)).size).toBeGreaterThan(3)
}

const SCHEMA: Readonly<Record<Dialect, readonly string[]>> = {
  googlesql: [
    'CREATE TABLE Counters (Id STRING(36) NOT NULL, Total INT64) PRIMARY KEY (Id)',
    'CREATE CHANGE STREAM CounterChanges FOR Counters',
  ],
  postgresql: [
    'CREATE TABLE counters (id varchar(36) PRIMARY KEY, total bigint)',
    'CREATE CHANGE STREAM counter_changes FOR counters',
  ],
}
