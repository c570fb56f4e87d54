import { describe, expect, test } from 'vitest'
import { skip } from '../../src/core/error-policy.ts'
import { isMark } from '../../src/core/stage.ts'
import { flatMap } from '../../src/operators/index.ts'
import { operatorLaws } from '../support/operator-laws.ts'
import { collect, drain, RecordingSource } from '../support/recording-origin.ts'

operatorLaws('flatMap', {
  operator: 'flatMap',
  make: (probe, clock) =>
    flatMap(
      (value) => {
        probe(value)
        return Array.from({ length: value % 3 }, () => value)
      },
      { clock },
    ),
  becomes: (value) => Array.from({ length: value % 3 }, () => value),
  read: (output) => [output as number],
  maxReadAhead: 2,
  refused: [{ option: 'callback', call: () => flatMap({} as never) }],
})

describe('flatMap', () => {
  test('settles a delivery when all of its parts are settled', async () => {
    const { stage, origin } = new RecordingSource({ values: ['ab'] })
    const parts = await collect(stage.pipe(flatMap((value) => value)))
    expect(parts.map((part) => !isMark(part) && [part.value, part.id])).toEqual([
      ['a', 'r0.0'],
      ['b', 'r0.1'],
    ])
    for (const part of parts.reverse()) {
      expect(origin.acks).toEqual([])
      if (!isMark(part)) part.ack()
    }
    expect(origin.acks).toEqual([0])
  })

  test('acks a delivery without parts', async () => {
    const { stage, origin } = new RecordingSource({ values: [1] })
    expect(await collect(stage.pipe(flatMap(() => [])))).toEqual([])
    expect(origin.acks).toEqual([0])
  })

  test('takes an iterable that throws halfway for a failing callback', async () => {
    const { stage, origin } = new RecordingSource({ values: [1, 2], policy: skip() })
    const half = flatMap<number, number>(function* (value) {
      yield value
      if (value === 1) throw new Error('half')
    })
    expect(await drain(stage.pipe(half))).toEqual([2])
    expect(origin.nacks.map(({ id }) => id)).toEqual(['r0'])
  })

  test('splits into more parts than a call can have arguments', async () => {
    const { stage, origin } = new RecordingSource({ values: [200_000] })
    const parts = await drain(stage.pipe(flatMap((length) => Array.from({ length }, () => 0))))
    expect(parts).toHaveLength(200_000)
    expect(origin.acks).toEqual([0])
  })
})
