/** Times as people type them: RFC 3339, `now`, or so long ago. */
import { ConfigError } from '../core/errors.ts'
import { type CommitTimestamp, parseTimestamp, timestampFromMs } from '../model/commit-timestamp.ts'

/** `2026-11-18T09:30:00Z`, `now`, `-90s`, `-15m`, `-1h`, `-2d`, `+10m`. Throws a ConfigError that names the option. */
export function parseTime(option: string, text: string, nowMs: number): CommitTimestamp {
  if (text === 'now') return timestampFromMs(nowMs)
  const relative = RELATIVE.exec(text)
  if (relative !== null) {
    const [, sign, amount, unit] = relative
    const ms = nowMs + (sign === '-' ? -1 : 1) * Number(amount) * UNIT_MS[unit as keyof typeof UNIT_MS]
    if (ms >= 0 && ms <= MAX_MS) return timestampFromMs(ms)
  }
  try {
    return parseTimestamp(text)
  } catch (cause) {
    const shown = JSON.stringify(text.slice(0, 60))
    throw new ConfigError(`--${option} must be a time, got ${shown}`, {
      cause,
      hint: 'Such as -90s, -15m, -1h, -2d, now or 2026-11-18T09:30:00Z.',
    })
  }
}

const RELATIVE = /^([+-])(\d{1,9}(?:\.\d{1,3})?)([smhd])$/
const UNIT_MS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const
const MAX_MS = Date.parse('9999-12-31T23:59:59Z')
