import { describe, expect, test } from 'vitest'
import { describeError, exitCodeOf } from '../../src/cli/report-error.ts'
import { ConfigError, EnvironmentError, OperatorError, SinkError, SourceError } from '../../src/core/errors.ts'

describe('exitCodeOf', () => {
  test.each([
    [new ConfigError('x'), 2],
    [new EnvironmentError('x'), 3],
    [new SourceError('x', { code: 'SOURCE_HISTORY_EXPIRED' }), 4],
    [new SourceError('x'), 1],
    [new SinkError('x'), 1],
    [new Error('x'), 1],
    [undefined, 1],
    [Object.assign(new Error('another copy of the package'), { code: 'CONFIG_INVALID' }), 2],
  ])('%s ends with %d', (error, code) => {
    expect(exitCodeOf(error)).toBe(code)
  })
})

describe('describeError', () => {
  test('P12: is the message and what to do, without a stack', () => {
    const error = new ConfigError('kafkaSink: topic must not be empty, got ""', { hint: 'Name a topic.' })
    expect(describeError(error, false)).toBe('error: kafkaSink: topic must not be empty, got ""\n  → Name a topic.')
  })

  test('P12: keeps what user code threw out of sight unless asked', () => {
    const error = new OperatorError('map', new TypeError('row content'))
    const text = describeError(error, false)
    expect(text).toContain('map: the callback threw TypeError')
    expect(text).toContain('--verbose')
    expect(text).not.toContain('row content')
    const verbose = describeError(error, true)
    expect(verbose).toContain('row content')
    expect(verbose).toMatch(/\n\s+at /)
  })

  test('P12: has nothing to add to an error of ours that was given its place in a file', () => {
    const error = new ConfigError('x.ts:2: batch: maxItems must be 1 or more, got 0', { cause: new ConfigError('y') })
    expect(describeError(error, false)).toBe('error: x.ts:2: batch: maxItems must be 1 or more, got 0')
  })

  test('P12: names the class of a foreign error only', () => {
    expect(describeError(new RangeError('row content'), false)).toMatch(
      /^error: unexpected RangeError\n {2}→ .*--verbose/,
    )
    expect(describeError('row content', false)).toMatch(/^error: unexpected a string\n/)
  })

  test('lets nothing through that would steer the terminal', () => {
    expect(describeError(new ConfigError('a\x1b[2Jb\u009b1mc'), false)).toBe('error: a�[2Jb�1mc')
  })
})
