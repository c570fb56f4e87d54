import { inspect } from 'node:util'
import { describe, expect, test } from 'vitest'
import {
  ClosedError,
  ConfigError,
  describeThrown,
  EnvironmentError,
  isRetryable,
  OperatorError,
  SinkError,
  SourceError,
  StoreError,
  StreamError,
} from '../../src/core/errors.ts'

const cause = new Error('cause')

describe('StreamError', () => {
  test.each([
    { error: new ConfigError('m', { cause, hint: 'h' }), name: 'ConfigError', code: 'CONFIG_INVALID' },
    { error: new EnvironmentError('m', { cause }), name: 'EnvironmentError', code: 'ENVIRONMENT' },
    { error: new SourceError('m', { cause, partition: 'p' }), name: 'SourceError', code: 'SOURCE_READ' },
    {
      error: new SourceError('m', { cause, code: 'SOURCE_HISTORY_EXPIRED' }),
      name: 'SourceError',
      code: 'SOURCE_HISTORY_EXPIRED',
    },
    { error: new OperatorError('map', cause), name: 'OperatorError', code: 'OPERATOR_FAILED' },
    { error: new SinkError('m', { cause, failedItems: [1] }), name: 'SinkError', code: 'SINK_WRITE' },
    { error: new StoreError('m', { cause }), name: 'StoreError', code: 'STORE_FAILED' },
    { error: new StoreError('m', { cause, code: 'STORE_CONFLICT' }), name: 'StoreError', code: 'STORE_CONFLICT' },
  ])('P12: $name has the code $code, a name and its cause', ({ error, name, code }) => {
    expect(error).toBeInstanceOf(StreamError)
    expect({ name: error.name, code: error.code, retryable: error.retryable }).toEqual({ name, code, retryable: false })
    expect(error.cause).toBe(cause)
  })

  test('carries what belongs to its kind', () => {
    expect(new SourceError('m', { partition: 'p' }).partition).toBe('p')
    expect(new SinkError('m', { failedItems: [1] }).failedItems).toEqual([1])
    expect(new ConfigError('m', { hint: 'h' }).hint).toBe('h')
    expect(new ClosedError('m')).toMatchObject({ code: 'PIPELINE_CLOSED', message: 'm' })
  })

  test('has no cause if there is none', () => {
    expect('cause' in new ConfigError('m')).toBe(false)
  })
})

describe('OperatorError', () => {
  test('P12: names the operator and the kind of what was thrown, and keeps foreign messages to its cause', () => {
    const thrown = new TypeError('row {"ssn":"078-05-1120"} is bad')
    const error = new OperatorError('parMap', thrown)
    expect(error.message).toBe('parMap: the callback threw TypeError')
    expect(error.cause).toBe(thrown)
    expect(inspect(error.message)).not.toContain('078')
  })
})

describe('describeThrown', () => {
  test.each([
    [new RangeError('secret'), 'RangeError'],
    [Object.assign(new Error('secret'), { code: 'ECONNRESET' }), 'Error (ECONNRESET)'],
    [Object.assign(new Error('secret'), { code: 14 }), 'Error (14)'],
    [Object.assign(new Error('secret'), { code: { secret: 1 } }), 'Error'],
    ['secret', 'a string'],
    [{ secret: 1 }, 'a object'],
    [undefined, 'a undefined'],
    [null, 'null'],
  ])('P12: shows no message of what was thrown (%#)', (thrown, shown) => {
    expect(describeThrown(thrown)).toBe(shown)
  })
})

describe('isRetryable', () => {
  test('reads our own errors and takes all others for passing troubles', () => {
    expect(isRetryable(new SinkError('m', { retryable: true }))).toBe(true)
    expect(isRetryable(new SinkError('m'))).toBe(false)
    expect(isRetryable(new Error('m'))).toBe(true)
    expect(isRetryable('text')).toBe(true)
  })
})
