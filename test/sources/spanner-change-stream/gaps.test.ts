import { describe, expect, test } from 'vitest'
import { type Clock, sleep } from '../../../src/core/clock.ts'
import { HistoryExpiredError } from '../../../src/core/errors.ts'
import type { CommitTimestamp } from '../../../src/core/types.ts'
import { timestampFromMs } from '../../../src/model/commit-timestamp.ts'
import type { ChangeStreamRecord } from '../../../src/model/data-change-record.ts'
import {
  at,
  children,
  data,
  failed,
  heartbeat,
  Probe,
  part,
  roots,
  ScriptedStream,
  simulate,
} from './scripted-stream.ts'

const DAY = 86_400_000
const short = { retentionMs: 600_000 }

describe('history that expired', () => {
  test('P12: stops with the exact gap', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(
        clock,
        { root: roots('a'), a: [[part(heartbeat(70)), { afterMs: 800_000, part: part() }, failed('OUT_OF_RANGE')]] },
        short,
      )
      const probe = new Probe(clock, stream, { source: { heartbeatMs: 300_000 } })
      const error = await probe.ended.catch((thrown: unknown) => thrown)
      expect(error).toBeInstanceOf(HistoryExpiredError)
      expect((error as HistoryExpiredError).gap).toEqual({ from: at(70), to: readable(clock) })
      await probe.run.close()
    }))

  test("with onGap: 'skip' a gap takes the place of what is lost, and the partition is read on behind it", () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(
        clock,
        {
          root: [...roots('a'), [part(children(0, { a: [] })), 'end']],
          a: [[part(data(70, 'one')), { afterMs: 800_000, part: part() }, failed('OUT_OF_RANGE')]],
        },
        short,
      )
      const probe = new Probe(clock, stream, { source: { heartbeatMs: 300_000, onGap: 'skip' } })
      await probe.until(() => stream.queriesOf('a').length === 2)
      const gap = probe.taken.at(-1)!.value
      const { start: to } = stream.queriesOf('a')[1]!
      expect(gap).toEqual({ op: 'gap', partitionToken: 'a', from: at(70), to })
      expect(probe.run.status().gaps).toBe(1)
      expect(probe.warnings.map(({ message }) => message)).toContain(
        'history expired: changes are lost, reading goes on behind the gap',
      )
      await probe.run.close()
    }))

  test("with onGap: 'skip' the partitions that exist behind the gap are read if the old one is gone", () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(
        clock,
        {
          root: [...roots('a'), [part(children(0, { x: [], y: [] })), 'end']],
          a: [[part(data(70, 'one')), { afterMs: 800_000, part: part() }, failed('OUT_OF_RANGE')]],
        },
        short,
      )
      const probe = new Probe(clock, stream, { source: { heartbeatMs: 300_000, onGap: 'skip' }, acksAll: false })
      await probe.until(() => probe.taken.length === 2)
      await sleep(clock, 1000)
      // P4: not before the gap is settled.
      expect(stream.tokens).toEqual(['root', 'a'])
      for (const delivery of probe.taken) delivery.ack()
      await probe.until(() => stream.tokens.length === 4)
      const to = stream.queriesOf('root')[1]!.start
      expect(stream.queriesOf('x')[0]).toMatchObject({ start: to })
      expect(stream.queriesOf('y')[0]).toMatchObject({ start: to })
      expect(await probe.states()).toMatchObject({ a: 'FINISHED', x: 'RUNNING', y: 'RUNNING' })
      await probe.run.close()
    }))

  test("a start before the retention is a gap as well, and with 'skip' the stream is read from where it can be", () =>
    simulate(async (clock) => {
      const first: ChangeStreamRecord = children(0, { a: [] })
      const stream = new ScriptedStream(clock, { root: [[failed('OUT_OF_RANGE')], [part(first), 'end']] }, short)
      const start = timestampFromMs(clock.now() - DAY)
      const probe = new Probe(clock, stream, { source: { start, onGap: 'skip' } })
      await probe.until(() => stream.tokens.includes('a'))
      expect(probe.taken[0]!.value).toMatchObject({ op: 'gap', from: start, to: stream.queriesOf('root')[1]!.start })
      await probe.run.close()
    }))
})

test('P8: the share of the retention that the lag has used is always known', () =>
  simulate(async (clock) => {
    const stream = new ScriptedStream(clock, { root: roots('a'), a: [[part(data(70, 'one'))]] }, short)
    const probe = new Probe(clock, stream, { acksAll: false, source: { heartbeatMs: 300_000 }, settleTimeoutMs: 0 })
    await sleep(clock, 330_000)
    expect(probe.run.status().retentionUsed).toBeCloseTo(0.55, 1)
    expect(probe.warnings.filter(({ message }) => message.includes('retention'))).toHaveLength(1)
    await probe.run.close()
  }))

function readable(clock: Clock): CommitTimestamp {
  return timestampFromMs(clock.now() - 600_000 + 30_000)
}
