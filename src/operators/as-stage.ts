/** Makes a stage of any stream of items, so that operators have one kind of source: in arrays, ended by a signal. */
import { type Chunk, type Item, Stage } from '../core/stage.ts'

/** The stream itself if it is a stage already. */
export function asStage<T>(source: AsyncIterable<Item<T>>): Stage<T> {
  // Not `instanceof`: ix answers it by a tag that all of its streams have.
  if (typeof (source as Partial<Stage<T>>).chunks === 'function') return source as Stage<T>
  return new Stage((signal) => readForeign(source, signal))
}

/**
 * Single items of a source that may not know about signals: an abort ends a pending read at once, and the source is
 * closed without waiting for an answer that perhaps never comes.
 */
async function* readForeign<T>(
  source: AsyncIterable<Item<T>>,
  signal: AbortSignal,
): AsyncGenerator<Chunk<T>, void, undefined> {
  signal.throwIfAborted()
  const items = (source as SignalledIterable<T>)[Symbol.asyncIterator](signal)
  let state: 'between reads' | 'reading' | 'exhausted' = 'between reads'
  let endRead: (reason: unknown) => void = () => undefined
  const onAbort = (): void => endRead(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    for (;;) {
      signal.throwIfAborted()
      state = 'reading'
      const next = await new Promise<IteratorResult<Item<T>>>((resolve, reject) => {
        endRead = reject
        items.next().then(resolve, (error: unknown) => {
          state = 'exhausted'
          reject(error)
        })
      })
      state = next.done ? 'exhausted' : 'between reads'
      if (next.done) return
      yield [next.value]
    }
  } finally {
    signal.removeEventListener('abort', onAbort)
    if (state === 'reading') items.return?.()?.catch(() => undefined)
    if (state === 'between reads') await items.return?.()
  }
}

/** As ix has it; other sources ignore the argument. */
interface SignalledIterable<T> {
  [Symbol.asyncIterator](signal: AbortSignal): AsyncIterator<Item<T>>
}
