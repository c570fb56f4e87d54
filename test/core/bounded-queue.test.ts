import { describe, expect, test } from 'vitest'
import { BoundedQueue } from '../../src/core/bounded-queue.ts'
import { settled } from '../support/recording-clock.ts'

describe('BoundedQueue', () => {
  test('hands over everything that is there, in order', async () => {
    const queue = new BoundedQueue<number>(10)
    for (const value of [1, 2, 3]) expect(await queue.push(value)).toBe(true)
    expect(queue.size).toBe(3)
    expect(await queue.takeAll()).toEqual([1, 2, 3])
    expect(queue.size).toBe(0)
  })

  test('a reader waits for the first value', async () => {
    const queue = new BoundedQueue<number>(10)
    const taken = queue.takeAll()
    queue.offer(1)
    expect(await taken).toEqual([1])
  })

  test('P7: a full queue makes writers wait for the reader', async () => {
    const queue = new BoundedQueue<number>(2)
    const pushes = [1, 2, 3, 4, 5].map((value) => queue.push(value))
    await settled()
    expect(queue.size).toBe(2)
    const taken: (number[] | undefined)[] = []
    for (let batch = 0; batch < 3; batch++) {
      taken.push(await queue.takeAll())
      await settled()
      expect(queue.size).toBeLessThanOrEqual(2)
    }
    expect(taken).toEqual([[1, 2], [3, 4], [5]])
    expect(await Promise.all(pushes)).toEqual([true, true, true, true, true])
  })

  test('a value takes the place of the last one only if that is outdated, and never of one that was taken', async () => {
    const queue = new BoundedQueue<number>(10)
    const isEven = (last: number): boolean => last % 2 === 0
    for (const value of [2, 4, 1, 6, 8]) queue.offerInPlaceOf(isEven, value)
    expect(await queue.takeAll()).toEqual([1, 8])
    queue.offerInPlaceOf(isEven, 10)
    expect(await queue.takeAll()).toEqual([10])
    queue.offer(12)
    queue.close()
    expect(queue.offerInPlaceOf(isEven, 14)).toBe(false)
    expect(await queue.takeAll()).toEqual([12])
  })

  test('an offer is taken over capacity', async () => {
    const queue = new BoundedQueue<number>(1)
    expect([queue.offer(1), queue.offer(2)]).toEqual([true, true])
    expect(await queue.takeAll()).toEqual([1, 2])
  })

  test('drops what is no longer wanted, keeps the rest in order, and lets a writer in', async () => {
    const queue = new BoundedQueue<number>(4)
    for (const value of [1, 2, 3, 4]) queue.offer(value)
    const pushed = queue.push(5)
    queue.drop((value) => value % 2 === 0)
    expect(await pushed).toBe(true)
    expect(await queue.takeAll()).toEqual([1, 3, 5])
  })

  test('after a close the reader gets what is left and then the end', async () => {
    const queue = new BoundedQueue<number>(1)
    queue.offer(1)
    const late = queue.push(2)
    queue.close()
    expect(await late).toBe(false)
    expect(queue.offer(3)).toBe(false)
    expect(await queue.takeAll()).toEqual([1])
    expect(await queue.takeAll()).toBeUndefined()
    expect(await queue.takeAll()).toBeUndefined()
  })

  test('a close wakes a reader that waits', async () => {
    const queue = new BoundedQueue<number>(1)
    const taken = queue.takeAll()
    queue.close()
    expect(await taken).toBeUndefined()
  })

  test('a failure comes before anything that is queued, and stays', async () => {
    const queue = new BoundedQueue<number>(1)
    const error = new Error('first')
    queue.offer(1)
    const late = queue.push(2)
    queue.fail(error)
    queue.fail(new Error('second'))
    queue.close()
    expect(await late).toBe(false)
    await expect(queue.takeAll()).rejects.toBe(error)
    await expect(queue.takeAll()).rejects.toBe(error)
  })

  test('a failure wakes a reader that waits', async () => {
    const queue = new BoundedQueue<number>(1)
    const error = new Error('broken')
    const taken = expect(queue.takeAll()).rejects.toBe(error)
    queue.fail(error)
    await taken
  })
})
