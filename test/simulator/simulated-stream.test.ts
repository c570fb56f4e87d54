import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { sleep } from '../../src/core/clock.ts'
import type { DataChangeRecord } from '../../src/model/data-change-record.ts'
import { rowKey, type ValueCaptureType } from '../../src/model/data-change-record.ts'
import {
  KEY_SPACE,
  pointOf,
  randomWorkload,
  SimulatedStream,
  type SimulatedStreamOptions,
  VirtualClock,
} from '../../src/simulator/index.ts'
import { collect } from './patient-reader.ts'

const ORDERS = {
  name: 'Orders',
  columns: [
    { name: 'Id', type: 'INT64', isPrimaryKey: true },
    { name: 'Status', type: 'STRING' },
    { name: 'Total', type: 'NUMERIC' },
  ],
}

function shop(options: Partial<SimulatedStreamOptions> = {}): { clock: VirtualClock; stream: SimulatedStream } {
  const clock = new VirtualClock()
  const stream = new SimulatedStream({ seed: 1, clock, ...options })
  stream.defineTable(ORDERS)
  return { clock, stream }
}

const insert = (id: number, values = {}) => ({ table: 'Orders', op: 'insert', keys: { Id: id }, values }) as const
const update = (id: number, values: object) =>
  ({ table: 'Orders', op: 'update', keys: { Id: id }, values: { ...values } }) as const
const remove = (id: number) => ({ table: 'Orders', op: 'delete', keys: { Id: id } }) as const

/** All data records of the live partitions, in order of partition. */
async function recordsOf({ clock, stream }: ReturnType<typeof shop>): Promise<DataChangeRecord[]> {
  return clock.run(async () => {
    await sleep(clock, 1000)
    const records: DataChangeRecord[] = []
    for (const { token, start } of stream.livePartitions()) {
      const query = { token, start, end: stream.now(), heartbeatMs: 10_000 }
      for (const entry of await collect(stream.client(), query)) if (entry.kind === 'data') records.push(entry.record)
    }
    return records
  })
}

describe('SimulatedStream', () => {
  describe('commit', () => {
    const captured: Record<ValueCaptureType, unknown[]> = {
      OLD_AND_NEW_VALUES: [
        [{ Status: 'open', Total: '1.5' }, {}],
        [{ Status: 'paid' }, { Status: 'open' }],
        [{}, { Status: 'paid', Total: '1.5' }],
      ],
      NEW_VALUES: [
        [{ Status: 'open', Total: '1.5' }, {}],
        [{ Status: 'paid' }, {}],
        [{}, {}],
      ],
      NEW_ROW: [
        [{ Status: 'open', Total: '1.5' }, {}],
        [{ Status: 'paid', Total: '1.5' }, {}],
        [{}, {}],
      ],
      NEW_ROW_AND_OLD_VALUES: [
        [{ Status: 'open', Total: '1.5' }, {}],
        [{ Status: 'paid', Total: '1.5' }, { Status: 'open' }],
        [{}, { Status: 'paid', Total: '1.5' }],
      ],
    }

    test.each(Object.keys(captured) as ValueCaptureType[])('captures %s', (valueCaptureType) => {
      const { stream } = shop({ valueCaptureType })
      stream.commit([insert(1, { Status: 'open', Total: '1.5' })])
      stream.commit([update(1, { Status: 'paid' })])
      stream.commit([remove(1)])
      const values = stream.ledger.changes.map(({ newValues, oldValues }) => [newValues, oldValues])
      expect(values).toEqual(captured[valueCaptureType])
    })

    test('captures by the new type after an alteration, in records that say so', async () => {
      const shopping = shop()
      const { stream } = shopping
      stream.commit([insert(1, { Status: 'open' })])
      stream.setValueCaptureType('NEW_ROW')
      stream.commit([update(1, { Total: '2' })])
      const records = await recordsOf(shopping)
      expect(records.map((record) => record.valueCaptureType)).toEqual(['OLD_AND_NEW_VALUES', 'NEW_ROW'])
      expect(records[1]!.mods[0]).toMatchObject({ newValues: { Status: 'open', Total: '2' }, oldValues: {} })
    })

    test('records the net effect of a transaction on each row', async () => {
      const shopping = shop({ initialPartitions: 1 })
      shopping.stream.commit([insert(1), insert(2), insert(3)])
      const writes = [
        ...[update(1, { Status: 'a' }), update(1, { Total: '1' }), update(2, { Status: 'b' }), remove(2)],
        ...[remove(3), insert(3), insert(4), remove(4)],
      ]
      shopping.stream.commit(writes)
      const records = (await recordsOf(shopping)).slice(1)
      const shown = records.flatMap(({ modType, mods }) =>
        mods.map(({ keys, newValues }) => [modType, keys.Id, newValues]),
      )
      expect(shown).toEqual([
        ['UPDATE', '1', { Status: 'a', Total: '1' }],
        ['DELETE', '2', {}],
        ['INSERT', '3', expect.anything()],
      ])
    })

    test('captures nothing of tables that it does not watch', () => {
      const { stream } = shop({ tables: ['Other'] })
      stream.commit([insert(1)])
      expect(stream.ledger.changes).toEqual([])
    })

    test('lets consecutive like writes of a partition share a record', async () => {
      const shopping = shop({ initialPartitions: 1 })
      shopping.stream.commit([insert(1), insert(2), insert(3), insert(4)])
      shopping.stream.commit(
        [update(1, { Status: 'a' }), update(2, { Status: 'b' }), update(3, { Total: '1' }), remove(4), insert(5)],
        { tag: 'five' },
      )
      const records = await recordsOf(shopping)
      expect(records.map(({ modType, mods }) => [modType, mods.length])).toEqual([
        ['INSERT', 4],
        ['UPDATE', 2],
        ['UPDATE', 1],
        ['DELETE', 1],
        ['INSERT', 1],
      ])
      const second = records.slice(1)
      expect(second.map((record) => record.recordSequence)).toEqual(['00000000', '00000001', '00000002', '00000003'])
      expect(second.map((record) => record.isLastRecordInTransactionInPartition)).toEqual([false, false, false, true])
      expect(new Set(second.map((record) => record.serverTransactionId)).size).toBe(1)
      for (const record of second) {
        expect(record).toMatchObject({
          transactionTag: 'five',
          numberOfRecordsInTransaction: 4,
          numberOfPartitionsInTransaction: 1,
          commitTimestamp: second[0]!.commitTimestamp,
        })
      }
      expect(second[0]!.columnTypes.map((column) => column.name)).toEqual(['Id', 'Status'])
      expect(second[1]!.columnTypes.map((column) => [column.name, column.ordinalPosition])).toEqual([
        ['Id', 1],
        ['Total', 3],
      ])
    })

    test('counts records and partitions of a transaction over all partitions', async () => {
      const shopping = shop({ initialPartitions: 4 })
      shopping.stream.commit(Array.from({ length: 40 }, (_, id) => insert(id)))
      const records = await recordsOf(shopping)
      expect(records).toHaveLength(4)
      expect(new Set(records.map((record) => record.recordSequence)).size).toBe(4)
      for (const record of records) {
        expect(record).toMatchObject({ numberOfRecordsInTransaction: 4, numberOfPartitionsInTransaction: 4 })
        expect(record.isLastRecordInTransactionInPartition).toBe(true)
      }
    })

    test('keeps numbers that JSON has no place for as they are on the wire, in arrays too', async () => {
      const { clock, stream } = shop()
      const array = (code: string) => ({ code: 'ARRAY', array_element_type: { code } })
      stream.defineTable({
        name: 'Numbers',
        columns: [
          { name: 'Id', type: 'INT64', isPrimaryKey: true },
          { name: 'Weight', type: 'FLOAT64' },
          { name: 'Counts', type: array('INT64') },
          { name: 'Weights', type: array('FLOAT32') },
        ],
      })
      const values = { Weight: Number.NaN, Counts: [2n ** 60n, 7, null], Weights: [0.5, Number.NEGATIVE_INFINITY] }
      stream.commit([{ table: 'Numbers', op: 'insert', keys: { Id: 1n }, values }])
      const wire = { Weight: 'NaN', Counts: [String(2n ** 60n), '7', null], Weights: [0.5, '-Infinity'] }
      const [record] = await recordsOf({ clock, stream })
      expect(record!.mods).toMatchObject([{ keys: { Id: '1' }, newValues: wire }])
      expect(stream.ledger.changes[0]!.newValues).toMatchObject(wire)
    })

    test('refuses impossible writes and then changes nothing', () => {
      const { stream } = shop()
      stream.commit([insert(1)])
      const refusals: [() => unknown, string][] = [
        [() => stream.commit([insert(2), insert(1)]), 'writes[1] inserts a row into Orders that exists already'],
        [() => stream.commit([insert(2), update(3, { Total: '1' })]), 'updates a row of Orders that does not exist'],
        [() => stream.commit([insert(2), remove(3)]), 'deletes a row of Orders that does not exist'],
        [() => stream.commit([insert(2), update(1, {})]), 'updates no column'],
        [() => stream.commit([insert(2, { Nope: 1 })]), 'values.Nope, which is not a value column'],
        [() => stream.commit([insert(2, { Id: 1 })]), 'values.Id, which is not a value column'],
        [() => stream.commit([{ table: 'Orders', op: 'insert', keys: {} }]), 'lacks key column Id'],
        [() => stream.commit([{ table: 'Nope', op: 'insert', keys: {} }]), 'table Nope, which is not defined'],
        [() => stream.commit([{ ...remove(1), values: { Total: '1' } }]), 'gives it values'],
        [() => stream.commit([]), 'at least one write'],
        [() => stream.commit([update(1, { Total: '1' })], { tie: true }), 'cannot share the timestamp'],
      ]
      for (const [commit, text] of refusals) expect(commit).toThrow(text)
      expect(stream.ledger.changes).toHaveLength(1)
      expect(stream.row('Orders', { Id: 2 })).toBeUndefined()
    })

    test('gives timestamps that grow by microseconds and follow the clock', async () => {
      const { clock, stream } = shop({ tieChance: 0 })
      const first = [insert(1), insert(2), insert(3)].map((write) => stream.commit([write]))
      await clock.advance(5)
      const later = stream.commit([insert(4)])
      expect([...first, later]).toEqual([
        '2026-01-01T00:00:00.000000000Z',
        '2026-01-01T00:00:00.000001000Z',
        '2026-01-01T00:00:00.000002000Z',
        '2026-01-01T00:00:00.005000000Z',
      ])
    })

    test('lets transactions without a common row share a timestamp, ordered by transaction id', async () => {
      const shopping = shop({ initialPartitions: 1, tieChance: 0 })
      const first = shopping.stream.commit([insert(1)])
      for (let id = 2; id <= 9; id++) expect(shopping.stream.commit([insert(id)], { tie: true })).toBe(first)
      const ids = (await recordsOf(shopping)).map((record) => record.serverTransactionId)
      expect(ids).toHaveLength(9)
      expect(ids).toEqual(ids.toSorted())
      expect(ids).not.toEqual(shopping.stream.ledger.changes.map((change) => change.id.split('/')[0]))
      expect(() => shopping.stream.commit([insert(10)], { tie: true })).toThrow('cannot share')
    })

    test('names rows as rowKey does, whatever order the keys come in', () => {
      const { stream } = shop()
      stream.defineTable({
        name: 'Lines',
        columns: [
          { name: 'Z', type: 'INT64', isPrimaryKey: true },
          { name: 'A', type: 'STRING', isPrimaryKey: true },
        ],
      })
      stream.commit([{ table: 'Lines', op: 'insert', keys: { Z: 1, A: 'x' } }])
      stream.commit([{ table: 'Lines', op: 'delete', keys: { A: 'x', Z: '1' } }])
      for (const change of stream.ledger.changes) expect(change.key).toBe(rowKey('Lines', change.keys))
      expect(stream.ledger.changes.map((change) => change.key)).toEqual([
        'Lines{"A":"x","Z":"1"}',
        'Lines{"A":"x","Z":"1"}',
      ])
    })

    test('keeps a column that is called __proto__', () => {
      const { stream } = shop()
      stream.defineTable({
        name: 'Odd',
        columns: [
          { name: 'Id', type: 'INT64', isPrimaryKey: true },
          { name: '__proto__', type: 'STRING' },
        ],
      })
      stream.commit([{ table: 'Odd', op: 'insert', keys: { Id: 1 }, values: JSON.parse('{"__proto__":"kept"}') }])
      expect(JSON.stringify(stream.ledger.changes[0]!.newValues)).toBe('{"__proto__":"kept"}')
    })
  })

  describe('split, move and merge', () => {
    test('end the parents before later commits, which go to the children', () => {
      const { stream } = shop({ initialPartitions: 1 })
      const [parent] = stream.livePartitions()
      const before = stream.commit([insert(1)])
      const children = stream.split(parent!.token, 3)
      const after = stream.commit([update(1, { Total: '1' })])
      const ended = stream.lineage().find((partition) => partition.token === parent!.token)!
      expect(ended.end! > before && ended.end! <= after).toBe(true)
      expect(ended.children).toEqual(children)
      expect(stream.partitionOf('Orders', { Id: 1 })).toBe(stream.ledger.changes[1]!.partitionToken)
      expect(children).toContain(stream.ledger.changes[1]!.partitionToken)
      for (const child of stream.livePartitions())
        expect(child).toMatchObject({ start: ended.end, parents: [parent!.token] })
    })

    test('announce a merged child by both parents, with all parents and the same start', async () => {
      const { clock, stream } = shop({ initialPartitions: 3 })
      const [a, b, c] = stream.livePartitions()
      const merged = stream.merge(b!.token, a!.token)
      expect(() => stream.merge(merged, a!.token)).toThrow('has ended already')
      await clock.run(async () => {
        for (const { token, start } of [a!, b!]) {
          const records = await collect(stream.client(), { token, start, end: null, heartbeatMs: 1000 })
          expect(records.map((entry) => entry.record)).toEqual([
            {
              startTimestamp: stream.lineage().at(-1)!.start,
              recordSequence: '00000000',
              children: [{ token: merged, parentTokens: [a!.token, b!.token] }],
            },
          ])
        }
      })
      expect(stream.livePartitions().map((partition) => partition.token)).toEqual([merged, c!.token])
    })

    test('refuse what cannot be', () => {
      const { stream } = shop({ initialPartitions: 3 })
      const [a, , c] = stream.livePartitions()
      expect(() => stream.merge(a!.token, c!.token)).toThrow('not side by side')
      expect(() => stream.merge(a!.token, a!.token)).toThrow('not side by side')
      expect(() => stream.split(a!.token, 0)).toThrow('positive whole number')
      expect(() => stream.move('nope')).toThrow('there is no partition nope')
    })

    test('keep every key in exactly one live partition, children tile their parents, tokens are unique', () => {
      fc.assert(
        fc.property(fc.integer(), fc.array(fc.tuple(fc.nat(3), fc.nat()), { maxLength: 40 }), (seed, steps) => {
          const { stream } = shop({ seed })
          for (const [kind, n] of steps) {
            const live = stream.livePartitions()
            const at = n % live.length
            if (kind === 0) stream.move(live[at]!.token)
            else if (kind === 1 && at + 1 < live.length) stream.merge(live[at]!.token, live[at + 1]!.token)
            else stream.split(live[at]!.token, 1 + (n % 4))
            expectTiling(
              stream.livePartitions().map((partition) => partition.range),
              0,
              KEY_SPACE,
            )
            for (let id = 0; id < 20; id++) {
              const point = pointOf(rowKey('Orders', { Id: String(id) }))
              const holders = stream.livePartitions().filter(({ range }) => range.lo <= point && point < range.hi)
              expect(holders.map((holder) => holder.token)).toEqual([stream.partitionOf('Orders', { Id: id })])
            }
          }
          expectLineage(stream)
        }),
        { numRuns: 50 },
      )
    })
  })

  test('is the same for the same seed: ledger, partitions and every part read through the first door', async () => {
    const run = async (seed: number): Promise<string> => {
      const clock = new VirtualClock()
      const stream = new SimulatedStream({ seed, clock })
      return clock.run(async () => {
        const start = stream.now()
        await randomWorkload(stream, { seed, transactions: 150, topologyChance: 0.1 })
        const parts: unknown[] = []
        for (const { token, start: from } of stream.lineage()) {
          const query = { token, start: from > start ? from : start, end: stream.now(), heartbeatMs: 1000 }
          for await (const part of stream.client().query(query, AbortSignal.any([]))) {
            parts.push({ ...part, resumeToken: [...(part.resumeToken ?? [])], atMs: clock.now() })
          }
        }
        return JSON.stringify([stream.ledger, stream.lineage(), parts])
      })
    }
    const [once, again, other] = [await run(5), await run(5), await run(6)]
    expect(again).toBe(once)
    expect(other).not.toBe(once)
  })

  test('keeps a limited history if told so, and says what is gone', async () => {
    const clock = new VirtualClock()
    const stream = new SimulatedStream({ seed: 3, clock, maxHistoryChanges: 100 })
    await clock.run(async () => {
      const start = stream.now()
      await randomWorkload(stream, { seed: 3, transactions: 2000, topologyChance: 0.1 })
      expect(stream.ledger.changes.length).toBeLessThanOrEqual(124)
      expect(stream.ledger.changes.length).toBeGreaterThanOrEqual(100)
      expect(stream.ledger.forgottenChanges + stream.ledger.changes.length).toBeGreaterThan(2000)
      expect(stream.lineage().length).toBeLessThan(100)
      const root = { token: null, start, end: null, heartbeatMs: 1000 }
      await expect(collect(stream.client(), root)).rejects.toMatchObject({ cause: { status: 'OUT_OF_RANGE' } })
      // What is kept is still whole.
      const oldest = stream.ledger.changes[0]!.commitTimestamp
      const ids = new Set<string>()
      for (const { token, start: from } of stream.lineage()) {
        const query = { token, start: from > oldest ? from : oldest, end: stream.now(), heartbeatMs: 1000 }
        for (const entry of await collect(stream.client(), query)) {
          if (entry.kind !== 'data') continue
          const { serverTransactionId, recordSequence, mods } = entry.record
          for (const index of mods.keys()) ids.add(`${serverTransactionId}/${recordSequence}/${index}`)
        }
      }
      expect(ids).toEqual(new Set(stream.ledger.changes.map((change) => change.id)))
    })
  })
})

function expectTiling(ranges: readonly { lo: number; hi: number }[], lo: number, hi: number): void {
  const sorted = ranges.toSorted((a, b) => a.lo - b.lo)
  expect(sorted[0]!.lo).toBe(lo)
  expect(sorted.at(-1)!.hi).toBe(hi)
  for (const [index, range] of sorted.entries()) {
    expect(range.hi).toBeGreaterThan(range.lo)
    if (index > 0) expect(range.lo).toBe(sorted[index - 1]!.hi)
  }
}

function expectLineage(stream: SimulatedStream): void {
  const lineage = stream.lineage()
  const byToken = new Map(lineage.map((partition) => [partition.token, partition]))
  expect(byToken.size).toBe(lineage.length)
  for (const partition of lineage) {
    expect(partition.token.length).toBeGreaterThanOrEqual(60)
    expect(partition.token.length).toBeLessThanOrEqual(140)
    if (partition.end === null) continue
    const children = partition.children.map((token) => byToken.get(token)!)
    for (const child of children) expect(child.start).toBe(partition.end)
    const parents = children[0]!.parents.map((token) => byToken.get(token)!)
    expectTiling(
      children.map((child) => child.range),
      Math.min(...parents.map((parent) => parent.range.lo)),
      Math.max(...parents.map((parent) => parent.range.hi)),
    )
  }
}
