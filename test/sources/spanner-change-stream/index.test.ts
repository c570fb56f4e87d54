import { describe, expect, test, vi } from 'vitest'
import { ConfigError } from '../../../src/core/errors.ts'
import { isMark } from '../../../src/core/stage.ts'
import { type SpannerChangeStreamOptions, spannerChangeStream } from '../../../src/sources/index.ts'
import { Source } from '../../../src/sources/source.ts'
import { data, part, roots, ScriptedStream, simulate } from './scripted-stream.ts'

const VALID = { database: 'projects/p/instances/i/databases/d', stream: 'OrderChanges' }

function made(options: Record<string, unknown>): unknown {
  return spannerChangeStream({ ...VALID, ...options } as SpannerChangeStreamOptions & { unit?: 'row' })
}

describe('spannerChangeStream', () => {
  test('is a source named after its stream, and contacts nothing when it is made', () => {
    const source = spannerChangeStream(VALID)
    expect(source).toBeInstanceOf(Source)
    expect(source.defaultName).toBe('OrderChanges')
  })

  const refused: [option: string, value: unknown, message: RegExp][] = [
    ['database', undefined, /database must be a non-empty string/],
    ['database', 'my-database', /database must be projects\/<project>.*got "my-database"/],
    ['database', 'projects/p/instances/i/databases/d/', /database must be projects/],
    ['database', 'projects//instances/i/databases/d', /database must be projects/],
    ['stream', undefined, /stream must be a non-empty string/],
    ['stream', '', /stream must be a non-empty string/],
    ['stream', 'Order Changes', /stream must be a letter.*got "Order Changes"/],
    ['stream', '1st', /stream must be a letter/],
    ['stream', 'S(); DROP TABLE T', /stream must be a letter/],
    ['start', 'yesterday', /start must be a time such as .*got "yesterday"/],
    ['start', '2026-13-01T00:00:00Z', /start must be a time such as/],
    ['end', '2026-01-01', /end must be a time such as/],
    ['heartbeatMs', 99, /heartbeatMs must be from 100 to 300000, got 99/],
    ['heartbeatMs', 300_001, /heartbeatMs must be from 100 to 300000, got 300001/],
    ['heartbeatMs', '2000', /heartbeatMs must be a positive whole number/],
    ['heartbeatMs', Number.NaN, /heartbeatMs must be a positive whole number/],
    ['maxPartitions', 0, /maxPartitions must be a positive whole number, got 0/],
    ['priority', 'urgent', /priority must be one of 'low', 'medium', 'high', got "urgent"/],
    ['unit', 'rows', /unit must be one of 'row', 'record', got "rows"/],
    ['emulatorHost', 'localhost', /emulatorHost must be host:port, got "localhost"/],
    ['emulatorHost', 'http://localhost:9010', /emulatorHost must be host:port, got "http/],
  ]
  test.each(refused)('refuses %s %j with a ConfigError that names it', (option, value, message) => {
    expect(() => made({ [option]: value })).toThrow(ConfigError)
    expect(() => made({ [option]: value })).toThrow(message)
  })

  test('refuses an end before its start, to the nanosecond and across offsets', () => {
    const start = '2026-01-01T00:00:00.000000002Z'
    expect(() => made({ start, end: '2026-01-01T00:00:00.000000001Z' })).toThrow(/end must not lie before start/)
    expect(() => made({ start, end: '2026-01-01T00:30:00+01:00' })).toThrow(/end must not lie before start/)
    expect(() => made({ start, end: start })).not.toThrow()
  })

  test('refuses an unknown option and names the nearest one', () => {
    expect(() => made({ heartbeatMS: 1000 })).toThrow(
      expect.objectContaining({
        message: "spannerChangeStream: there is no option 'heartbeatMS'",
        hint: "Did you mean 'heartbeatMs'?",
      }),
    )
  })

  test('refuses a wrong SPANNER_EMULATOR_HOST and says where it comes from', () => {
    vi.stubEnv('SPANNER_EMULATOR_HOST', 'nonsense')
    try {
      expect(() => spannerChangeStream(VALID)).toThrow(
        expect.objectContaining({ hint: expect.stringContaining('SPANNER_EMULATOR_HOST') }),
      )
    } finally {
      vi.unstubAllEnvs()
    }
  })

  test('can be iterated on its own: it begins at its start each time and keeps no progress', () =>
    simulate(async (clock) => {
      const script = { root: roots('a'), a: [[part(data(10, 'one'))]] }
      for (let times = 0; times < 2; times++) {
        const client = new ScriptedStream(clock, script)
        const ids: string[] = []
        for await (const item of spannerChangeStream({ ...VALID, start: '2026-01-01T00:00:00Z', client })) {
          if (isMark(item)) continue
          ids.push(item.id)
          item.ack()
          break
        }
        expect(ids).toEqual(['one/00000000/0'])
        expect(client.open).toBe(0)
      }
    }))
})
