import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { backoffMs, errorPolicy, type FailureContext, retry, skip, stop } from '../../src/core/error-policy.ts'
import { ConfigError, OperatorError, SinkError } from '../../src/core/errors.ts'

const context = (attempt: number): FailureContext => ({ value: 1, partition: 'p', attempt })
const passing = new Error('timeout')

describe('retry', () => {
  test('tries again until the attempts are used up, then stops', () => {
    const policy = retry({ attempts: 3 })
    expect(policy.decide(passing, context(1))).toEqual({ retryInMs: expect.any(Number) })
    expect(policy.decide(passing, context(2))).toEqual({ retryInMs: expect.any(Number) })
    expect(policy.decide(passing, context(3))).toBe('stop')
    expect(policy.thenStop().decide(passing, context(3))).toBe('stop')
    expect(policy.decide(passing, context(Number.POSITIVE_INFINITY))).toBe('stop')
  })

  test('has five attempts unless told otherwise', () => {
    expect(retry().decide(passing, context(4))).toEqual({ retryInMs: expect.any(Number) })
    expect(retry().decide(passing, context(5))).toBe('stop')
  })

  test('skips after the last try if it was told so', () => {
    const policy = retry({ attempts: 2 }).thenSkip()
    expect(policy.decide(passing, context(1))).toEqual({ retryInMs: expect.any(Number) })
    expect(policy.decide(passing, context(2))).toBe('skip')
  })

  test('does not wait for what a retry cannot help', () => {
    expect(retry().decide(new SinkError('too large'), context(1))).toBe('stop')
    expect(retry().decide(new SinkError('busy', { retryable: true }), context(1))).toEqual({
      retryInMs: expect.any(Number),
    })
  })

  test('looks at what a callback threw, not at the error around it', () => {
    expect(retry().decide(new OperatorError('map', passing), context(1))).toEqual({ retryInMs: expect.any(Number) })
    expect(
      retry()
        .thenSkip()
        .decide(new OperatorError('map', new ConfigError('no')), context(1)),
    ).toBe('skip')
  })

  test.each([
    { option: 'attempts', options: { attempts: 0 } },
    { option: 'minDelayMs', options: { minDelayMs: -1 } },
    { option: 'maxDelayMs', options: { maxDelayMs: Number.NaN } },
  ])('P12: refuses a wrong $option', ({ option, options }) => {
    expect(() => retry(options)).toThrow(new RegExp(`^retry: ${option} must be`))
  })
})

describe('stop', () => {
  test('stops at the first failure', () => {
    expect(stop().decide(passing, context(1))).toBe('stop')
  })
})

describe('skip', () => {
  test('gives up at the first failure', () => {
    expect(skip().decide(passing, context(1))).toBe('skip')
  })
})

describe('errorPolicy', () => {
  test('retries and then stops unless told otherwise', () => {
    expect(errorPolicy().decide(passing, context(1))).toEqual({ retryInMs: expect.any(Number) })
    expect(errorPolicy().decide(passing, context(5))).toBe('stop')
  })

  test('takes a policy as it is', () => {
    const policy = skip()
    expect(errorPolicy(policy)).toBe(policy)
  })

  test('asks a function with the error and its context', () => {
    const seen: unknown[] = []
    const policy = errorPolicy((error, info) => {
      seen.push(error, info)
      return { retryInMs: 7 }
    })
    expect(policy.decide(passing, context(2))).toEqual({ retryInMs: 7 })
    expect(seen).toEqual([passing, context(2)])
  })

  test.each(['deadletter', undefined, null, {}, { retryInMs: Number.NaN }])(
    'P12: refuses the answer %o of a function',
    (answer) => {
      expect(() => errorPolicy((() => answer) as never).decide(passing, context(1))).toThrow(ConfigError)
    },
  )

  test.each([null, 'stop', {}])('P12: refuses %o as a policy', (wrong) => {
    expect(() => errorPolicy(wrong as never)).toThrow(/^onError must be a policy/)
  })
})

describe('backoffMs', () => {
  test('doubles up to its limit', () => {
    expect([1, 2, 3, 4, 5, 100].map((attempt) => backoffMs(attempt, 100, 1000, () => 1))).toEqual([
      100, 200, 400, 800, 1000, 1000,
    ])
  })

  test('stays between half of the full wait and the full wait', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1e9 }), fc.nat(1e5), fc.nat(1e6), (attempt, minMs, maxMs) => {
        const wait = backoffMs(attempt, minMs, maxMs)
        expect(wait).toBeLessThanOrEqual(maxMs)
        expect(wait).toBeGreaterThanOrEqual(Math.min(minMs, maxMs) / 2)
      }),
    )
  })
})
