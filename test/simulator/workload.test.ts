import { describe, expect, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import { randomWorkload, SimulatedStream, shopTables, VirtualClock } from '../../src/simulator/index.ts'

describe('randomWorkload', () => {
  test('writes all kinds of changes to all tables and changes partitions in all ways', async () => {
    const clock = new VirtualClock()
    const stream = new SimulatedStream({ seed: 1, clock })
    await clock.run(() =>
      randomWorkload(stream, { seed: 1, transactions: 1000, topologyChance: 0.1, maxPartitions: 5 }),
    )
    const { changes, topology, transactions } = stream.ledger
    expect(transactions).toBe(1000)
    expect(new Set(changes.map((change) => `${change.table} ${change.op}`)).size).toBe(shopTables.length * 3)
    expect(new Set(topology.map((event) => event.kind))).toEqual(new Set(['create', 'split', 'move', 'merge']))
    expect(stream.livePartitions().length).toBeLessThanOrEqual(6)
    const times = changes.map((change) => change.commitTimestamp)
    expect(times).toEqual(times.toSorted())
    const idsAt = Map.groupBy(changes, (change) => change.commitTimestamp)
    const ties = [...idsAt.values()].filter((list) => new Set(list.map((change) => change.id.split('/')[0])).size > 1)
    expect(ties.length).toBeGreaterThan(10)
  })

  test('stops between two transactions when its signal says so', async () => {
    const clock = new VirtualClock()
    const stream = new SimulatedStream({ seed: 2, clock })
    await clock.run(async () => {
      const abort = new AbortController()
      const options = { seed: 2, transactions: Number.POSITIVE_INFINITY, signal: abort.signal }
      const work = randomWorkload(stream, options)
      await sleep(clock, 5000)
      abort.abort()
      await work
    })
    expect(stream.ledger.transactions).toBeGreaterThan(100)
    expect(clock.pendingTimers).toBe(0)
  })

  test('may be run again on the same stream', async () => {
    const stream = new SimulatedStream({ seed: 3 })
    for (const seed of [1, 2]) await randomWorkload(stream, { seed, transactions: 50, pauseMs: 0 })
    expect(stream.ledger.transactions).toBe(100)
  })
})
