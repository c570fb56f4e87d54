import { describe, expect, test } from 'vitest'
import { ConfigError, EnvironmentError, HistoryExpiredError, SourceError } from '../../../src/core/errors.ts'
import { timestampFromMs } from '../../../src/model/commit-timestamp.ts'
import { GRPC_CODES, type GrpcCode } from '../../../src/model/grpc-code.ts'
import { ROOT_TOKEN } from '../../../src/model/partition.ts'
import { type FailedQuery, judgeFailure } from '../../../src/sources/spanner-change-stream/read-failure.ts'

const NOW = Date.parse('2026-11-18T12:00:00Z')
const HOUR = 3_600_000
const query: FailedQuery = {
  token: 'a',
  start: timestampFromMs(NOW - HOUR),
  childrenStart: undefined,
  isBehindGap: false,
  failures: 1,
  nowMs: NOW,
  retentionMs: 24 * HOUR,
}

describe('judgeFailure', () => {
  const rules: readonly (readonly [GrpcCode, 'retry' | 'stop', unknown])[] = [
    ['UNAVAILABLE', 'retry', undefined],
    ['DEADLINE_EXCEEDED', 'retry', undefined],
    ['INTERNAL', 'retry', undefined],
    ['RESOURCE_EXHAUSTED', 'retry', undefined],
    ['ABORTED', 'retry', undefined],
    ['CANCELLED', 'retry', undefined],
    ['UNKNOWN', 'retry', undefined],
    ['UNAUTHENTICATED', 'retry', undefined],
    ['PERMISSION_DENIED', 'stop', EnvironmentError],
    ['NOT_FOUND', 'stop', ConfigError],
    ['INVALID_ARGUMENT', 'stop', SourceError],
    ['FAILED_PRECONDITION', 'stop', SourceError],
    ['UNIMPLEMENTED', 'stop', SourceError],
    ['DATA_LOSS', 'stop', SourceError],
    ['ALREADY_EXISTS', 'stop', SourceError],
    ['OUT_OF_RANGE', 'stop', SourceError],
  ]

  test('every status of gRPC has its rule', () => {
    expect(rules.map(([status]) => status).toSorted()).toEqual(Object.keys(GRPC_CODES).toSorted())
  })

  test.each(rules)('P12: %s: %s', (status, kind, type) => {
    const verdict = judgeFailure(failedWith(status), query)
    expect(verdict.kind).toBe(kind)
    if (verdict.kind !== 'stop') return
    expect(verdict.error).toBeInstanceOf(type)
    if (status !== 'ALREADY_EXISTS') expect((verdict.error as SourceError).hint).toMatch(/\w/)
  })

  test('RESOURCE_EXHAUSTED waits longer than other troubles', () => {
    expect(judgeFailure(failedWith('RESOURCE_EXHAUSTED'), query)).toEqual({ kind: 'retry', minDelayMs: 1000 })
    expect(judgeFailure(failedWith('UNAVAILABLE'), query)).toEqual({ kind: 'retry', minDelayMs: 0 })
  })

  test('UNAUTHENTICATED is tried a few times, while a credential is renewed, and then says who lacks what', () => {
    expect(judgeFailure(failedWith('UNAUTHENTICATED'), { ...query, failures: 5 }).kind).toBe('retry')
    const verdict = judgeFailure(failedWith('UNAUTHENTICATED'), { ...query, failures: 6 })
    expect(verdict).toMatchObject({ kind: 'stop', error: expect.any(EnvironmentError) })
  })

  test('a stopping error keeps the partition and the status', () => {
    const verdict = judgeFailure(failedWith('INVALID_ARGUMENT'), query)
    expect(verdict).toMatchObject({ error: { partition: 'a', status: 'INVALID_ARGUMENT', retryable: false } })
  })

  test('an error without a status is tried again only if it says that this helps', () => {
    expect(judgeFailure(new SourceError('x', { retryable: true }), query).kind).toBe('retry')
    expect(judgeFailure(new SourceError('x'), query).kind).toBe('stop')
    expect(judgeFailure(new TypeError('x'), query).kind).toBe('stop')
  })
})

describe('OUT_OF_RANGE is decided by times', () => {
  const judge = (changes: Partial<FailedQuery>) => judgeFailure(failedWith('OUT_OF_RANGE'), { ...query, ...changes })

  test('P5: behind the known children the partition has ended', () => {
    const childrenStart = timestampFromMs(NOW - 2 * HOUR)
    expect(judge({ childrenStart })).toEqual({ kind: 'ended', at: childrenStart })
    expect(judge({ childrenStart, start: childrenStart })).toEqual({ kind: 'ended', at: childrenStart })
  })

  test('P5: before the known children it has not', () => {
    expect(judge({ childrenStart: timestampFromMs(NOW - HOUR / 2) }).kind).toBe('stop')
  })

  test('P12: older than the retention: history expired, with the exact gap', () => {
    const start = timestampFromMs(NOW - 25 * HOUR)
    const verdict = judge({ start })
    expect(verdict).toMatchObject({ kind: 'expired', error: { code: 'SOURCE_HISTORY_EXPIRED', partition: 'a' } })
    const { error } = verdict as { error: HistoryExpiredError }
    expect(error).toBeInstanceOf(HistoryExpiredError)
    // A minute later than the retention says, for clocks that differ.
    expect(error.gap).toEqual({ from: start, to: timestampFromMs(NOW - 24 * HOUR + 60_000) })
    expect(error.message).toContain(start)
    expect(error.message).toContain(error.gap.to)
    expect(error.hint).toContain("onGap: 'skip'")
  })

  test('a partition that the service has forgotten with its history is expired as well, whatever it calls it', () => {
    const start = timestampFromMs(NOW - 25 * HOUR)
    expect(judgeFailure(failedWith('INVALID_ARGUMENT'), { ...query, start }).kind).toBe('expired')
  })

  test('P12: behind a gap that has just been found the retention is not the reason', () => {
    const start = timestampFromMs(NOW - 24 * HOUR + 59_000)
    expect(judge({ start }).kind).toBe('expired')
    expect(judge({ start, isBehindGap: true })).toMatchObject({ kind: 'stop', error: { code: 'SOURCE_READ' } })
    expect(judge({ start, isBehindGap: true, token: ROOT_TOKEN })).toMatchObject({ error: { code: 'CONFIG_INVALID' } })
    // Whoever had to wait at a gap may find that by now the history begins later.
    expect(judge({ start: timestampFromMs(NOW - 24 * HOUR + 20_000), isBehindGap: true }).kind).toBe('expired')
  })

  test('P12: a start in the future is a wrong option', () => {
    const verdict = judge({ token: ROOT_TOKEN, start: timestampFromMs(NOW + HOUR) })
    expect(verdict).toMatchObject({ kind: 'stop', error: { code: 'CONFIG_INVALID' } })
    expect((verdict as { error: Error }).error.message).toContain('future')
    expect((verdict as { error: ConfigError }).error.hint).toContain('under another name')
  })

  test('P12: a first query within the retention asks for a time before the stream was made', () => {
    const verdict = judge({ token: ROOT_TOKEN })
    expect(verdict).toMatchObject({ kind: 'stop', error: { code: 'CONFIG_INVALID' } })
    expect((verdict as { error: ConfigError }).error.hint).toContain('creation')
  })

  test('P12: a start shortly before the creation of the stream is said at once, not after a minute of tries', () => {
    const verdict = judge({ token: ROOT_TOKEN, start: timestampFromMs(NOW - 11_000) })
    expect(verdict).toMatchObject({ kind: 'stop', error: { code: 'CONFIG_INVALID' } })
  })

  test('a first query of about now is asked again: the clock of the server may be behind ours', () => {
    for (const ms of [-9_000, 0, 59_000]) {
      const verdict = judge({ token: ROOT_TOKEN, start: timestampFromMs(NOW + ms) })
      expect(verdict).toEqual({ kind: 'retry', minDelayMs: 1_000 })
    }
  })

  test('P12: a known partition within the retention that cannot be read is not skipped in silence', () => {
    expect(judge({})).toMatchObject({ kind: 'stop', error: { code: 'SOURCE_READ', partition: 'a' } })
  })
})

function failedWith(status: GrpcCode): SourceError {
  return new SourceError(`reading failed with ${status}`, {
    status,
    partition: 'a',
    cause: { code: GRPC_CODES[status] },
  })
}
