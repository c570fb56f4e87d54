import { describe, expect, test } from 'vitest'
import { followRun, progressLine, summaryLines } from '../../src/cli/follow-run.ts'
import { runOutput } from '../../src/cli/run-output.ts'
import { timestampFromMs } from '../../src/model/commit-timestamp.ts'
import type { RunStatus, RunSummary } from '../../src/runtime/run-pipeline.ts'
import { VirtualClock } from '../../src/simulator/virtual-clock.ts'

const NOW_MS = Date.parse('2026-11-18T09:30:00Z')
const partition = {
  token: 't',
  parentTokens: [],
  state: 'RUNNING',
  watermark: timestampFromMs(NOW_MS),
  inFlight: 0,
} as const
const idle: RunStatus = {
  pipeline: 'orders',
  state: 'running',
  standbyFor: undefined,
  delivered: 0,
  settled: 0,
  skipped: 0,
  written: 0,
  inFlight: 0,
  inFlightBytes: 0,
  lowWatermark: undefined,
  partitions: [],
  finishedPartitions: 0,
  rereads: 0,
  retentionUsed: undefined,
  gaps: 0,
}

function following(status: () => RunStatus): {
  clock: VirtualClock
  lines: string[]
  drain: AbortController
  stop(): void
} {
  const clock = new VirtualClock({ startMs: NOW_MS })
  const lines: string[] = []
  const drain = new AbortController()
  const output = runOutput({ format: 'text', verbose: false, write: (text) => lines.push(text.trimEnd()) })
  const { stop } = followRun({ status }, output, drain.signal, clock)
  return { clock, lines, drain, stop }
}

describe('followRun', () => {
  test('prints one line every ten seconds, with the rate since the line before', async () => {
    let written = 0
    const { clock, lines, stop } = following(() => ({ ...idle, written }))
    written = 500
    await clock.advance(10_500)
    written = 800
    await clock.advance(9_000)
    expect(lines).toEqual(['written 500  50/s  in flight 0  partitions 0'])
    await clock.advance(1_000)
    expect(lines[1]).toBe('written 800  30/s  in flight 0  partitions 0')
    stop()
  })

  test('says within a second that it waits as a standby, and again when it runs', async () => {
    let standbyFor: string | undefined = 'host:1:abc'
    const { clock, lines, stop } = following(() => ({ ...idle, standbyFor }))
    await clock.advance(1_500)
    expect(lines).toEqual(['standby: host:1:abc runs this pipeline; waiting to take over'])
    standbyFor = undefined
    await clock.advance(1_000)
    expect(lines[1]).toContain('written 0')
    stop()
  })

  test('P11: says what is in flight at once when it drains, and every five seconds', async () => {
    let inFlight = 1200
    const { clock, lines, drain, stop } = following(() => ({ ...idle, inFlight }))
    drain.abort()
    expect(lines).toEqual(['draining: 1,200 in flight; a second signal stops at once'])
    inFlight = 7
    await clock.advance(4_500)
    expect(lines).toHaveLength(1)
    await clock.advance(1_000)
    expect(lines[1]).toContain('draining: 7 in flight')
    stop()
  })

  test('is silent and holds no timer once stopped', async () => {
    const { clock, lines, drain, stop } = following(() => idle)
    stop()
    drain.abort()
    await clock.advance(60_000)
    expect(lines).toEqual([])
    expect(clock.pendingTimers).toBe(0)
  })
})

describe('progressLine', () => {
  test('fits into 80 columns with large numbers', () => {
    const lowWatermark = timestampFromMs(NOW_MS - (3 * 3600 + 12 * 60) * 1000)
    const partitions = Array.from({ length: 1000 }, () => partition)
    const status = { ...idle, written: 12_345_678, inFlight: 100_000, lowWatermark, partitions }
    const line = progressLine(status, 12_345, NOW_MS)
    expect(line).toBe('written 12,345,678  12,345/s  lag 3 h 12 m  in flight 100,000  partitions 1,000')
    expect(line.length).toBeLessThanOrEqual(80)
  })
})

describe('summaryLines', () => {
  const summary: RunSummary = {
    pipeline: 'orders',
    outcome: 'finished',
    delivered: 12_345,
    settled: 12_345,
    skipped: 0,
    written: 12_345,
    rereads: 0,
    elapsedMs: 12_340,
    lowWatermark: undefined,
    unsettled: 0,
  }

  test('says how many were written and in what time', () => {
    expect(summaryLines(summary)).toEqual(['✓ finished: 12,345 written in 12.3 s'])
  })

  test('says what was left, skipped and read again', () => {
    const lowWatermark = timestampFromMs(NOW_MS)
    const lines = summaryLines({ ...summary, outcome: 'closed', unsettled: 17, skipped: 2, rereads: 1, lowWatermark })
    expect(lines).toEqual([
      '! closed: 12,345 written in 12.3 s, 17 not settled: they come again at the next start',
      '  skipped 2, read again 1 time, done up to 2026-11-18T09:30:00.000000000Z',
    ])
  })
})
