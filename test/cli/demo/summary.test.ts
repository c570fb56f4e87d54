import { describe, expect, test } from 'vitest'
import { type DemoResult, summaryText } from '../../../src/cli/demo/summary.ts'

const result: DemoResult = {
  seed: 7,
  elapsedMs: 18_240,
  verdict: { committed: 6012, delivered: 6012, lost: 0, repeated: 31, outOfOrder: 0, unknown: 0 },
  topology: { split: 5, move: 1, merge: 0 },
  faults: { UNAVAILABLE: 4, stall: 2, ABORTED: 11, 'kill-connection': 1, INTERNAL: 10, 'early-end': 12, X: 1 },
  crashes: 3,
}

describe('summaryText', () => {
  test('says what arrived and what it lived through', () => {
    const text = summaryText(result, 'millrace run demo')
    for (const part of [
      '✓ millrace demo, seed 7, 18.2 s',
      'committed 6,012, delivered 6,012',
      '✓ lost 0',
      '✓ out of order 0 (per key)',
      'repeated 31',
      '5 splits, 1 move, 0 merges',
      'UNAVAILABLE 4, stall 2',
      'early-end 12',
      'worker crashes 3',
    ]) {
      expect(text).toContain(part)
    }
    expect(text).not.toContain('✗')
    for (const line of text.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
  })

  test('marks what went wrong', () => {
    const verdict = { ...result.verdict, lost: 2, outOfOrder: 1, unknown: 4 }
    const text = summaryText({ ...result, verdict }, 'millrace run demo')
    for (const part of ['✗ millrace demo', '✗ lost 2', '✗ out of order 1', '✗ never committed 4']) {
      expect(text).toContain(part)
    }
  })

  test('ends with two commands to try next', () => {
    const command = 'npm run pipeline demo --'
    const withCrashes = summaryText(result, command).split('\n').slice(-2)
    expect(withCrashes).toEqual([`  ${command} --crash --seed 7`, `  ${command} --crash --forever`])
    const without = summaryText({ ...result, crashes: 0 }, command)
      .split('\n')
      .slice(-2)
    expect(without).toEqual([`  ${command} --crash`, `  ${command} --seed 7 --rate 2000`])
  })
})
