import { describe, expect, test } from 'vitest'
import type { Item } from '../../src/core/stage.ts'
import { asStage } from '../../src/core/stage.ts'
import { settled } from '../support/recording-clock.ts'
import { drain, RecordingOrigin, RecordingSource } from '../support/recording-origin.ts'

/** A source that knows nothing of signals: three values, then silence, an error or the end. */
function foreign(after: 'end' | 'silence' | Error): AsyncIterable<Item<number>> & { returns: number; nexts: number } {
  const origin = new RecordingOrigin()
  const source = {
    returns: 0,
    nexts: 0,
    [Symbol.asyncIterator]: (): AsyncIterator<Item<number>> => ({
      async next() {
        source.nexts++
        if (origin.made < 3) return { done: false, value: origin.make(origin.made) }
        if (after === 'silence') await new Promise(() => undefined)
        if (after !== 'end') throw after
        return { done: true, value: undefined }
      },
      async return() {
        source.returns++
        return { done: true, value: undefined }
      },
    }),
  }
  return source
}

describe('asStage', () => {
  test('leaves a stage as it is', () => {
    const { stage } = new RecordingSource({ values: [1] })
    expect(asStage(stage)).toBe(stage)
  })

  test('reads a foreign source to its end and does not close what has ended', async () => {
    const source = foreign('end')
    expect(await drain(asStage(source))).toEqual([0, 1, 2])
    expect(source.returns).toBe(0)
  })

  test('lets the error of a foreign source through', async () => {
    const error = new Error('broken')
    const source = foreign(error)
    await expect(drain(asStage(source))).rejects.toBe(error)
    expect(source.returns).toBe(0)
  })

  test('closes a foreign source on an early stop', async () => {
    const source = foreign('end')
    for await (const _ of asStage(source)) break
    expect(source.returns).toBe(1)
  })

  test('an abort ends a pending read with its reason and closes the source', async () => {
    const source = foreign('silence')
    const controller = new AbortController()
    const reason = new Error('enough')
    const reading = (async () => {
      for await (const _ of asStage(source).chunks(controller.signal)) await settled()
    })()
    const outcome = expect(reading).rejects.toBe(reason)
    while (source.nexts < 4) await settled()
    controller.abort(reason)
    await outcome
    expect(source.returns).toBe(1)
  })

  test('opens nothing with a signal that is aborted already', async () => {
    const source = foreign('end')
    const reason = new Error('too late')
    const chunks = asStage(source).chunks(AbortSignal.abort(reason))[Symbol.asyncIterator]()
    await expect(chunks.next()).rejects.toBe(reason)
    expect(source.returns).toBe(0)
  })
})
