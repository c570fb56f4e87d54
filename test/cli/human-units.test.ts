import { describe, expect, test } from 'vitest'
import { count, duration, plural } from '../../src/cli/human-units.ts'

describe('count', () => {
  test.each([
    [0, '0'],
    [999, '999'],
    [1000, '1,000'],
    [12_345_678.4, '12,345,678'],
  ])('%d is %s', (value, text) => expect(count(value)).toBe(text))
})

describe('duration', () => {
  test.each([
    [-5, '0.0 s'],
    [430, '0.4 s'],
    [59_940, '59.9 s'],
    [59_960, '1 m 0 s'],
    [192_000, '3 m 12 s'],
    [11_520_000, '3 h 12 m'],
    [86_400_000, '1 d 0 h'],
    [183_600_000, '2 d 3 h'],
  ])('%d ms is %s', (ms, text) => expect(duration(ms)).toBe(text))
})

describe('plural', () => {
  test('adds an s unless there is one', () => {
    expect([plural(0, 'split'), plural(1, 'split'), plural(2000, 'split')]).toEqual([
      '0 splits',
      '1 split',
      '2,000 splits',
    ])
  })
})
