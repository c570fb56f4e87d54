import { describe, expect, expectTypeOf, test } from 'vitest'
import type { Operator } from '../../src/core/stage.ts'
import { filter } from '../../src/operators/index.ts'
import { operatorLaws } from '../support/operator-laws.ts'
import { collect, RecordingSource } from '../support/recording-origin.ts'

operatorLaws('filter', {
  operator: 'filter',
  make: (probe, clock) =>
    filter(
      (value) => {
        probe(value)
        return value % 2 === 0
      },
      { clock },
    ),
  becomes: (value) => (value % 2 === 0 ? [value] : []),
  read: (output) => [output as number],
  maxReadAhead: 1,
  refused: [{ option: 'callback', call: () => filter('even' as never) }],
})

describe('filter', () => {
  test('acks what it drops at once and passes the others on unsettled', async () => {
    const { stage, origin } = new RecordingSource({ values: [1, 2, 3, 4], chunkSize: 4 })
    const kept = await collect(stage.pipe(filter((value) => value > 2)))
    expect(origin.acks).toEqual([0, 1])
    expect(kept.map((item) => 'value' in item && item.value)).toEqual([3, 4])
  })

  test('narrows the type with a type guard', () => {
    const isText = (value: string | number): value is string => typeof value === 'string'
    expectTypeOf(filter(isText)).toEqualTypeOf<Operator<string | number, string>>()
  })
})
