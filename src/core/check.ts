/** One thing that was looked at before a run, and what to do if it is not as it should be. */
import { describeThrown, StreamError } from './errors.ts'

export interface Check {
  /** What was looked at: `database`, `clock skew`. */
  readonly name: string
  /** A warning lets a run begin, a failure does not. What could not be looked at is skipped, and says why. */
  readonly status: 'ok' | 'warning' | 'failure' | 'skipped'
  readonly message: string
  /** What to do now; may have several lines. */
  readonly fix?: string
}

/** What was thrown, as a failed check: of errors of ours message and hint, of others class and code only. */
export function failedCheck(name: string, error: unknown): Check {
  if (!(error instanceof StreamError)) return { name, status: 'failure', message: `failed: ${describeThrown(error)}` }
  const { message, hint } = error
  return { name, status: 'failure', message, ...(hint !== undefined && { fix: hint }) }
}
