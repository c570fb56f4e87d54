/** Small validators: each returns the value or throws a ConfigError that names owner, option, value and rule. */
import { ConfigError } from './errors.ts'

export function positiveInteger(owner: string, option: string, value: unknown): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value > 0) return value
  throw refuse(owner, option, 'must be a positive whole number', value)
}

/** A duration in milliseconds; zero is allowed. */
export function durationMs(owner: string, option: string, value: unknown): number {
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value
  throw refuse(owner, option, 'must be a number of milliseconds, zero or more', value)
}

export function nonEmptyString(owner: string, option: string, value: unknown): string {
  if (typeof value === 'string' && value.trim() !== '') return value
  throw refuse(owner, option, 'must be a non-empty string', value)
}

export function oneOf<T extends string>(owner: string, option: string, allowed: readonly T[], value: unknown): T {
  if (allowed.includes(value as T)) return value as T
  throw refuse(owner, option, `must be one of ${allowed.map((a) => `'${a}'`).join(', ')}`, value)
}

export function callback<F>(owner: string, option: string, value: F): F {
  if (typeof value === 'function') return value
  throw refuse(owner, option, 'must be a function', value)
}

/** Refuses keys that are not known and names the nearest one that is. */
export function knownKeys(owner: string, options: object, known: readonly string[]): void {
  for (const key of Object.keys(options)) {
    if (known.includes(key)) continue
    const nearest = nearestName(key, known)
    throw new ConfigError(`${owner}: there is no option '${key}'`, {
      hint: nearest ? `Did you mean '${nearest}'?` : `Known options: ${known.join(', ')}`,
    })
  }
}

/** The candidate that differs in the fewest letters, if it is near enough to be what was meant. */
export function nearestName(name: string, candidates: readonly string[]): string | undefined {
  let best: string | undefined
  let bestDistance = Math.max(2, Math.floor(name.length / 3)) + 1
  for (const candidate of candidates) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase())
    if (distance < bestDistance) {
      best = candidate
      bestDistance = distance
    }
  }
  return best
}

function refuse(owner: string, option: string, rule: string, value: unknown): ConfigError {
  return new ConfigError(`${owner}: ${option} ${rule}, got ${shown(value)}`)
}

function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value)
  if (typeof value === 'function') return 'a function'
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'a list' : 'an object'
  return String(value)
}

function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const current = [i]
    for (let j = 1; j <= b.length; j++) {
      const substitution = previous[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)
      current.push(Math.min(substitution, previous[j]! + 1, current[j - 1]! + 1))
    }
    previous = current
  }
  return previous[b.length]!
}
