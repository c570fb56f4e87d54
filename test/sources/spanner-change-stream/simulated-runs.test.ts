/** Whole runs of the source against the simulator: many partitions, whole records, and a stream that is altered. */
import { describe, expect, test } from 'vitest'
import type { Change, DataChangeRecord } from '../../../src/model/data-change-record.ts'
import { ROOT_TOKEN } from '../../../src/model/partition.ts'
import { randomWorkload, SimulatedStream, type VirtualClock } from '../../../src/simulator/index.ts'
import { Probe, simulate } from './scripted-stream.ts'

describe('spannerChangeStream on a simulated stream', () => {
  test.each(['immutable', 'mutable'] as const)(
    'P1 P4: reads and finishes a thousand partitions and more (%s)',
    (mode) =>
      simulate(async (clock) => {
        const stream = simulated(clock, { mode, initialPartitions: 1000 })
        const source = { start: stream.createdAt, maxPartitions: 5000 }
        const probe = new Probe(clock, stream.client(), { source })
        await randomWorkload(stream, { seed: 8, transactions: 300, pauseMs: 50, topologyChance: 0.3 })
        const written = stream.ledger.changes.map(({ id }) => id)
        await probe.until(() => probe.taken.length >= written.length)
        probe.run.drain()
        await probe.ended
        await probe.run.close()
        expect(probe.taken.map(({ id }) => id).toSorted()).toEqual(written.toSorted())

        // An end that lies behind everything finishes them all.
        const last = new Probe(clock, stream.client(), { store: probe.store, source: { ...source, end: stream.now() } })
        await last.ended
        await last.run.close()
        expect(last.taken).toEqual([])
        const states = await last.states()
        expect(new Set(Object.values(states))).toEqual(new Set(['FINISHED']))
        const tokens = stream.lineage().map(({ token }) => token)
        expect(tokens.length).toBeGreaterThan(1000)
        expect(Object.keys(states).toSorted()).toEqual([ROOT_TOKEN, ...tokens].toSorted())
      }),
  )

  test.each(['immutable', 'mutable'] as const)(
    "P1 P6: unit 'record' brings every record once through splits, merges and a restart (%s)",
    (mode) =>
      simulate(async (clock) => {
        const stream = simulated(clock, { mode, initialPartitions: 3 })
        const source = { start: stream.createdAt, unit: 'record' as const }
        const first = new Probe(clock, stream.client(), { source })
        await randomWorkload(stream, { seed: 9, transactions: 150, pauseMs: 50, topologyChance: 0.2 })
        first.run.drain()
        await first.ended
        await first.run.close()
        await randomWorkload(stream, { seed: 10, transactions: 150, pauseMs: 50, topologyChance: 0.2 })
        const second = new Probe(clock, stream.client(), { source, store: first.store, owner: 'second' })
        const written = new Set(stream.ledger.changes.map(({ id }) => id.slice(0, id.lastIndexOf('/'))))
        await second.until(() => first.taken.length + second.taken.length >= written.size)
        await second.run.close()

        const taken = [...first.taken, ...second.taken]
        expect(first.taken.length).toBeGreaterThan(0)
        expect(taken.map(({ id }) => id).toSorted()).toEqual([...written].toSorted())
        const rows = taken.reduce((sum, { value }) => sum + (value as unknown as DataChangeRecord).mods.length, 0)
        expect(rows).toBe(stream.ledger.changes.length)
        const kinds = new Set(stream.ledger.topology.map(({ kind }) => kind))
        expect([...kinds]).toEqual(expect.arrayContaining(['split', 'merge']))
      }),
  )

  test.each(['immutable', 'mutable'] as const)('P9: what is captured changes while the stream is read (%s)', (mode) =>
    simulate(async (clock) => {
      const stream = simulated(clock, { mode, initialPartitions: 2, valueCaptureType: 'OLD_AND_NEW_VALUES' })
      const probe = new Probe(clock, stream.client(), { source: { start: stream.createdAt } })
      const columns = [
        { name: 'Id', type: 'INT64', isPrimaryKey: true },
        { name: 'Total', type: 'INT64' },
        { name: 'Note', type: 'STRING' },
      ] as const
      stream.defineTable({ name: 'Orders', columns })
      const keys = { Id: '1' }
      stream.commit([{ table: 'Orders', op: 'insert', keys, values: { Total: '1', Note: 'a' } }])
      for (const [n, type] of (['NEW_VALUES', 'NEW_ROW', 'NEW_ROW_AND_OLD_VALUES'] as const).entries()) {
        await probe.until(() => probe.taken.length === 1 + n)
        stream.setValueCaptureType(type)
        if (mode === 'mutable') {
          const [a, b] = stream.livePartitions()
          stream.swapRanges(a!.token, b!.token)
        }
        stream.commit([{ table: 'Orders', op: 'update', keys, values: { Total: String(n + 2) } }])
      }
      await probe.until(() => probe.taken.length === 4)
      await probe.run.close()

      const seen = probe.taken.map(({ value }: { readonly value: Change }) => ({
        type: value.record.valueCaptureType,
        new: value.newValues,
        old: value.oldValues,
      }))
      expect(seen).toEqual([
        { type: 'OLD_AND_NEW_VALUES', new: { Total: '1', Note: 'a' }, old: {} },
        { type: 'NEW_VALUES', new: { Total: '2' }, old: {} },
        { type: 'NEW_ROW', new: { Total: '3', Note: 'a' }, old: {} },
        { type: 'NEW_ROW_AND_OLD_VALUES', new: { Total: '4', Note: 'a' }, old: { Total: '3' } },
      ])
    }),
  )
})

function simulated(
  clock: VirtualClock,
  options: Partial<ConstructorParameters<typeof SimulatedStream>[0]>,
): SimulatedStream {
  return new SimulatedStream({ seed: 7, clock, stream: 'S', ...options })
}
