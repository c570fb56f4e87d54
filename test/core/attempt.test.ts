import { describe, expect, test } from 'vitest'
import { attempt, attemptAgain } from '../../src/core/attempt.ts'
import { retry, skip } from '../../src/core/error-policy.ts'
import { OperatorError } from '../../src/core/errors.ts'
import { RecordingClock } from '../support/recording-clock.ts'
import { RecordingOrigin } from '../support/recording-origin.ts'

const never = new AbortController().signal
const cause = new Error('failed')

function failing(times: number): { calls: number; work: (value: number) => number } {
  const state = {
    calls: 0,
    work: (value: number): number => {
      if (state.calls++ < times) throw cause
      return value * 2
    },
  }
  return state
}

describe('attempt', () => {
  test('gives the result of work that succeeds, sync or async', async () => {
    const origin = new RecordingOrigin()
    expect(await attempt('op', origin.make(2), (value) => value * 2, never)).toEqual({ result: 4 })
    expect(await attempt('op', origin.make(2), async (value) => value * 2, never)).toEqual({ result: 4 })
    expect(origin.settlements.size).toBe(0)
  })

  test('tries again after the wait that the policy asks for', async () => {
    const clock = new RecordingClock()
    const origin = new RecordingOrigin({ decide: (_, { attempt }) => ({ retryInMs: attempt * 100 }) })
    const { work } = failing(3)
    expect(await clock.runUntil(attempt('op', origin.make(2), work, never, clock))).toEqual({ result: 4 })
    expect(clock.now()).toBe(600)
  })

  test('nacks what is given up, with the count of tries', async () => {
    const clock = new RecordingClock()
    const origin = new RecordingOrigin(retry({ attempts: 3 }).thenSkip())
    const { work } = failing(99)
    expect(await clock.runUntil(attempt('op', origin.make(2), work, never, clock))).toBeUndefined()
    expect(origin.nacks).toHaveLength(1)
    expect(origin.nacks[0]).toMatchObject({ id: 'r0', value: 2, attempt: 3, decision: 'skip' })
    expect(origin.nacks[0]?.error).toEqual(new OperatorError('op', cause))
  })

  test('P3: what stops the run is nacked and thrown, so that nothing behind it is worked on', async () => {
    const clock = new RecordingClock()
    const origin = new RecordingOrigin(retry({ attempts: 2 }))
    const { work } = failing(99)
    const failed = clock.runUntil(attempt('op', origin.make(2), work, never, clock))
    await expect(failed).rejects.toEqual(new OperatorError('op', cause))
    expect(origin.nacks).toMatchObject([{ attempt: 2, decision: 'stop' }])
  })

  test('an abort ends the wait for the next try and settles nothing', async () => {
    const clock = new RecordingClock()
    const controller = new AbortController()
    const reason = new Error('enough')
    const origin = new RecordingOrigin(retry())
    const outcome = expect(attempt('op', origin.make(2), failing(9).work, controller.signal, clock)).rejects.toBe(
      reason,
    )
    await clock.advance(0)
    expect(clock.waiting).toBe(1)
    controller.abort(reason)
    await outcome
    expect(clock.waiting).toBe(0)
    expect(origin.settlements.size).toBe(0)
  })

  test('work that fails because of an abort is not held against its value', async () => {
    const reason = new Error('enough')
    const origin = new RecordingOrigin(skip())
    const signal = AbortSignal.abort(reason)
    await expect(attempt('op', origin.make(2), failing(9).work, signal)).rejects.toBe(reason)
    expect(origin.settlements.size).toBe(0)
  })
})

describe('attemptAgain', () => {
  test('counts the failure that it was called with', async () => {
    const clock = new RecordingClock()
    const origin = new RecordingOrigin(retry({ attempts: 3 }).thenSkip())
    const state = failing(99)
    expect(await clock.runUntil(attemptAgain('op', origin.make(2), state.work, cause, never, clock))).toBeUndefined()
    expect(state.calls).toBe(2)
    expect(origin.nacks[0]).toMatchObject({ attempt: 3 })
  })

  test('gives the result once the work succeeds', async () => {
    const clock = new RecordingClock()
    const origin = new RecordingOrigin(retry())
    const { work } = failing(1)
    expect(await clock.runUntil(attemptAgain('op', origin.make(2), work, cause, never, clock))).toEqual({ result: 4 })
  })

  test('P3: a nack that stops the run ends the stream, so that nothing behind it is worked on', async () => {
    const controller = new AbortController()
    const reason = new Error('stopped')
    const origin = new RecordingOrigin(skip())
    const delivery = origin.make(2)
    const nacked = origin.nacked.bind(origin)
    origin.nacked = (sequence, failure) => {
      nacked(sequence, failure)
      controller.abort(reason)
    }
    await expect(attemptAgain('op', delivery, () => 1, cause, controller.signal)).rejects.toBe(reason)
    expect(origin.nacks).toHaveLength(1)
  })
})
