import { describe, expect, test } from 'vitest'
import { stage } from '../../src/core/stage.ts'
import { tap } from '../../src/operators/index.ts'
import { operatorLaws } from '../support/operator-laws.ts'
import { collect, RecordingOrigin } from '../support/recording-origin.ts'

operatorLaws('tap', {
  operator: 'tap',
  make: (probe, clock) => tap(probe, { clock }),
  becomes: (value) => [value],
  read: (output) => [output as number],
  maxReadAhead: 1,
  refused: [{ option: 'callback', call: () => tap(undefined as never) }],
})

describe('tap', () => {
  test('passes the same delivery on', async () => {
    const delivery = new RecordingOrigin().make(1)
    const source = stage<number>(async function* () {
      yield [delivery]
    })
    const items = await collect(source.pipe(tap(() => undefined)))
    expect(items[0]).toBe(delivery)
    expect(delivery.isSettled).toBe(false)
  })
})
