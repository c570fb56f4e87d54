/** The judge of the counter tests passes a whole run and catches each planted violation. */
import { describe, expect, test } from 'vitest'
import { SeededRandom } from '../../src/simulator/index.ts'
import type { CounterLine } from './counter-worker.ts'
import {
  type CounterRun,
  childrenBeforeParents,
  countUp,
  disorderInPartitions,
  disorderOfKeys,
  KEYS,
  misses,
  UPDATES,
} from './counters.ts'

/** The first half of each counter in the parent, the second in its child. */
const WHOLE: readonly CounterLine[] = Array.from({ length: UPDATES }, (_, update) =>
  Array.from({ length: KEYS }, (_, key) => line(key, update + 1, update < UPDATES / 2 ? 'parent' : 'child')),
).flat()

function line(key: number, value: number, partition: string): CounterLine {
  return { id: `${key}/${value}`, key: String(key), value, partition, time: '2026-01-01T00:00:00.000000000Z' }
}

function run(lines: readonly CounterLine[]): CounterRun {
  const partitions = [
    { token: 'parent', parentTokens: ['root'] },
    { token: 'between', parentTokens: ['parent'] },
    { token: 'child', parentTokens: ['between'] },
  ]
  return { lines, received: [], deadOwners: [], partitions }
}

function swapped(a: number, b: number): CounterLine[] {
  const lines = [...WHOLE]
  ;[lines[a], lines[b]] = [lines[b]!, lines[a]!]
  return lines
}

describe('the judge', () => {
  test('passes a whole run, repeats included', () => {
    const repeated = run([...WHOLE.slice(0, 500), ...WHOLE.slice(300)])
    for (const judge of [misses, disorderInPartitions, disorderOfKeys, childrenBeforeParents]) {
      expect(judge(repeated)).toEqual([])
    }
  })

  test('catches a lost update', () => {
    expect(misses(run(WHOLE.filter(({ id }) => id !== '3/7')))).toEqual(['lost 3=7, which the server never sent'])
  })

  test('catches updates that nobody made', () => {
    const invented = [line(3, UPDATES + 1, 'child'), line(3, Number.NaN, 'child'), { ...line(3, 7, 'child'), id: 'x' }]
    expect(misses(run([...WHOLE, ...invented]))).toEqual([
      `invented 3=${UPDATES + 1}`,
      'invented 3=NaN',
      'invented x for 3=7',
    ])
  })

  test('catches two updates of a counter out of order in their partition', () => {
    const lines = run(swapped(0, KEYS))
    expect(disorderInPartitions(lines)).toHaveLength(1)
    expect(disorderOfKeys(lines)).toHaveLength(1)
    expect(misses(lines)).toEqual([])
  })

  test('catches a change of a parent behind one of its descendant', () => {
    const border = (KEYS * UPDATES) / 2
    const lines = run(swapped(border - KEYS, border))
    expect(childrenBeforeParents(lines).length).toBeGreaterThan(0)
    expect(disorderOfKeys(lines)).toHaveLength(1)
    // Each partition for itself is in order: only the lineage tells.
    expect(disorderInPartitions(lines)).toEqual([])
  })

  test('catches a change from a partition that nobody has stored', () => {
    expect(childrenBeforeParents(run([line(0, 1, 'nowhere')]))).toHaveLength(1)
  })
})

describe('countUp', () => {
  test('counts every counter from 1 to the end, and stops at each gate', async () => {
    const seen: string[] = []
    const gates = [1, 2, 3].map(() => Promise.withResolvers<void>())
    let stops = 0
    const commit = async (values: ReadonlyMap<string, number>): Promise<void> => {
      for (const [key, value] of values) seen.push(`${key}=${value}`)
      const gate = gates[stops]
      if (gate === undefined || seen.length < (KEYS * UPDATES * (stops + 1)) / 4) return
      // Opened a turn later: what is written before that has passed a closed gate.
      const length = seen.length
      setImmediate(() => {
        if (seen.length === length) stops++
        gate.resolve()
      })
    }
    await countUp(
      new SeededRandom(1),
      commit,
      gates.map(({ promise }) => promise),
    )
    expect(stops).toBe(3)
    expect(new Set(seen)).toEqual(new Set(WHOLE.map(({ key, value }) => `${key}=${value}`)))
    expect(seen).toHaveLength(KEYS * UPDATES)
  })
})
