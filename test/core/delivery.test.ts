import { describe, expect, test } from 'vitest'
import { join, SourceDelivery } from '../../src/core/delivery.ts'
import { skip } from '../../src/core/error-policy.ts'
import type { Delivery } from '../../src/core/types.ts'
import { RecordingOrigin, timeOf } from '../support/recording-origin.ts'

const error = new Error('failed')

describe('SourceDelivery', () => {
  test('tells its origin of the first settlement only', () => {
    const origin = new RecordingOrigin()
    const acked = origin.make('a')
    acked.ack()
    acked.ack()
    acked.nack(error)
    const nacked = origin.make('b')
    nacked.nack(error, { attempt: 2 })
    nacked.ack()
    expect(origin.acks).toEqual([0])
    expect(origin.nacks).toEqual([{ id: 'r1', value: 'b', error, attempt: 2 }])
    expect([acked.isSettled, nacked.isSettled]).toEqual([true, true])
  })

  test('a nack without a count of attempts stands for the last one', () => {
    const origin = new RecordingOrigin()
    origin.make('a').nack(error)
    expect(origin.nacks[0]?.attempt).toBe(Number.POSITIVE_INFINITY)
  })

  test('passes on when the value is asked for again', () => {
    const origin = new RecordingOrigin()
    origin.make('a').derive('b').nack(error, { retryInMs: 500 })
    expect(origin.nacks[0]?.retryInMs).toBe(500)
  })

  test('knows its partition, and so does what is made of it', () => {
    const origin = Object.assign(new RecordingOrigin(), { partition: 'p1' })
    const delivery = origin.make('a')
    const [part] = delivery.split([1]) as [Delivery<number>]
    expect([delivery, delivery.derive(1), part, join([part], 1)].map(({ partition }) => partition)).toEqual([
      'p1',
      'p1',
      'p1',
      'p1',
    ])
    expect(new RecordingOrigin().make('a').partition).toBe('')
  })

  test('asks its origin what the error policy says, and settles nothing by that', () => {
    const origin = new RecordingOrigin(skip())
    const delivery = origin.make('a')
    expect(delivery.decide(error, 1)).toBe('skip')
    expect(delivery.isSettled).toBe(false)
    expect(delivery).toBeInstanceOf(SourceDelivery)
  })
})

describe('derive', () => {
  test('shares the duty: settling either settles both', () => {
    const origin = new RecordingOrigin()
    const whole = origin.make('a', 'key')
    const derived = whole.derive(1).derive(2)
    expect(derived).toMatchObject({ value: 2, key: 'key', id: 'r0', timestamp: timeOf(0), isSettled: false })
    whole.ack()
    expect(derived.isSettled).toBe(true)
    derived.nack(error)
    expect({ acks: origin.acks, nacks: origin.nacks }).toEqual({ acks: [0], nacks: [] })
  })

  test('a failure of what was derived carries the value that came from the source', () => {
    const origin = new RecordingOrigin()
    origin.make('source').derive('derived').nack(error, { attempt: 3 })
    expect(origin.nacks).toEqual([{ id: 'r0', value: 'source', error, attempt: 3 }])
  })
})

describe('split', () => {
  test('settles the whole when all parts are settled, in any order', () => {
    const origin = new RecordingOrigin()
    const [a, b, c] = origin.make('x').split([1, 2, 3]) as [Delivery<number>, Delivery<number>, Delivery<number>]
    c.ack()
    a.ack()
    c.ack()
    expect(origin.acks).toEqual([])
    expect([a.isSettled, b.isSettled, c.isSettled]).toEqual([true, false, true])
    b.ack()
    expect(origin.acks).toEqual([0])
  })

  test('no parts is an ack', () => {
    const origin = new RecordingOrigin()
    expect(origin.make('x').split([])).toEqual([])
    expect(origin.acks).toEqual([0])
  })

  test('the first failure of a part becomes that of the whole, once all are settled', () => {
    const origin = new RecordingOrigin()
    const [a, b, c] = origin.make('x').split([1, 2, 3]) as [Delivery<number>, Delivery<number>, Delivery<number>]
    b.nack(error, { attempt: 4 })
    a.nack(new Error('second'))
    expect(origin.nacks).toEqual([])
    c.ack()
    expect(origin.nacks).toEqual([{ id: 'r0', value: 'x', error, attempt: 4 }])
    expect(origin.acks).toEqual([])
  })

  test('parts have ids of their own, the same in every run, and keep key and time', () => {
    const parts = new RecordingOrigin().make('x', 'key').split(['a', 'b'])
    expect(parts.map(({ id, key, timestamp }) => [id, key, timestamp])).toEqual([
      ['r0.0', 'key', timeOf(0)],
      ['r0.1', 'key', timeOf(0)],
    ])
  })

  test('a part can be split again', () => {
    const origin = new RecordingOrigin()
    const [a, b] = origin.make('x').split([1, 2]) as [Delivery<number>, Delivery<number>]
    const [aa, ab] = a.derive('a').split([11, 12]) as [Delivery<number>, Delivery<number>]
    expect([aa.id, ab.id]).toEqual(['r0.0.0', 'r0.0.1'])
    aa.ack()
    b.ack()
    expect(a.isSettled).toBe(false)
    expect(origin.acks).toEqual([])
    ab.nack(error)
    expect(a.isSettled).toBe(true)
    expect(origin.nacks.map(({ id }) => id)).toEqual(['r0'])
  })
})

describe('join', () => {
  test('settles all of its parts together', () => {
    const origin = new RecordingOrigin()
    const joined = join([origin.make(1), origin.make(2), origin.make(3)], 'all')
    expect(joined).toMatchObject({ value: 'all', id: 'r0..r2', timestamp: timeOf(2), isSettled: false })
    joined.derive('again').ack()
    expect(origin.acks).toEqual([0, 1, 2])
    expect(joined.isSettled).toBe(true)
  })

  test('nacks all of its parts, but those that are settled already', () => {
    const origin = new RecordingOrigin()
    const parts: [Delivery<number>, Delivery<number>] = [origin.make(1), origin.make(2)]
    const joined = join(parts, parts)
    parts[0].ack()
    expect(joined.isSettled).toBe(false)
    joined.nack(error, { attempt: 1 })
    expect(origin.acks).toEqual([0])
    expect(origin.nacks).toEqual([{ id: 'r1', value: 2, error, attempt: 1 }])
  })

  test('P3: all joined deliveries share one key, so that none overtakes another', () => {
    const origin = new RecordingOrigin()
    expect(join([origin.make(1, 'k'), origin.make(2, 'l')], 0).key).toBe('')
    expect(join([origin.make(1, 'k'), origin.make(2, 'k')], 0).key).toBe('')
    expect(join([origin.make(1, 'k')], 0)).toMatchObject({ key: '', id: 'r4' })
  })

  test('a split of joined parts settles them when all of it is settled', () => {
    const origin = new RecordingOrigin(skip())
    const [a, b] = join([origin.make(1), origin.make(2)], 0).split(['a', 'b']) as [Delivery<string>, Delivery<string>]
    expect(a.decide(error, 1)).toBe('skip')
    a.ack()
    expect(origin.acks).toEqual([])
    b.ack()
    expect(origin.acks).toEqual([0, 1])
  })
})
