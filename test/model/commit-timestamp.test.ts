import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ConfigError } from '../../src/core/errors.ts'
import {
  MAX_TIMESTAMP,
  MIN_TIMESTAMP,
  parseTimestamp,
  timestampFromMs,
  timestampFromNanos,
  timestampToMs,
  timestampToNanos,
} from '../../src/model/commit-timestamp.ts'

const nanos = fc.bigInt({ min: timestampToNanos(MIN_TIMESTAMP), max: timestampToNanos(MAX_TIMESTAMP) })

describe('parseTimestamp', () => {
  test.each([
    ['2026-11-18T09:30:00.123456789Z', '2026-11-18T09:30:00.123456789Z'],
    ['2026-11-18T09:30:00Z', '2026-11-18T09:30:00.000000000Z'],
    ['2026-11-18t09:30:00.1z', '2026-11-18T09:30:00.100000000Z'],
    ['2026-11-18T09:30:00.123456-08:00', '2026-11-18T17:30:00.123456000Z'],
    ['2026-01-01T00:15:00.000000001+05:45', '2025-12-31T18:30:00.000000001Z'],
    ['0001-01-01T00:00:00Z', MIN_TIMESTAMP],
    ['9999-12-31T23:59:59.999999999Z', MAX_TIMESTAMP],
    ['2024-02-29T00:00:00Z', '2024-02-29T00:00:00.000000000Z'],
  ])('P9: brings %s into the one form', (text, expected) => {
    expect(parseTimestamp(text)).toBe(expected)
  })

  test.each([
    '',
    'yesterday',
    '2026-11-18',
    '2026-11-18 09:30:00Z',
    '2026-11-18T09:30:00',
    '2026-11-18T09:30:00.1234567890Z',
    '2026-13-18T09:30:00Z',
    '2026-11-18T25:30:00Z',
    '2026-11-18T09:30:60Z',
  ])('P12: refuses %s', (text) => {
    expect(() => parseTimestamp(text)).toThrow(ConfigError)
  })

  // These fail: such times are taken today, as another day or as text that is no time at all.
  test.each([
    '2026-02-30T00:00:00Z',
    '2026-02-30T00:00:00.000000000Z',
    '2026-13-01T00:00:00.000000000Z',
    '0001-01-01T00:00:00+01:00',
    '9999-12-31T23:59:59-01:00',
  ])('P12: refuses %s, which is no time or beyond what Spanner knows', (text) => {
    expect(() => parseTimestamp(text)).toThrow(ConfigError)
  })
})

describe('timestampFromNanos', () => {
  test('P9: is exact there and back, and text order is time order', () => {
    fc.assert(
      fc.property(nanos, nanos, (a, b) => {
        const [textA, textB] = [timestampFromNanos(a), timestampFromNanos(b)]
        expect(timestampToNanos(textA)).toBe(a)
        expect(parseTimestamp(textA)).toBe(textA)
        expect(textA < textB).toBe(a < b)
        expect(textA).toHaveLength(30)
      }),
    )
  })

  test('P9: neighbours differ', () => {
    fc.assert(
      fc.property(nanos, (a) => {
        fc.pre(a < timestampToNanos(MAX_TIMESTAMP))
        expect(timestampFromNanos(a + 1n) > timestampFromNanos(a)).toBe(true)
      }),
    )
  })

  test.each([
    [0n, '1970-01-01T00:00:00.000000000Z'],
    [-1n, '1969-12-31T23:59:59.999999999Z'],
    [-1_000_000_000n, '1969-12-31T23:59:59.000000000Z'],
  ])('P9: %i nanoseconds is %s', (count, text) => {
    expect(timestampFromNanos(count)).toBe(text)
    expect(timestampToNanos(text)).toBe(count)
  })
})

describe('timestampFromMs', () => {
  test('keeps microseconds of the clock, before 1970 too', () => {
    expect(timestampFromMs(1.5)).toBe('1970-01-01T00:00:00.001500000Z')
    expect(timestampFromMs(-0.5)).toBe('1969-12-31T23:59:59.999500000Z')
  })
})

describe('timestampToMs', () => {
  test('gives milliseconds with their fraction', () => {
    expect(timestampToMs('1970-01-01T00:00:01.234567890Z')).toBeCloseTo(1234.567, 6)
    expect(timestampToMs('1969-12-31T23:59:59.500000000Z')).toBe(-500)
  })

  test('is the way back from a time of the clock', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 4e12 }), (ms) => {
        expect(timestampToMs(timestampFromMs(ms))).toBe(ms)
      }),
    )
  })
})
