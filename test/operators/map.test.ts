import { describe, expect, test } from 'vitest'
import { map } from '../../src/operators/index.ts'
import { operatorLaws } from '../support/operator-laws.ts'
import { collect, RecordingSource } from '../support/recording-origin.ts'

operatorLaws('map', {
  operator: 'map',
  make: (probe, clock) =>
    map(
      (value) => {
        probe(value)
        return value + 1000
      },
      { clock },
    ),
  becomes: (value) => [value + 1000],
  read: (output) => [output as number],
  maxReadAhead: 1,
  refused: [
    { option: 'callback', call: () => map(undefined as never) },
    { option: 'clok', call: () => map(String, { clok: 1 } as never) },
  ],
})

describe('map', () => {
  test('keeps key, time and id of the delivery', async () => {
    const { stage } = new RecordingSource({ values: [7], key: () => 'k' })
    const [item] = await collect(stage.pipe(map((value) => `v${value}`)))
    expect(item).toMatchObject({ value: 'v7', key: 'k', id: 'r0', timestamp: '2026-01-01T00:00:00.000000000Z' })
  })

  test('gives the callback the value and nothing else', async () => {
    const seen: unknown[][] = []
    const { stage } = new RecordingSource({ values: [7] })
    await collect(stage.pipe(map((...all: unknown[]) => seen.push(all))))
    expect(seen).toEqual([[7]])
  })
})
