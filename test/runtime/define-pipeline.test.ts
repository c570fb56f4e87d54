import { describe, expect, test } from 'vitest'
import { ConfigError } from '../../src/core/errors.ts'
import type { Sink } from '../../src/core/types.ts'
import { definePipeline, type PipelineOptions, pipelineName } from '../../src/runtime/define-pipeline.ts'
import { from } from '../../src/sources/index.ts'

const sink: Sink<number> = { name: 'sink', write: () => Promise.resolve(), close: () => Promise.resolve() }
const VALID = { source: from([1]), sink }

function defined(options: Record<string, unknown>): unknown {
  return definePipeline({ ...VALID, ...options } as PipelineOptions<number, number>)
}

describe('definePipeline', () => {
  test('fills in the defaults and opens nothing', () => {
    expect(definePipeline(VALID)).toMatchObject({
      isPipeline: true,
      name: undefined,
      sinks: [sink],
      store: undefined,
      maxInFlight: 1000,
      maxInFlightBytes: 64 * 1024 * 1024,
      checkpointIntervalMs: 1000,
      settleTimeoutMs: 60_000,
      onSettleTimeout: 'warn',
      drainTimeoutMs: 30_000,
      leaseMs: 10_000,
      onHeld: 'wait',
    })
  })

  const refused: [option: string, value: unknown, message: RegExp][] = [
    ['source', undefined, /source is missing or not a source/],
    ['source', [1, 2], /source is missing or not a source/],
    ['sink', undefined, /sink is missing or not a sink/],
    ['sink', [], /sink is missing or not a sink/],
    ['sink', [sink, {}], /sink is missing or not a sink/],
    ['steps', 'map', /steps must be a function, got "map"/],
    ['name', '', /name must be a non-empty string/],
    ['name', 'a/b', /name must be 1 to 100 letters.*got "a\/b"/],
    ['name', '.hidden', /name must be 1 to 100 letters/],
    ['onError', 'skip', /onError must be a policy/],
    ['maxInFlight', 0, /maxInFlight must be a positive whole number, got 0/],
    ['maxInFlight', 1.5, /maxInFlight must be a positive whole number/],
    ['maxInFlightBytes', -1, /maxInFlightBytes must be a positive whole number/],
    ['checkpointIntervalMs', 0, /checkpointIntervalMs must be a positive whole number/],
    ['settleTimeoutMs', -1, /settleTimeoutMs must be a number of milliseconds/],
    ['onSettleTimeout', 'ignore', /onSettleTimeout must be one of 'warn', 'retry', 'stop'/],
    ['drainTimeoutMs', Number.NaN, /drainTimeoutMs must be a number of milliseconds/],
    ['leaseMs', '10s', /leaseMs must be a positive whole number, got "10s"/],
    ['onHeld', 'queue', /onHeld must be one of 'wait', 'exit', got "queue"/],
  ]
  test.each(refused)('refuses %s %j with a ConfigError that names it', (option, value, message) => {
    expect(() => defined({ [option]: value })).toThrow(ConfigError)
    expect(() => defined({ [option]: value })).toThrow(message)
  })

  test('refuses an unknown option and names the nearest one', () => {
    expect(() => defined({ maxInflight: 5 })).toThrow(
      expect.objectContaining({ code: 'CONFIG_INVALID', hint: "Did you mean 'maxInFlight'?" }),
    )
  })

  test.each([undefined, null, 'orders'])('refuses %j instead of options', (options) => {
    expect(() => definePipeline(options as never)).toThrow(ConfigError)
  })
})

describe('pipelineName', () => {
  test.each(['orders-to-kafka', 'A.b_c', '9', 'x'.repeat(100)])('accepts %s', (name) => {
    expect(pipelineName(name)).toBe(name)
  })

  test.each(['', ' ', '..', 'a b', 'ä', 'x'.repeat(101)])('refuses %j', (name) => {
    expect(() => pipelineName(name)).toThrow(ConfigError)
  })
})
