import { stripVTControlCharacters } from 'node:util'
import { describe, expect, test } from 'vitest'
import { type DemoState, renderLine, renderScreen } from '../../../src/cli/demo/screen.ts'

const PARTITIONS = 12
const state: DemoState = {
  seed: 4711,
  phase: 'running',
  elapsedMs: 7400,
  totalMs: 15_000,
  verdict: { committed: 12_345, delivered: 12_301, lost: 44, repeated: 17, outOfOrder: 0, unknown: 0 },
  throughput: [0, 10, 200, 398],
  lagMs: 430,
  inFlight: 44,
  crashes: 2,
  topology: { split: 5, move: 3, merge: 1 },
  faults: { UNAVAILABLE: 4, stall: 2 },
  partitions: Array.from({ length: PARTITIONS }, (_, i) => ({
    name: `p${i}`,
    from: i / PARTITIONS,
    to: (i + 1) / PARTITIONS,
    state: i === 3 ? 'CREATED' : 'RUNNING',
    behindMs: i === 3 ? undefined : 200 * i,
    inFlight: i,
    parents: ['q1', 'q2'],
  })),
  events: Array.from({ length: 30 }, (_, i) => ({ atMs: i * 250, text: `event ${i}: split p1 → p2 + p3` })),
}

const sizes = [
  { columns: 80, rows: 24 },
  { columns: 200, rows: 50 },
  { columns: 40, rows: 10 },
]

describe('renderScreen', () => {
  test.each(sizes)('fits into $columns x $rows, with and without colours', (size) => {
    for (const hasColour of [true, false]) {
      const lines = stripVTControlCharacters(renderScreen(state, size, hasColour)).split('\n')
      expect(lines.length).toBeLessThan(size.rows)
      for (const line of lines) expect(line.length).toBeLessThanOrEqual(size.columns)
    }
  })

  test('shows time, seed and the numbers at 80x24', () => {
    const screen = renderScreen(state, { columns: 80, rows: 24 }, false)
    for (const text of [
      'seed 4711',
      '00:07 of 00:15',
      'committed 12,345',
      'delivered 12,301',
      'lag 0.4 s',
      'in flight 44',
      'worker crashes 2',
      'faults 6',
      'splits 5  moves 3  merges 1',
      'out of order 0',
      'repeated 17',
      '398/s',
      '█',
      'event 29',
    ]) {
      expect(screen).toContain(text)
    }
  })

  test('says how many partitions do not fit, and shows all where they do', () => {
    expect(renderScreen(state, { columns: 80, rows: 24 }, false)).toMatch(/… and \d+ more/)
    const wide = renderScreen(state, { columns: 200, rows: 50 }, false)
    for (const { name } of state.partitions) expect(wide).toContain(` ${name} `)
    expect(wide).not.toContain('more')
  })

  test('draws where in the key space a partition lies', () => {
    const half = { ...state, partitions: [{ ...state.partitions[0]!, from: 0.5, to: 1 }] }
    expect(renderScreen(half, { columns: 80, rows: 24 }, false)).toContain(
      `${'·'.repeat(12)}${'█'.repeat(12)}  RUNNING`,
    )
  })

  test('writes no escape codes without colours', () => {
    const screen = renderScreen(state, { columns: 80, rows: 24 }, false)
    expect(stripVTControlCharacters(screen)).toBe(screen)
  })

  test('renders the very beginning', () => {
    const verdict = { committed: 0, delivered: 0, lost: 0, repeated: 0, outOfOrder: 0, unknown: 0 }
    const start = {
      ...state,
      verdict,
      throughput: [],
      partitions: [],
      events: [],
      totalMs: undefined,
      lagMs: undefined,
    }
    expect(renderScreen(start, { columns: 80, rows: 24 }, false)).toContain('committed 0')
  })
})

describe('renderLine', () => {
  test('says the same in one line of at most 80 columns', () => {
    const line = renderLine(state)
    expect(line).toBe('00:07  committed 12,345  delivered 12,301  lag 0.4 s  in flight 44  crashes 2')
    expect(line.length).toBeLessThanOrEqual(80)
  })

  test('leaves out what is not known or did not happen', () => {
    expect(renderLine({ ...state, lagMs: undefined, crashes: 0 })).toBe(
      '00:07  committed 12,345  delivered 12,301  lag -  in flight 44',
    )
  })
})
