/** Commit timestamps as text: exact to the nanosecond, in text order, never a Date in between. */
import { ConfigError } from '../core/errors.ts'
import type { CommitTimestamp } from '../core/types.ts'

export type { CommitTimestamp } from '../core/types.ts'

/** The earliest and latest times that Spanner knows. */
export const MIN_TIMESTAMP: CommitTimestamp = '0001-01-01T00:00:00.000000000Z'
export const MAX_TIMESTAMP: CommitTimestamp = '9999-12-31T23:59:59.999999999Z'

/**
 * Brings any RFC 3339 time into the one form: UTC, nine fraction digits.
 * Accepts offsets and fewer digits, as the PostgreSQL dialect sends them.
 */
export function parseTimestamp(text: string): CommitTimestamp {
  const match = RFC3339.exec(text)
  if (!match) {
    throw new ConfigError(`timestamp must be RFC 3339 with at most nine fraction digits, got ${JSON.stringify(text)}`)
  }
  const [, date, time, fraction = '', offset] = match
  // Whole seconds only pass through Date, which holds them exactly; the fraction never does.
  const local = Date.parse(`${date}T${time}Z`)
  const utc = offset === 'Z' || offset === 'z' ? local : Date.parse(`${date}T${time}${offset}`)
  const exists = !Number.isNaN(local) && isoSeconds(local) === `${date}T${time}`
  if (!exists || utc < MIN_MS || utc > MAX_MS) {
    throw new ConfigError(`timestamp is not a time that exists: ${JSON.stringify(text)}`)
  }
  return `${isoSeconds(utc)}.${fraction.padEnd(9, '0')}Z`
}

/** A time of this machine's clock. */
export function timestampFromMs(ms: number): CommitTimestamp {
  return timestampFromNanos(BigInt(Math.floor(ms * 1000)) * 1000n)
}

/** Nanoseconds since 1970. */
export function timestampFromNanos(nanos: bigint): CommitTimestamp {
  const fraction = ((nanos % NANOS_PER_SECOND) + NANOS_PER_SECOND) % NANOS_PER_SECOND
  const seconds = (nanos - fraction) / NANOS_PER_SECOND
  return `${new Date(Number(seconds) * 1000).toISOString().slice(0, 19)}.${fraction.toString().padStart(9, '0')}Z`
}

export function timestampToNanos(timestamp: CommitTimestamp): bigint {
  const seconds = BigInt(Date.parse(`${timestamp.slice(0, 19)}Z`)) / 1000n
  return seconds * NANOS_PER_SECOND + BigInt(timestamp.slice(20, 29))
}

/** For showing lag and waiting only: milliseconds lose the rest of the precision. */
export function timestampToMs(timestamp: CommitTimestamp): number {
  return Date.parse(`${timestamp.slice(0, 19)}Z`) + Number(timestamp.slice(20, 26)) / 1000
}

const NANOS_PER_SECOND = 1_000_000_000n
const MIN_MS = Date.parse('0001-01-01T00:00:00Z')
const MAX_MS = Date.parse('9999-12-31T23:59:59Z')
const RFC3339 = /^(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)$/

function isoSeconds(ms: number): string {
  return new Date(ms).toISOString().slice(0, 19)
}
