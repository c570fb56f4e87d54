import { describe, expect, test } from 'vitest'
import { type Clock, sleep } from '../../../src/core/clock.ts'
import { HistoryExpiredError } from '../../../src/core/errors.ts'
import type { CommitTimestamp } from '../../../src/core/types.ts'
import { timestampFromMs } from '../../../src/model/commit-timestamp.ts'
import type { ChangeStreamRecord } from '../../../src/model/data-change-record.ts'
import { SimulatedStream } from '../../../src/simulator/index.ts'
import { memoryPartitionStore } from '../../../src/stores/index.ts'
import {
  at,
  broken,
  children,
  data,
  failed,
  heartbeat,
  Probe,
  part,
  roots,
  ScriptedStream,
  simulate,
  start,
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

  test.each([
    ['breaks', [broken()]],
    ['ends without an answer', ['end' as const]],
    ['stays silent', ['silence' as const]],
  ])('P1 P5: the query for the partitions behind a gap is sent again if it %s', (_, answer) =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(
        clock,
        {
          root: [...roots('a'), answer, [part(children(0, { x: [] })), 'end']],
          a: [
            [part(data(70, 'one')), { afterMs: 800_000, part: part() }, failed('OUT_OF_RANGE')],
            [failed('OUT_OF_RANGE')],
          ],
        },
        short,
      )
      const probe = new Probe(clock, stream, { source: { heartbeatMs: 300_000, onGap: 'skip' } })
      await probe.until(() => stream.tokens.includes('x'))
      expect(probe.taken.map(({ value }) => (value as unknown as { op: string }).op)).toEqual(['update', 'gap'])
      await probe.run.close()
    }),
  )

  test('P1: a partition that goes on behind a gap keeps nobody waiting for its end', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(
        clock,
        {
          root: [...roots('a', 'b'), [part(children(0, { a: [], c: [] })), 'end']],
          a: [[part(data(70, 'one')), { afterMs: 800_000, part: part() }, failed('OUT_OF_RANGE')]],
          b: [[{ afterMs: 900_000, part: part(children(80, { c: ['b'] })) }, 'end']],
        },
        short,
      )
      const probe = new Probe(clock, stream, { source: { heartbeatMs: 300_000, onGap: 'skip' } })
      await probe.until(() => stream.tokens.includes('c'))
      expect(await probe.states()).toMatchObject({ a: 'RUNNING', b: 'FINISHED', c: 'RUNNING' })
      await probe.run.close()
    }))

  test('P1: with mutable key ranges the partitions that began in the gap are read beside the one that goes on', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(
        clock,
        {
          root: [
            [part(start(0, 'a')), 'end'],
            [part(start(0, 'a', 'c')), 'end'],
          ],
          a: [[part(data(70, 'one')), { afterMs: 800_000, part: part() }, failed('OUT_OF_RANGE')]],
        },
        { ...short, mode: 'mutable' },
      )
      const probe = new Probe(clock, stream, { source: { heartbeatMs: 300_000, onGap: 'skip' } })
      await probe.until(() => stream.tokens.includes('c') && stream.queriesOf('a').length === 2)
      expect(await probe.states()).toMatchObject({ a: 'RUNNING', c: 'RUNNING' })
      await probe.run.close()
    }))

  test('P4: what is found behind a gap waits for every known partition that ended before', () =>
    simulate(async (clock) => {
      const late = Promise.withResolvers<void>()
      const stream = new ScriptedStream(
        clock,
        {
          root: [...roots('a', 'b'), [part(children(0, { x: [], y: [] })), 'end']],
          a: [[part(data(70, 'one')), { afterMs: 800_000, part: part() }, failed('OUT_OF_RANGE')]],
          b: [[{ until: late.promise }, part(data(80, 'two', ['two'], 'b'), children(90, { y: ['b'] })), 'end']],
        },
        short,
      )
      const probe = new Probe(clock, stream, { source: { heartbeatMs: 300_000, onGap: 'skip' } })
      await probe.until(async () => (await probe.states()).a === 'FINISHED')
      await sleep(clock, 1000)
      // Either may descend from b.
      expect(stream.tokens).toEqual(['root', 'a', 'b'])
      late.resolve()
      await probe.until(() => stream.tokens.length === 5)
      await probe.run.close()
    }))

  test('P5: who waits for a partition since a gap does not hide where its own children start', () =>
    simulate(async (clock) => {
      const store = memoryPartitionStore({ clock })
      const table = await store.open('probe')
      const own = { owner: 'probe', epoch: 1 }
      const from = (token: string, parent: string, nanos: number) =>
        table.addChildren(parent, own, [{ token, parentTokens: [parent], start: at(nanos) }], 1000)
      await table.createRoot({ token: 'root', parentTokens: [], start: at(0) }, 'probe', 1000)
      const run = async (token: string) => {
        await table.advance(token, own, 'CREATED', 'SCHEDULED')
        await table.advance(token, own, 'SCHEDULED', 'RUNNING')
      }
      await run('root')
      await from('a', 'root', 0)
      await table.finish('root', own, { watermark: at(0), boundaryIds: [] }, null)
      await from('behindGap', 'a', 50)
      await from('ownChild', 'a', 20)
      await run('a')
      await table.checkpoint('probe', [{ token: 'a', epoch: 1, watermark: at(20), boundaryIds: [] }], 1000)
      await table.release('probe')

      const stream = new ScriptedStream(clock, { a: [[failed('OUT_OF_RANGE')]] }, short)
      const probe = new Probe(clock, stream, { store })
      await probe.until(() => stream.tokens.length === 3 || probe.run.failed.aborted)
      expect(stream.tokens).toEqual(['a', 'behindGap', 'ownChild'])
      expect((await table.get('a'))?.watermark).toBe(at(20))
      await probe.run.close()
    }))

  test('P1: a first query that broke in the middle and then expired leaves out no partition', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(
        clock,
        {
          root: [
            [part(children(0, { a: [] })), { afterMs: 800_000, part: part() }, broken()],
            [failed('OUT_OF_RANGE')],
            [part(children(0, { a: [], b: [] })), 'end'],
          ],
        },
        short,
      )
      const probe = new Probe(clock, stream, { source: { heartbeatMs: 300_000, onGap: 'skip' } })
      await probe.until(() => stream.tokens.includes('a') && stream.tokens.includes('b'))
      expect(probe.taken[0]!.value).toMatchObject({ op: 'gap', partitionToken: 'root', from: at(0) })
      await probe.run.close()
    }))

  test('P1: a child of a merge does not wait for a parent that came and went in a gap', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(
        clock,
        {
          // Of a came x, which nobody has read; merged came of x and b.
          root: [...roots('a', 'b'), [part(children(0, { merged: [] })), 'end']],
          a: [[part(data(70, 'one')), { afterMs: 800_000, part: part() }, failed('OUT_OF_RANGE')]],
          b: [[part(children(90, { merged: ['x', 'b'] })), 'end']],
        },
        short,
      )
      const probe = new Probe(clock, stream, { source: { heartbeatMs: 300_000, onGap: 'skip' } })
      await sleep(clock, 700_000)
      expect(stream.tokens).toEqual(['root', 'a', 'b'])
      await probe.until(() => stream.tokens.includes('merged'))
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

  test("P12: with onGap: 'skip' a stream that was made later than its retention reaches is no gap without end", () =>
    simulate(async (clock) => {
      const createdAt = timestampFromMs(clock.now() - DAY)
      const stream = new SimulatedStream({ seed: 1, clock, stream: 'S', createdAt, retentionMs: 7 * DAY })
      const source = { start: timestampFromMs(clock.now() - 30 * DAY), onGap: 'skip' as const }
      const probe = new Probe(clock, stream.client(), { source })
      await expect(probe.ended).rejects.toMatchObject({
        code: 'CONFIG_INVALID',
        message: expect.stringContaining('does not reach back'),
      })
      expect(probe.run.status().gaps).toBe(1)
      await probe.run.close()
    }))

  test.each([
    ['dropped', 'INVALID_ARGUMENT', 'SOURCE_READ'],
    ['made anew', 'OUT_OF_RANGE', 'CONFIG_INVALID'],
  ])("P12: with onGap: 'skip' a stream that was %s stops the run", (_, status, code) =>
    simulate(async (clock) => {
      const again = Array.from({ length: 50 }, () => [failed(status)])
      const stream = new ScriptedStream(
        clock,
        {
          root: [...roots('a'), ...again],
          a: [[part(data(70, 'one')), { afterMs: 800_000, part: part() }, failed('INVALID_ARGUMENT')], ...again],
        },
        short,
      )
      const probe = new Probe(clock, stream, { source: { heartbeatMs: 300_000, onGap: 'skip' } })
      await sleep(clock, 900_000)
      expect(probe.run.failed.reason).toMatchObject({ code })
      expect(probe.taken).toHaveLength(1)
      await probe.run.close()
    }),
  )

  test.each(['stop', 'skip'] as const)('P12: a retention that was shortened meanwhile makes a gap (%s)', (onGap) =>
    simulate(async (clock) => {
      const description = { retentionMs: 7 * DAY }
      const begin = timestampFromMs(clock.now() - 3 * DAY)
      const first: ChangeStreamRecord = {
        kind: 'children',
        record: { startTimestamp: begin, recordSequence: '0', children: [{ token: 'a', parentTokens: [] }] },
      }
      const stream = new ScriptedStream(
        clock,
        { root: [[part(first), 'end'], ...roots('a')], a: [[{ afterMs: 2000, part: part() }, failed('OUT_OF_RANGE')]] },
        description,
      )
      const probe = new Probe(clock, stream, { source: { start: begin, onGap } })
      await probe.until(() => stream.tokens.includes('a'))
      description.retentionMs = DAY
      if (onGap === 'stop') {
        await expect(probe.ended).rejects.toMatchObject({ code: 'SOURCE_HISTORY_EXPIRED', gap: { from: begin } })
      } else {
        await probe.until(() => probe.run.status().gaps === 1)
        expect(probe.taken[0]!.value).toMatchObject({ op: 'gap', from: begin })
      }
      await probe.run.close()
    }),
  )

  test('P12: partitions that fail together wait for one answer about the retention, and both go by it', () =>
    simulate(async (clock) => {
      const description = { retentionMs: 7 * DAY }
      const begin = timestampFromMs(clock.now() - 3 * DAY)
      const tokens = ['a', 'b']
      const first: ChangeStreamRecord = {
        kind: 'children',
        record: {
          startTimestamp: begin,
          recordSequence: '0',
          children: tokens.map((token) => ({ token, parentTokens: [] })),
        },
      }
      const stream = new ScriptedStream(
        clock,
        {
          root: [[part(first), 'end'], ...roots(...tokens), ...roots(...tokens)],
          a: [[{ afterMs: 2000, part: part() }, failed('OUT_OF_RANGE')]],
          b: [[{ afterMs: 2100, part: part() }, failed('OUT_OF_RANGE')]],
        },
        description,
      )
      let asked = 0
      const describeStream = stream.describe.bind(stream)
      stream.describe = async () => {
        asked++
        await sleep(clock, 500)
        return await describeStream()
      }
      const probe = new Probe(clock, stream, { source: { start: begin, onGap: 'skip' } })
      await probe.until(() => stream.tokens.includes('b'))
      description.retentionMs = DAY
      await sleep(clock, 5000)
      expect(probe.run.status().gaps).toBe(2)
      expect(asked).toBe(2)
      await probe.run.close()
    }))

  test('P12: a stream that cannot be described again is taken as it was', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(
        clock,
        { root: roots('a'), a: [[{ afterMs: 2000, part: part() }, failed('OUT_OF_RANGE')]] },
        short,
      )
      let asked = 0
      const describeStream = stream.describe.bind(stream)
      stream.describe = () => (asked++ === 0 ? describeStream() : Promise.reject(new Error('not now')))
      const probe = new Probe(clock, stream)
      await expect(probe.ended).rejects.toMatchObject({ code: 'SOURCE_READ', status: 'OUT_OF_RANGE' })
      expect(asked).toBe(2)
      await probe.run.close()
    }))
})

test('P8 P12: a run warns at half and at four fifths of the retention, also when it is shortened on the way', () =>
  simulate(async (clock) => {
    const HOUR = 3_600_000
    const description = { retentionMs: 4 * HOUR }
    const lines: string[] = []
    const log = (level: string) => (message: string) => {
      if (message.includes('retention')) lines.push(`${level} ${message}`)
    }
    const stream = new ScriptedStream(clock, { root: roots('a'), a: [[part(data(70, 'one'))]] }, description)
    const probe = new Probe(clock, stream, {
      acksAll: false,
      source: { heartbeatMs: 300_000 },
      settleTimeoutMs: 0,
      logger: { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') },
    })
    await sleep(clock, 0.9 * HOUR)
    expect(lines).toEqual([])
    description.retentionMs = 2 * HOUR
    await sleep(clock, 0.9 * HOUR)
    expect(lines).toEqual([
      "info the stream's retention has changed",
      "warn the lag has used 50 % of the stream's retention: beyond it changes are lost",
      "error the lag has used 80 % of the stream's retention: changes will be lost soon",
    ])
    await probe.run.close()
  }))

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
