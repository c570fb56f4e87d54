/** The counters on the simulator over gRPC, which places keys by range: order holds per key, wherever ranges go. */
import { setTimeout } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import type { Dialect, PartitionMode } from '../../src/model/change-stream.ts'
import { SeededRandom, SimulatedStream, serveStream } from '../../src/simulator/index.ts'
import { type CounterRun, countUp, disorderOfKeys, KILLS, misses, readCounters } from '../support/counters.ts'

const KINDS: readonly (readonly [PartitionMode, Dialect])[] = [
  ['immutable', 'googlesql'],
  ['immutable', 'postgresql'],
  ['mutable', 'googlesql'],
  ['mutable', 'postgresql'],
]

describe.each(KINDS)('counters on a simulated stream, %s, %s', (mode, dialect) => {
  test.each([undefined, 2_000])(
    'P1 P3: nothing is lost or invented, and no key is out of order (killed every %s ms)',
    { timeout: 120_000 },
    async (killEveryMs) => {
      const run = await runCounters(mode, dialect, killEveryMs)
      expect(misses(run)).toEqual([])
      expect(disorderOfKeys(run)).toEqual([])
      expect(new Set(run.lines.map(({ partition }) => partition)).size).toBeGreaterThan(5)
      if (killEveryMs === undefined) return
      expect(run.deadOwners).toHaveLength(KILLS)
      expect(new Set(run.deadOwners).size).toBe(KILLS)
    },
  )
})

async function runCounters(
  mode: PartitionMode,
  dialect: Dialect,
  killEveryMs: number | undefined,
): Promise<CounterRun> {
  const stream = new SimulatedStream({ seed: 11, mode, dialect, initialPartitions: 3, stream: 'counters' })
  stream.defineTable({
    name: 'Counters',
    columns: [
      { name: 'Id', type: 'STRING', isPrimaryKey: true },
      { name: 'Total', type: 'INT64' },
    ],
  })
  const served = await serveStream(stream)
  const random = new SeededRandom(3)
  let commits = 0
  const commit = async (values: ReadonlyMap<string, number>): Promise<void> => {
    const writes = [...values].map(([Id, value]) => {
      const op = stream.row('Counters', { Id }) === undefined ? ('insert' as const) : ('update' as const)
      return { table: 'Counters', op, keys: { Id }, values: { Total: String(value) } }
    })
    stream.commit(writes)
    if (++commits % 25 === 0) churn(stream, mode, random)
    // The pace of the writer: readers see the stream grow.
    await setTimeout(3)
  }
  const count = async (gates: readonly Promise<void>[]): Promise<string> => {
    await countUp(random, commit, gates)
    return stream.ledger.changes.at(-1)!.commitTimestamp
  }
  try {
    const orders = {
      host: served.host,
      database: served.database,
      stream: served.stream,
      start: stream.createdAt,
    }
    return await readCounters(orders, (folder) => ({ kind: 'sqlite', path: `${folder}/state.db` }), count, killEveryMs)
  } finally {
    await served.close()
  }
}

function churn(stream: SimulatedStream, mode: PartitionMode, random: SeededRandom): void {
  const live = stream.livePartitions()
  const at = random.int(live.length)
  const one = live[at]!
  const other = live[at + 1]
  const kind = random.int(mode === 'mutable' ? 5 : 3)
  if (kind === 0 && live.length < 8) stream.split(one.token)
  else if (kind === 1 || other === undefined) stream.move(one.token)
  else if (kind === 2) stream.merge(one.token, other.token)
  else if (kind === 3) stream.moveRange(one.token, other.token)
  else if (kind === 4) stream.swapRanges(one.token, other.token)
}
