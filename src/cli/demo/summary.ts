/** The demo's last words: what was committed, what arrived, what it lived through, and what to try next. */
import { count, duration, plural } from '../human-units.ts'
import { hasPassed, type Verdict } from './judge.ts'
import type { TopologyCounts } from './screen.ts'

export interface DemoResult {
  readonly seed: number
  readonly elapsedMs: number
  readonly verdict: Verdict
  readonly topology: TopologyCounts
  /** By kind. */
  readonly faults: Readonly<Record<string, number>>
  readonly crashes: number
}

/** Commands as the user would type them here; `command` is how this demo was started. */
export function summaryText(result: DemoResult, command: string): string {
  const { seed, elapsedMs, verdict, topology, faults, crashes } = result
  const mark = (isGood: boolean): string => (isGood ? '✓' : '✗')
  const faultList = Object.entries(faults).map(([kind, times]) => `${kind} ${times}`)
  const lines = [
    `${mark(hasPassed(verdict))} millrace demo, seed ${seed}, ${duration(elapsedMs)}`,
    '',
    `  committed ${count(verdict.committed)}, delivered ${count(verdict.delivered)}`,
    `  ${mark(verdict.lost === 0)} lost ${count(verdict.lost)}`,
    `  ${mark(verdict.outOfOrder === 0)} out of order ${count(verdict.outOfOrder)} (per key)`,
    `    repeated ${count(verdict.repeated)}${verdict.repeated > 0 ? ' (what a crash left unsettled comes again)' : ''}`,
  ]
  if (verdict.unknown > 0) lines.push(`  ✗ never committed ${count(verdict.unknown)}`)
  lines.push(
    `    lived through ${plural(topology.split, 'split')}, ${plural(topology.move, 'move')}, ${plural(topology.merge, 'merge')}`,
    ...wrapped(`faults ${faultList.length === 0 ? 'none' : faultList.join(', ')}`),
    `    worker crashes ${count(crashes)}`,
    '',
    '  Counted from the database itself and the lines of the output file.',
    '',
    'Next:',
    ...nextCommands(result, command).map((line) => `  ${line}`),
  )
  return lines.join('\n')
}

/** Breaks after commas; indented. */
function wrapped(text: string): string[] {
  return (text.match(/.{1,72}(?:,|$)/g) ?? [text]).map((line, index) => `    ${index === 0 ? '' : '  '}${line.trim()}`)
}

function nextCommands({ seed, crashes }: DemoResult, command: string): string[] {
  if (crashes === 0) return [`${command} --crash`, `${command} --seed ${seed} --rate 2000`]
  return [`${command} --crash --seed ${seed}`, `${command} --crash --forever`]
}
