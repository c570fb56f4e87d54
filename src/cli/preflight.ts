/** `millrace preflight`: looks at everything that a pipeline needs, one line each, and runs nothing. */
import { styleText } from 'node:util'
import type { Check } from '../core/check.ts'
import { ConfigError } from '../core/errors.ts'
import { loadPipeline, preflight } from '../runtime/index.ts'
import { isBuiltInDemo } from './demo/demo-file.ts'
import { plural } from './human-units.ts'
import { EXIT, withoutControls } from './report-error.ts'
import { findPipelineOrDemo } from './run.ts'

export interface PreflightCommandOptions {
  readonly json?: true
  readonly verbose?: true
}

type Counts = Record<Check['status'], number>

/** Returns the exit code; throws if the pipeline cannot be found or loaded. */
export async function preflightCommand(nameOrPath: string, { json }: PreflightCommandOptions): Promise<number> {
  const file = await findPipelineOrDemo(nameOrPath)
  if (isBuiltInDemo(file)) {
    throw new ConfigError('the demo brings all that it needs: there is nothing to check', { hint: 'millrace run demo' })
  }
  const pipeline = await loadPipeline(file)
  const counts: Counts = { ok: 0, warning: 0, failure: 0, skipped: 0 }
  for await (const check of preflight(pipeline, { name: file.name })) {
    counts[check.status]++
    print(json ? checkAsJson(check) : checkLines(check, process.stdout.isTTY === true))
  }
  if (!json) print(summaryLine(counts))
  return counts.failure > 0 ? EXIT.config : EXIT.ok
}

/** The same fields in the same order for every check. */
export function checkAsJson({ name, status, message, fix }: Check): string {
  return JSON.stringify({ name, status, message, ...(fix !== undefined && { fix }) })
}

/** `ok       database        ...`, or a coloured symbol in place of the word; then the fix, one step a line. */
export function checkLines({ name, status, message, fix }: Check, isTerminal: boolean): string {
  const { symbol, colour } = LOOKS[status]
  const head = isTerminal ? styleText(colour, symbol, { stream: process.stdout }) : status.padEnd(7)
  const lines = [`${head}  ${name.padEnd(NAME_WIDTH)}  ${message}`]
  const indent = ' '.repeat((isTerminal ? 1 : 7) + NAME_WIDTH + 4)
  for (const step of fix?.split('\n') ?? []) lines.push(`${indent}→ ${step}`)
  // The colour is ours; whatever else moves the cursor came from outside.
  return [head + withoutControls(lines[0]!.slice(head.length)), ...lines.slice(1).map(withoutControls)].join('\n')
}

function summaryLine({ ok, warning, failure, skipped }: Counts): string {
  const parts = [`${ok} ok`]
  if (warning > 0) parts.push(plural(warning, 'warning'))
  if (failure > 0) parts.push(plural(failure, 'failure'))
  if (skipped > 0) parts.push(`${skipped} skipped`)
  return `${failure > 0 ? 'not ready' : 'ready'}: ${parts.join(', ')}`
}

function print(text: string): void {
  process.stdout.write(`${text}\n`)
}

const NAME_WIDTH = 'partition mode'.length
const LOOKS = {
  ok: { symbol: '✓', colour: 'green' },
  warning: { symbol: '!', colour: 'yellow' },
  failure: { symbol: '✗', colour: 'red' },
  skipped: { symbol: '-', colour: 'gray' },
} as const
