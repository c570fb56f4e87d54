import { describe, expect, test } from 'vitest'
import { ConfigError } from '../../src/core/errors.ts'
import {
  callback,
  durationMs,
  knownKeys,
  nearestName,
  nonEmptyString,
  oneOf,
  positiveInteger,
} from '../../src/core/options.ts'

function messageOf(call: () => unknown): string {
  try {
    call()
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError)
    const { message, hint } = error as ConfigError
    return hint === undefined ? message : `${message} | ${hint}`
  }
  return 'nothing was thrown'
}

describe('positiveInteger', () => {
  test('returns what it accepts', () => {
    expect(positiveInteger('op', 'n', 3)).toBe(3)
  })

  test.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, '3', 3n, null, undefined])(
    'P12: refuses %o and names owner, option, rule and value',
    (value) => {
      const message = messageOf(() => positiveInteger('op', 'n', value))
      expect(message).toMatch(/^op: n must be a positive whole number, got /)
    },
  )
})

describe('durationMs', () => {
  test('accepts zero and fractions', () => {
    expect([durationMs('op', 'ms', 0), durationMs('op', 'ms', 0.5)]).toEqual([0, 0.5])
  })

  test.each([-1, Number.NaN, Number.POSITIVE_INFINITY, '10'])('P12: refuses %o', (value) => {
    expect(messageOf(() => durationMs('op', 'ms', value))).toMatch(/^op: ms must be a number of milliseconds/)
  })
})

describe('nonEmptyString', () => {
  test('returns what it accepts', () => {
    expect(nonEmptyString('op', 'name', ' a ')).toBe(' a ')
  })

  test.each(['', '  ', 1, undefined])('P12: refuses %o', (value) => {
    expect(messageOf(() => nonEmptyString('op', 'name', value))).toMatch(/^op: name must be a non-empty string, got /)
  })
})

describe('oneOf', () => {
  test('returns what it accepts and lists what it would', () => {
    expect(oneOf('op', 'order', ['a', 'b'], 'b')).toBe('b')
    expect(messageOf(() => oneOf('op', 'order', ['a', 'b'], 'c'))).toBe(`op: order must be one of 'a', 'b', got "c"`)
  })
})

describe('callback', () => {
  test('returns a function and refuses anything else', () => {
    const fn = (): void => undefined
    expect(callback('op', 'fn', fn)).toBe(fn)
    expect(messageOf(() => callback('op', 'fn', [1]))).toBe('op: fn must be a function, got a list')
    expect(messageOf(() => callback('op', 'fn', { secret: 1 }))).toBe('op: fn must be a function, got an object')
  })

  test('P12: cuts long values short', () => {
    const message = messageOf(() => callback('op', 'fn', 'x'.repeat(1000)))
    expect(message).toBe(`op: fn must be a function, got "${'x'.repeat(60)}…"`)
  })
})

describe('knownKeys', () => {
  test('accepts known keys only', () => {
    knownKeys('op', { clock: 1 }, ['clock', 'order'])
    expect(messageOf(() => knownKeys('op', { clok: 1 }, ['clock', 'order']))).toBe(
      "op: there is no option 'clok' | Did you mean 'clock'?",
    )
    expect(messageOf(() => knownKeys('op', { zzzzzz: 1 }, ['clock', 'order']))).toBe(
      "op: there is no option 'zzzzzz' | Known options: clock, order",
    )
  })
})

describe('nearestName', () => {
  test.each([
    ['orderz', 'orders'],
    ['ORDERS', 'orders'],
    ['maxInflight', 'maxInFlight'],
    ['something', undefined],
  ])('finds for %s: %s', (name, nearest) => {
    expect(nearestName(name, ['demo', 'orders', 'maxInFlight'])).toBe(nearest)
  })
})
