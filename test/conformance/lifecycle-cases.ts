/** Cases about the life of partitions: first query, children, order, heartbeats, and reading an ended one again. */
import { describe, expect, test } from 'vitest'
import { codeName, dataOf, type Scene } from './scene.ts'
import { type ChildRecord, type DataRecord, normalTime } from './server-record.ts'
import { endOf, later, read, type WalkedPartition } from './walk.ts'

export function lifecycleCases(scene: () => Scene): void {
  describe('the first query', () => {
    test('returns tokens without parents, all at its own start, and ends', () => {
      const { first, start } = scene().walk
      expect(first.answer.code).toBe(0)
      expect(first.records.map(({ kind }) => kind)).toEqual(first.records.map(() => 'children'))
      const children = (first.records as ChildRecord[]).flatMap((record) => record.children)
      expect(children.length).toBeGreaterThan(1)
      expect(children.map(({ parents }) => parents)).toEqual(children.map(() => []))
      expect(new Set(children.map(({ token }) => token)).size).toBe(children.length)
      for (const { time } of first.records) expect(time).toBe(normalTime(start))
    })
  })

  describe('a partition', () => {
    test('ends with child records that share one start, and with OK behind them', () => {
      for (const partition of scene().walk.partitions.values()) {
        expect(partition.answer.code).toBe(0)
        const kinds = partition.records.map(({ kind }) => kind)
        const first = kinds.indexOf('children')
        if (first === -1) continue
        expect(new Set(kinds.slice(first))).toEqual(new Set(['children']))
        const starts = partition.records.slice(first).map(({ time }) => time)
        expect(new Set(starts).size).toBe(1)
        expect(starts[0]! > partition.start).toBe(true)
      }
    })

    test('names itself among the parents of its children, and both parents of a merge name the same child', () => {
      const { partitions } = scene().walk
      const announced = new Map<string, { parents: readonly string[]; by: string[]; starts: Set<string> }>()
      for (const { token, records } of partitions.values()) {
        for (const record of records) {
          if (record.kind !== 'children') continue
          for (const child of record.children) {
            expect(child.parents).toContain(token)
            const seen = announced.get(child.token) ?? { parents: child.parents, by: [], starts: new Set() }
            announced.set(child.token, seen)
            expect(child.parents.toSorted()).toEqual(seen.parents.toSorted())
            seen.by.push(token)
            seen.starts.add(record.time)
          }
        }
      }
      const merged = [...announced.values()].filter(({ parents }) => parents.length === 2)
      expect(merged.length).toBeGreaterThan(0)
      for (const { parents, by, starts } of merged) {
        expect(by.toSorted()).toEqual(parents.toSorted())
        expect(starts.size).toBe(1)
      }
    })

    test('returns data in order of time, from its start on and before its end', () => {
      for (const partition of scene().walk.partitions.values()) {
        const times = dataOf(partition.records).map(({ time }) => time)
        expect(times).toEqual(times.toSorted())
        const end = endOf(partition, 'immutable') ?? scene().walk.end
        for (const time of times) expect(time >= partition.start && time <= end).toBe(true)
      }
    })

    test('shares every change with no other: each commit is returned once', () => {
      const { walk, committed } = scene()
      const seen = [...walk.partitions.values()].flatMap(({ records }) =>
        dataOf(records).map(({ mods, time }) => [String(mods[0]!.keys.id), time] as const),
      )
      expect(seen.length).toBe(committed.size)
      expect(new Map(seen)).toEqual(new Map(committed))
    })
  })

  describe('heartbeats', () => {
    test('promise completeness: what comes behind one is later', () => {
      let heartbeats = 0
      for (const { records } of scene().walk.partitions.values()) {
        let promised = ''
        for (const { kind, time } of records) {
          // The children of a partition start at its end, up to which a heartbeat may promise.
          expect(kind === 'children' ? time >= promised : time > promised).toBe(true)
          if (kind !== 'heartbeat') continue
          heartbeats++
          promised = time
        }
      }
      // Each partition is idle at some time, since a row is written by one of them only.
      expect(heartbeats).toBeGreaterThan(0)
    })

    test('come about as often as asked for', () => {
      for (const { records, start } of scene().walk.partitions.values()) {
        const times = records.filter(({ kind }) => kind === 'heartbeat').map(({ time }) => Date.parse(time))
        // By what they say, not by when they arrive; one may come at the very end.
        const lifeMs = (times.at(-1) ?? 0) - Date.parse(start)
        expect(times.length).toBeLessThanOrEqual(Math.max(0, lifeMs) / 100 + 2)
      }
    })
  })

  describe('a query of an ended partition', () => {
    const again = (start: string, end?: string): Promise<WalkedPartition> => {
      const { site, ended } = scene()
      return read(site.streams.OLD_AND_NEW_VALUES, ended.token, start, end)
    }

    test('brings the same again, without heartbeats between what is known', async () => {
      const { ended } = scene()
      const { answer, records } = await again(ended.start)
      expect(answer.code).toBe(0)
      expect(dataOf(records)).toEqual(dataOf(ended.records))
      expect(records.at(-1)).toEqual(ended.records.at(-1))
    })

    test('includes its start and its end', async () => {
      const [first, second, third] = dataOf(scene().ended.records) as [DataRecord, DataRecord, DataRecord]
      expect(dataOf((await again(second.time, second.time)).records)).toEqual([second])
      expect(dataOf((await again(first.time, later(third.time, -1))).records)).toEqual([first, second])
      expect(dataOf((await again(later(first.time, 1), third.time)).records)).toEqual([second, third])
    })

    test('ends with OK and without children at an end before theirs', async () => {
      const { ended } = scene()
      const { answer, records } = await again(ended.start, later(ended.end, -1))
      expect(answer.code).toBe(0)
      expect(records.some(({ kind }) => kind === 'children')).toBe(false)
    })

    test('from exactly its end brings the children again', async () => {
      const { ended } = scene()
      const { answer, records } = await again(ended.end)
      expect(answer.code).toBe(0)
      expect(records).toEqual(ended.records.filter(({ kind }) => kind === 'children'))
    })

    test('from behind its end, or before its start, is OUT_OF_RANGE', async () => {
      const { ended } = scene()
      expect(codeName((await again(later(ended.end, 1))).answer.code)).toBe('OUT_OF_RANGE')
      const first = [...scene().walk.partitions.values()].find(({ start }) => start > normalTime(scene().walk.start))!
      const stream = scene().site.streams.OLD_AND_NEW_VALUES
      const early = await read(stream, first.token, later(first.start, -1), undefined)
      expect(codeName(early.answer.code)).toBe('OUT_OF_RANGE')
    })
  })
}
