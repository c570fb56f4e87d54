/** An error as the user of the command line meets it: one message, what to do now, and an exit code. */
import { inspect } from 'node:util'
import { describeThrown, StreamError } from '../core/errors.ts'

/** What the exit codes mean; 130 and 143 come from a second signal. */
export const EXIT = { ok: 0, failed: 1, config: 2, environment: 3, historyExpired: 4 } as const

/** By code, not by class: a pipeline file may have been resolved to another copy of this package. */
export function exitCodeOf(error: unknown): number {
  const code = codeOf(error)
  if (code === 'CONFIG_INVALID') return EXIT.config
  if (code === 'ENVIRONMENT') return EXIT.environment
  if (code === 'SOURCE_HISTORY_EXPIRED') return EXIT.historyExpired
  return EXIT.failed
}

/**
 * `error: <message>`, then `  → <hint>`. Stack and causes only if `verbose`: the messages of foreign errors may hold
 * row content, so they stay out of sight unless somebody asks for them.
 */
export function describeError(error: unknown, verbose: boolean): string {
  const isOurs = error instanceof StreamError || (error instanceof Error && 'retryable' in error && 'hint' in error)
  const message = isOurs ? (error as Error).message : `unexpected ${describeThrown(error)}`
  const lines = [`error: ${message}`]
  const hint = isOurs ? (error as { hint?: unknown }).hint : undefined
  if (typeof hint === 'string') lines.push(`  → ${hint}`)
  else if (!verbose && (!isOurs || hidesCause(error as Error))) {
    lines.push('  → Run it again with --verbose to see where it came from.')
  }
  if (verbose) lines.push(inspect(error, { depth: 4 }))
  return withoutControls(lines.join('\n'))
}

/** An error of ours that was only given its place in a file says all that its cause does. */
function hidesCause({ cause }: Error): boolean {
  return cause !== undefined && codeOf(cause) !== 'CONFIG_INVALID'
}

/** A message may quote what came from outside; it must not move the cursor or colour the terminal. */
export function withoutControls(text: string): string {
  return text.replace(/(?![\n\t])\p{Cc}/gu, '\uFFFD')
}

function codeOf(error: unknown): unknown {
  return typeof error === 'object' && error !== null ? (error as { code?: unknown }).code : undefined
}
