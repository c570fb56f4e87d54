/** Cases about the life of partitions with mutable key ranges, by the comments of the API's messages. */
import { describe, expect, test } from 'vitest'
import type { Dialect } from '../../src/model/change-stream.ts'
import { codeName, dataOf, type Scene } from './scene.ts'
import { normalTime, type ServerRecord } from './server-record.ts'
import { endOf, later, read, type WalkedPartition } from './walk.ts'

export function mutableCases(dialect: Dialect, scene: () => Scene): void {
  const partitions = (): WalkedPartition[] => [...scene().walk.partitions.values()]
  const placeOf = (record: ServerRecord): string =>
    `${record.time} ${record.kind === 'heartbeat' ? '' : record.sequence}`

  test('a row is one message', () => {
    const [field, ...others] = scene().walk.first.answer.fields
    expect(others).toEqual([])
    const proto = { code: 'PROTO', protoTypeFqn: 'google.spanner.v1.ChangeStreamRecord' }
    expect(field!.type).toMatchObject(dialect === 'googlesql' ? proto : { code: 'BYTES' })
  })

  test('the first query names partitions to begin with, all at its own start, and ends', () => {
    const { first, start } = scene().walk
    expect(first.answer.code).toBe(0)
    expect(first.records.length).toBeGreaterThan(0)
    for (const { kind, time } of first.records) expect([kind, time]).toEqual(['children', normalTime(start)])
  })

  describe('a partition', () => {
    test('returns records in order of time and number, no two in one place, its end last', () => {
      for (const { records, answer } of partitions()) {
        expect(answer.code).toBe(0)
        const places = records.map(placeOf)
        expect(places).toEqual([...new Set(places)].toSorted())
        const kinds = records.map(({ kind }) => kind)
        expect(kinds.indexOf('end') + 1 || kinds.length).toBe(kinds.length)
      }
      expect(partitions().filter((partition) => endOf(partition, 'mutable') !== undefined).length).toBeGreaterThan(0)
    })

    test('says of each move what the other side says', () => {
      const moves = (side: 'from' | 'to'): string[] =>
        partitions().flatMap(({ token, records }) =>
          records.flatMap((record) =>
            record.kind !== 'event'
              ? []
              : record[side].map(
                  (other) => `${record.time} ${side === 'to' ? `${token} ${other}` : `${other} ${token}`}`,
                ),
          ),
        )
      expect(moves('to').length).toBeGreaterThan(0)
      expect(moves('to').toSorted()).toEqual(moves('from').toSorted())
    })

    test('shares every change with no other: each commit is returned once', () => {
      const seen = partitions().flatMap(({ records }) =>
        dataOf(records).map(({ mods, time }) => [String(mods[0]!.keys.id), time] as const),
      )
      expect(seen.length).toBe(scene().committed.size)
      expect(new Map(seen)).toEqual(new Map(scene().committed))
    })
  })

  describe('a query of an ended partition', () => {
    const again = (start: string, end?: string): Promise<WalkedPartition> => {
      const { site, ended } = scene()
      return read(site.streams.OLD_AND_NEW_VALUES, ended.token, start, end)
    }

    test('brings the same again, also from exactly its end', async () => {
      const { ended } = scene()
      const kept = (records: readonly ServerRecord[]): ServerRecord[] =>
        records.filter(({ kind }) => kind !== 'heartbeat')
      expect(kept((await again(ended.start, later(ended.end, 1))).records)).toEqual(kept(ended.records))
      expect((await again(ended.end, ended.end)).records).toEqual(
        kept(ended.records).filter(({ time }) => time === ended.end),
      )
    })

    test('from behind its end is OUT_OF_RANGE', async () => {
      const behind = later(scene().ended.end, 1)
      expect(codeName((await again(behind, behind)).answer.code)).toBe('OUT_OF_RANGE')
    })

    test.each<[string, number | undefined, string]>([
      ['without an end', undefined, 'INVALID_ARGUMENT'],
      ['with an end 29 minutes ahead', 29, 'OK'],
      ['with an end 31 minutes ahead', 31, 'INVALID_ARGUMENT'],
    ])('%s: %s', async (_, minutes, code) => {
      const end = minutes && normalTime(new Date(Date.now() + minutes * 60_000).toISOString())
      expect(codeName((await again(scene().ended.start, end || undefined)).answer.code)).toBe(code)
    })
  })
}
