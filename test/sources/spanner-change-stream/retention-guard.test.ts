import { expect, test } from 'vitest'
import { timestampFromMs } from '../../../src/model/commit-timestamp.ts'
import { VirtualClock } from '../../../src/simulator/index.ts'
import { RetentionGuard } from '../../../src/sources/spanner-change-stream/retention-guard.ts'

const HOUR = 3_600_000

test('P12: warns at 50 % and 80 % of the retention, once each, and says when it recovers', () => {
  const lines: string[] = []
  const log = (level: string) => (message: string) => void lines.push(`${level} ${message}`)
  const clock = new VirtualClock()
  const logger = { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') }
  const guard = new RetentionGuard({ retentionMs: 10 * HOUR }, clock, logger)
  const lag = (hours: number) => timestampFromMs(clock.now() - hours * HOUR)
  for (const hours of [1, 4.9, 5, 6, 8, 9, 9.5, 7, 2]) guard.check(lag(hours))
  expect(lines).toEqual([
    "warn the lag has used 50 % of the stream's retention: beyond it changes are lost",
    "error the lag has used 80 % of the stream's retention: changes will be lost soon",
    "info the lag has used 70 % of the stream's retention: it recovers",
    "info the lag has used 20 % of the stream's retention: it recovers",
  ])
  expect(guard.share(lag(2.5))).toBeCloseTo(0.25)
  expect(guard.share(timestampFromMs(clock.now() + HOUR))).toBe(0)
  expect(guard.share(undefined)).toBeUndefined()
})
