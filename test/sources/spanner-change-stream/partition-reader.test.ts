import { describe, expect, test } from 'vitest'
import { sleep } from '../../../src/core/clock.ts'
import { SourceError } from '../../../src/core/errors.ts'
import type { ChangeStreamClient } from '../../../src/model/change-stream.ts'
import {
  type Answer,
  at,
  broken,
  children,
  data,
  failed,
  heartbeat,
  Probe,
  part,
  resumable,
  roots,
  ScriptedStream,
  simulate,
} from './scripted-stream.ts'

describe('readPartition', () => {
  test('P5: a stream that merely stopped is read again from the last observed position', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [
          [part(data(10, 'one'), data(20, 'two')), 'end'],
          [part(data(20, 'two'), data(20, 'tie'), data(30, 'three'))],
        ],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.taken.length === 4)
      expect(stream.queriesOf('a').map(({ start }) => start)).toEqual([at(0), at(20)])
      expect(probe.ids).toEqual(['one', 'two', 'tie', 'three'])
      expect(await probe.states()).toMatchObject({ a: 'RUNNING' })
      expect(probe.run.status().rereads).toBe(1)
      await probe.run.close()
    }))

  test('P5: a heartbeat counts as an observed position', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [[part(heartbeat(70)), 'end']] })
      const probe = new Probe(clock, stream)
      await probe.until(() => stream.queriesOf('a').length === 2)
      expect(stream.queriesOf('a')[1]).toMatchObject({ start: at(70), end: null })
      await probe.run.close()
    }))

  test('P5: child records of a broken query are no evidence for the end of the next one', () =>
    simulate(async (clock) => {
      const left = children(50, { left: ['a'] })
      const right = children(50, { right: ['a'] })
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [[part(left), broken()], ['end'], [part(left), part(right), 'end']],
      })
      const probe = new Probe(clock, stream)
      await probe.until(async () => (await probe.states()).a === 'FINISHED')
      expect(stream.queriesOf('a')).toHaveLength(3)
      expect(await probe.states()).toMatchObject({ left: expect.anything(), right: expect.anything() })
      await probe.run.close()
    }))

  test('P5: a query that is continued by its resume token keeps the child records it has seen', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [
          [resumable(data(10, 'one'), children(50, { left: ['a'] })), broken()],
          [part(children(50, { right: ['a'] })), 'end'],
        ],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => stream.tokens.includes('left') && stream.tokens.includes('right'))
      expect(stream.queriesOf('a')[1]!.resumeToken).toBeDefined()
      expect(await probe.states()).toMatchObject({ a: 'FINISHED' })
      await probe.run.close()
    }))

  test("P5: the user's end is reached only when something past it arrives", () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [
          [part(data(40, 'before'), heartbeat(50)), 'end'],
          [part(data(50, 'at the end')), 'end'],
          [part(data(51, 'behind')), 'silence'],
        ],
      })
      const probe = new Probe(clock, stream, { source: { end: at(50) } })
      await probe.ended
      expect(probe.ids).toEqual(['before', 'at the end'])
      expect(stream.queriesOf('a').map(({ start, end }) => [start, end])).toEqual([
        [at(0), null],
        [at(50), null],
        [at(50), null],
      ])
      expect(await probe.states()).toEqual({ root: 'FINISHED', a: 'FINISHED' })
      expect(stream.open).toBe(0)
      await probe.run.close()
    }))

  test.each([
    ['a heartbeat', part(heartbeat(51))],
    ['a child record', part(children(51, { late: ['a'] }))],
  ])('P5: %s past the end ends the partition, and what begins behind it is not read', (_, past) =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [[part(data(40, 'before')), past, 'silence']] })
      const probe = new Probe(clock, stream, { source: { end: at(50) } })
      await probe.ended
      expect(probe.ids).toEqual(['before'])
      expect(await probe.states()).toEqual({ root: 'FINISHED', a: 'FINISHED' })
      expect((await (await probe.table()).get('a'))?.watermark).toBe(at(50))
      await probe.run.close()
    }),
  )

  test('a query with a resume token is continued, and the repeated tail is dropped', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [
          [resumable(data(10, 'one'), data(20, 'two', ['x', 'y']), data(20, 'three')), broken()],
          [part(data(10, 'one'), data(20, 'two', ['x', 'y']), data(20, 'three'), data(20, 'four'), data(30, 'five'))],
        ],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.ids.includes('five'))
      expect(probe.ids).toEqual(['one', 'two', 'two', 'three', 'four', 'five'])
      expect(stream.queriesOf('a')[1]).toMatchObject({ start: at(0), resumeToken: Buffer.from('3') })
      await probe.run.close()
    }))

  test.each(['INVALID_ARGUMENT', 'OUT_OF_RANGE', 'NOT_FOUND'])(
    'P1: a resume token that the server refuses with %s is given up, and reading goes on from the position',
    (status) =>
      simulate(async (clock) => {
        const stream = new ScriptedStream(clock, {
          root: roots('a'),
          a: [[resumable(data(10, 'one')), broken()], [failed(status)], [part(data(20, 'two'))]],
        })
        const probe = new Probe(clock, stream)
        await probe.until(() => probe.taken.length === 2)
        expect(stream.queriesOf('a').map(({ start, resumeToken }) => [start, resumeToken !== undefined])).toEqual([
          [at(0), false],
          [at(0), true],
          [at(10), false],
        ])
        await probe.run.close()
      }),
  )

  test('P1: a query that has run for long is sent anew from the position: its first start would expire', () =>
    simulate(async (clock) => {
      const late = '2026-01-01T00:20:00.000000000Z'
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [
          [{ afterMs: 0, part: resumable({ kind: 'heartbeat', record: { timestamp: late } }) }, broken()],
          ['silence'],
        ],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => stream.queriesOf('a').length === 2)
      expect(stream.queriesOf('a')[1]).toMatchObject({ start: late })
      expect(stream.queriesOf('a')[1]).not.toHaveProperty('resumeToken')
      await probe.run.close()
    }))

  test('UNAUTHENTICATED is tried again a few times, whatever else failed before it', () =>
    simulate(async (clock) => {
      const outage = Array.from({ length: 8 }, () => [failed('UNAVAILABLE')])
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [...outage, [failed('UNAUTHENTICATED')], [part(data(10, 'one'))]],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.taken.length === 1)
      expect(probe.warnings.map(({ message }) => message)).toContain('the stream cannot be read and is tried again')
      await probe.run.close()
    }))

  test('a query that broke before its first part is not continued by an older resume token', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [[resumable(data(10, 'one')), broken()], [broken()], [part(data(20, 'two'))]],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.ids.includes('two'))
      expect(stream.queriesOf('a').map(({ start, resumeToken }) => [start, resumeToken !== undefined])).toEqual([
        [at(0), false],
        [at(0), true],
        [at(10), false],
      ])
      await probe.run.close()
    }))

  test('a silent stream is cut and read again', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [[part(data(10, 'one')), 'silence'], [part(data(20, 'two'))]],
      })
      const started = clock.now()
      const probe = new Probe(clock, stream, { source: { heartbeatMs: 2000 } })
      await probe.until(() => probe.ids.includes('two'))
      expect(clock.now() - started).toBeGreaterThanOrEqual(3 * 2000)
      expect(clock.now() - started).toBeLessThan(4 * 2000)
      expect(probe.warnings.map(({ message }) => message)).toEqual(['the stream went silent and is read again'])
      await probe.run.close()
    }))

  test('P5: a client that returns when it is cut, instead of throwing, does not end the partition', () =>
    simulate(async (clock) => {
      const left = part(children(50, { left: ['a'] }))
      const right = part(children(50, { right: ['a'] }))
      const scripted = new ScriptedStream(clock, {
        root: roots('a'),
        a: [
          [left, 'silence'],
          [left, right, 'end'],
        ],
      })
      const polite: ChangeStreamClient = {
        describe: () => scripted.describe(),
        close: () => scripted.close(),
        async *query(query, signal) {
          try {
            yield* scripted.query(query, signal)
          } catch (error) {
            if (!signal.aborted) throw error
          }
        },
      }
      const probe = new Probe(clock, polite)
      await probe.until(async () => (await probe.states()).a === 'FINISHED')
      expect(scripted.queriesOf('a')).toHaveLength(2)
      expect(await probe.states()).toMatchObject({ left: expect.anything(), right: expect.anything() })
      await probe.run.close()
    }))

  test('P1: a server that is slow to its first message is read in the end, and later silence is noticed early', () =>
    simulate(async (clock) => {
      const slow: readonly Answer[] = [{ afterMs: 50_000, part: part(data(10, 'one')) }, 'silence']
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [slow, slow, slow, slow, slow] })
      const probe = new Probe(clock, stream, { source: { heartbeatMs: 2000 } })
      await probe.until(() => probe.ids.includes('one'))
      const queries = stream.queriesOf('a').length
      expect(queries).toBeLessThan(5)

      // Once something has come, three heartbeats are enough again.
      await probe.until(() => stream.queriesOf('a').length === 6)
      const begunMs = clock.now()
      await probe.until(() => stream.queriesOf('a').length === 7)
      expect(clock.now() - begunMs).toBeLessThan(20_000)
      await probe.run.close()
    }))

  test('P1: a stream that stays silent is asked again every few minutes, for as long as it takes', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, { root: roots('a') })
      const probe = new Probe(clock, stream)
      await sleep(clock, 3_600_000)
      const inTheFirstHour = stream.queriesOf('a').length
      await sleep(clock, 7_200_000)
      expect(stream.queriesOf('a').length - inTheFirstHour).toBeGreaterThanOrEqual(15)
      await probe.run.close()
    }))

  test('P7: the settle time of a row counts from when it is handed out, however long its record waits', () =>
    simulate(async (clock) => {
      const rows = Array.from({ length: 30 }, (_, n) => `row ${n}`)
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [[part(data(10, 'large', rows))]] })
      const probe = new Probe(clock, stream, {
        acksAll: false,
        limits: { maxInFlight: 1, maxInFlightBytes: 1e6 },
        settleTimeoutMs: 10_000,
        onSettleTimeout: 'stop',
      })
      let failure: unknown
      probe.ended.catch((error: unknown) => {
        failure = error
      })
      for (let n = 0; n < rows.length; n++) {
        await probe.until(() => probe.taken.length > n || failure !== undefined)
        await sleep(clock, 1000)
        probe.taken[n]?.ack()
      }
      expect(failure).toBeUndefined()
      expect(probe.run.status().settled).toBe(30)
      await probe.run.close()
    }))

  test('P7: back-pressure of an hour is not mistaken for silence', () =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [[part(data(10, 'one'), data(20, 'two')), part(data(30, 'three'))]],
      })
      const options = { acksAll: false, limits: { maxInFlight: 1, maxInFlightBytes: 1e6 }, settleTimeoutMs: 0 }
      const probe = new Probe(clock, stream, options)
      await probe.until(() => probe.taken.length === 1)
      await sleep(clock, 3_600_000)
      expect(probe.ids).toEqual(['one'])
      expect(stream.queriesOf('a')).toHaveLength(1)
      expect(stream.pulled).toBe(2) // the root's and the first of the partition

      for (const name of ['one', 'two', 'three']) {
        await probe.until(() => probe.ids.includes(name))
        probe.delivery(name).ack()
      }
      expect(probe.run.status().rereads).toBe(0)
      await probe.run.close()
    }))

  test.each([
    'UNAVAILABLE',
    'DEADLINE_EXCEEDED',
    'INTERNAL',
    'RESOURCE_EXHAUSTED',
    'ABORTED',
    'CANCELLED',
    'UNAUTHENTICATED',
  ])('P1 P6: %s is tried again in place: nothing is lost, repeated or stopped', (status) =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a', 'b'),
        a: [
          [part(data(10, 'one'), data(20, 'two')), failed(status)],
          [failed(status)],
          [part(data(20, 'two'), data(20, 'tie'))],
        ],
      })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.ids.includes('tie'))
      expect(probe.ids).toEqual(['one', 'two', 'tie'])
      expect(stream.queriesOf('a').map(({ start }) => start)).toEqual([at(0), at(20), at(20)])
      // The others hear nothing of it.
      expect(stream.queriesOf('b')).toHaveLength(1)
      expect(probe.run.status().rereads).toBe(2)
      await probe.run.close()
    }),
  )

  test.each([
    ['PERMISSION_DENIED', 'ENVIRONMENT', 'databaseReader'],
    ['NOT_FOUND', 'CONFIG_INVALID', 'dropped'],
    ['INVALID_ARGUMENT', 'SOURCE_READ', 'dropped'],
  ])('P12: %s stops the run at once and says what to do', (status, code, advice) =>
    simulate(async (clock) => {
      const stream = new ScriptedStream(clock, {
        root: roots('a', 'b'),
        a: [[part(data(10, 'one')), failed(status)]],
      })
      const probe = new Probe(clock, stream)
      await expect(probe.ended).rejects.toMatchObject({ code, retryable: false, hint: expect.stringContaining(advice) })
      expect(stream.queriesOf('a')).toHaveLength(1)
      await probe.run.close()
      expect(stream.open).toBe(0)
    }),
  )

  test('an error that no retry can cure stops the run and names the partition', () =>
    simulate(async (clock) => {
      const denied = new SourceError('PERMISSION_DENIED', { partition: 'a', retryable: false })
      const stream = new ScriptedStream(clock, {
        root: roots('a', 'b'),
        a: [[part(data(10, 'one')), { error: denied }]],
      })
      const probe = new Probe(clock, stream)
      await expect(probe.ended).rejects.toBe(denied)
      expect(denied).toMatchObject({ code: 'SOURCE_READ', partition: 'a' })
      await probe.run.close()
      expect(stream.open).toBe(0)
      expect(stream.queriesOf('a')).toHaveLength(1)
    }))

  test('an error of unknown kind stops the run instead of repeating for ever', () =>
    simulate(async (clock) => {
      const mistake = new TypeError('x is not a function')
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [[part(data(10, 'one')), { error: mistake }]] })
      const probe = new Probe(clock, stream)
      await expect(probe.ended).rejects.toBe(mistake)
      expect(stream.queriesOf('a')).toHaveLength(1)
      await probe.run.close()
    }))

  test('waits between tries grow while nothing comes, and begin anew after progress', () =>
    simulate(async (clock) => {
      const times: number[] = []
      const stream = new ScriptedStream(clock, {
        root: roots('a'),
        a: [...Array.from({ length: 6 }, () => [broken()]), [part(data(10, 'one')), broken()], [broken()], ['silence']],
      })
      const probe = new Probe(clock, stream)
      let seen = 0
      await probe.until(() => {
        if (stream.queriesOf('a').length > seen) times.push(clock.now())
        seen = stream.queriesOf('a').length
        return seen === 9
      })
      const waits = times.slice(1).map((time, index) => time - times[index]!)
      expect(waits[5]).toBeGreaterThan(10 * waits[0]!)
      expect(waits[6]).toBeLessThan(2 * waits[0]!)
      await probe.run.close()
    }))

  test('P12: a stream that cannot be read is said with its status', () =>
    simulate(async (clock) => {
      const error = new SourceError('no', { status: 'UNAVAILABLE', retryable: true })
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [...Array(6).fill([{ error }]), ['silence']] })
      const probe = new Probe(clock, stream)
      await probe.until(() => probe.warnings.length > 0)
      expect(probe.warnings[0]).toMatchObject({
        message: 'the stream cannot be read and is tried again',
        fields: { partition: 'a', failures: 5, status: 'UNAVAILABLE' },
      })
      await probe.run.close()
    }))

  test('waits between tries are drawn at random: many partitions do not come back in one moment', async () => {
    const waitMs = (drawn: number): Promise<number> =>
      simulate(async (clock) => {
        const times: number[] = []
        const scripted = new ScriptedStream(clock, { root: roots('a'), a: [...Array(8).fill([broken()]), ['silence']] })
        const client: ChangeStreamClient = {
          describe: () => scripted.describe(),
          close: () => scripted.close(),
          query(query, signal) {
            times.push(clock.now())
            return scripted.query(query, signal)
          },
        }
        const probe = new Probe(clock, client, { random: () => drawn })
        await probe.until(() => times.length === 10)
        await probe.run.close()
        return times[9]! - times[8]!
      })
    const [shortest, longest] = [await waitMs(0), await waitMs(0.999)]
    expect(longest / shortest).toBeGreaterThan(1.9)
  })

  test('P7: one slow delivery bounds how far reading runs ahead of it', () =>
    simulate(async (clock) => {
      const records = Array.from({ length: 6000 }, (_, n) => data(10 + n, `r${n}`))
      const stream = new ScriptedStream(clock, { root: roots('a'), a: [[part(...records)]] })
      const probe = new Probe(clock, stream, { acksAll: false, settleTimeoutMs: 0 })
      await probe.until(() => probe.taken.length > 0)
      let acked = 1 // all but the first
      for (let rounds = 0; rounds < 20; rounds++) {
        for (; acked < probe.taken.length; acked++) probe.taken[acked]!.ack()
        await sleep(clock, 10)
      }
      expect(probe.taken).toHaveLength(4000) // four times maxInFlight
      probe.taken[0]!.ack()
      await probe.until(() => probe.taken.length > 4000)
      await probe.run.close()
    }))

  test("delivers a row at a time by default, and a whole record with unit 'record'", () =>
    simulate(async (clock) => {
      const script = { root: roots('a'), a: [[part(data(10, 'one', ['x', 'y']))]] }
      const rows = new Probe(clock, new ScriptedStream(clock, script))
      await rows.until(() => rows.taken.length === 2)
      expect(rows.taken.map(({ id, key }) => [id, key])).toEqual([
        ['one/00000000/0', 'Orders{"Id":"x"}'],
        ['one/00000000/1', 'Orders{"Id":"y"}'],
      ])
      const [first, second] = rows.taken
      expect(first!.value.record).toBe(second!.value.record)
      await rows.run.close()

      const records = new Probe(clock, new ScriptedStream(clock, script), { source: { unit: 'record' } })
      await records.until(() => records.taken.length === 1)
      expect(records.taken[0]).toMatchObject({ id: 'one/00000000', key: 'a', value: { tableName: 'Orders' } })
      await records.run.close()
    }))
})
