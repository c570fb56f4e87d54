/** Cases about what records hold: capture types, and how the writes of one transaction become records. */
import { describe, expect, test } from 'vitest'
import { dataOf, type Scene } from './scene.ts'
import type { DataRecord } from './server-record.ts'
import { CAPTURES, type StreamUnderTest, type Write } from './site.ts'
import { walk } from './walk.ts'

export function captureCases(scene: () => Scene): void {
  describe.each(CAPTURES)('capture type %s', (capture) => {
    const capturesOld = capture === 'OLD_AND_NEW_VALUES' || capture === 'NEW_ROW_AND_OLD_VALUES'
    const capturesRow = capture === 'NEW_ROW' || capture === 'NEW_ROW_AND_OLD_VALUES'
    const changed = async (): Promise<DataRecord[]> => {
      const id = 900_000
      return recordsOf(scene().site.streams[capture], [
        [{ op: 'insert', id, name: 'first', count: 1 }],
        [{ op: 'update', id, name: 'second' }],
        [{ op: 'update', id, name: null, count: null }],
        [{ op: 'delete', id }],
      ])
    }

    test('shows inserts, updates and deletes as it should', async () => {
      const records = await changed()
      expect(records.map(({ modType }) => modType)).toEqual(['INSERT', 'UPDATE', 'UPDATE', 'DELETE'])
      expect(records.map((record) => record.capture)).toEqual(records.map(() => capture))
      const keys = { id: '900000' }
      const old = (values: object): object => (capturesOld ? values : {})
      expect(records.map(({ mods }) => mods)).toEqual([
        [{ keys, newValues: { name: 'first', count: '1' }, oldValues: {} }],
        [
          {
            keys,
            newValues: capturesRow ? { name: 'second', count: '1' } : { name: 'second' },
            oldValues: old({ name: 'first' }),
          },
        ],
        [{ keys, newValues: { name: null, count: null }, oldValues: old({ name: 'second', count: '1' }) }],
        [{ keys, newValues: {}, oldValues: old({ name: null, count: null }) }],
      ])
    })

    test('names the columns of which it holds values', async () => {
      const records = await changed()
      const columns = (record: DataRecord): string[] =>
        record.columns.map(({ name, code, isKey, ordinal }) => `${ordinal} ${name} ${code}${isKey ? ' key' : ''}`)
      const all = ['1 id INT64 key', '2 name STRING', '3 count INT64']
      expect(records.map(columns)).toEqual([all, capturesRow ? all : all.slice(0, 2), all, all])
    })
  })

  describe('one transaction', () => {
    const committed = (writes: readonly Write[]): Promise<DataRecord[]> =>
      recordsOf(scene().site.streams.OLD_AND_NEW_VALUES, [writes])
    const shown = (records: readonly DataRecord[]): string[] =>
      records.flatMap(({ modType, mods }) =>
        mods.map(({ keys, newValues }) => `${modType} ${String(keys.id)} ${String(newValues.name ?? '-')}`),
      )

    test('numbers its records, marks the last of each partition and counts both', async () => {
      await committed([1, 2].map((n) => ({ op: 'insert', id: 910_000 + n, name: 'old' })))
      const records = await committed([
        { op: 'update', id: 910_001, name: 'new' },
        { op: 'delete', id: 910_002 },
        { op: 'insert', id: 910_003, name: 'c' },
        { op: 'insert', id: 910_004, name: 'd' },
      ])
      // A server that places keys by range may spread them over partitions, and number them in another order.
      const sequences = records.map(({ sequence }) => sequence).toSorted()
      expect(sequences).toEqual(sequences.map((_, i) => String(i).padStart(8, '0')))
      expect(records.length).toBeGreaterThanOrEqual(3)
      expect(new Set(records.map(({ transaction }) => transaction)).size).toBe(1)
      expect(records.map((record) => record.records)).toEqual(records.map(() => records.length))
      expect(records.filter(({ isLast }) => isLast)).toHaveLength(records[0]!.partitions)
      expect(records.map(({ isSystem }) => isSystem)).toEqual(records.map(() => false))
      expect(shown(records).toSorted()).toEqual(
        ['UPDATE 910001 new', 'DELETE 910002 -', 'INSERT 910003 c', 'INSERT 910004 d'].toSorted(),
      )
    })

    test.each<[what: string, id: number, writes: (id: number) => Write[], expected: string | undefined]>([
      ['insert and update', 1, (id) => [insert(id), update(id)], 'INSERT new'],
      ['insert and delete', 2, (id) => [insert(id), remove(id)], undefined],
      ['two updates', 3, (id) => [update(id), { op: 'update', id, count: 7 }], 'UPDATE new'],
      ['update and delete', 4, (id) => [update(id), remove(id)], 'DELETE -'],
      ['delete and insert', 5, (id) => [remove(id), insert(id)], 'INSERT first'],
    ])('shows the net effect on a row: %s', async (what, number, writes, expected) => {
      const id = 920_000 + number
      const exists = !what.startsWith('insert')
      if (exists) await committed([{ op: 'insert', id, name: 'old', count: 1 }])
      const records = shown(await committed(writes(id)))
      expect(records).toEqual(expected === undefined ? [] : [expected.replace(' ', ` ${id} `)])
    })
  })
}

const insert = (id: number): Write => ({ op: 'insert', id, name: 'first' })
const update = (id: number): Write => ({ op: 'update', id, name: 'new' })
const remove = (id: number): Write => ({ op: 'delete', id })

/** Commits transaction after transaction and returns the records that the stream has of them. */
async function recordsOf(stream: StreamUnderTest, transactions: readonly (readonly Write[])[]): Promise<DataRecord[]> {
  const times: string[] = []
  for (const writes of transactions) times.push(await stream.commit(writes))
  const { partitions } = await walk({ ...stream, start: times[0]! }, times.at(-1)!, 1000)
  return [...partitions.values()]
    .flatMap(({ records }) => dataOf(records))
    .toSorted((a, b) => (a.time < b.time ? -1 : 1))
    .filter(({ time }) => times.includes(time))
}
