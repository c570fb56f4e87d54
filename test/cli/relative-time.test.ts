import { describe, expect, test } from 'vitest'
import { parseTime } from '../../src/cli/relative-time.ts'
import { ConfigError } from '../../src/core/errors.ts'

const NOW = Date.parse('2026-11-18T09:30:00Z')

describe('parseTime', () => {
  test.each([
    ['now', '2026-11-18T09:30:00.000000000Z'],
    ['-90s', '2026-11-18T09:28:30.000000000Z'],
    ['-15m', '2026-11-18T09:15:00.000000000Z'],
    ['-1h', '2026-11-18T08:30:00.000000000Z'],
    ['-1.5h', '2026-11-18T08:00:00.000000000Z'],
    ['-2d', '2026-11-16T09:30:00.000000000Z'],
    ['+10m', '2026-11-18T09:40:00.000000000Z'],
    ['2026-11-18T10:00:00.123456789+01:00', '2026-11-18T09:00:00.123456789Z'],
  ])('reads %s', (text, expected) => {
    expect(parseTime('start', text, NOW)).toBe(expected)
  })

  test.each(['', '1h', '-1w', '-h', '- 1h', 'yesterday', '2026-11-18', '-999999999d'])('refuses %j', (text) => {
    expect(() => parseTime('start', text, NOW)).toThrow(ConfigError)
    expect(() => parseTime('start', text, NOW)).toThrow(/^--start must be a time, got /)
  })
})
