/** The only tie to ix's class: a stage is an AsyncIterableX of deliveries that also hands them over in arrays. */
import { AsyncIterableX } from 'ix/asynciterable'
import type { CommitTimestamp, Delivery } from './types.ts'

/**
 * A watermark in the stream: every change committed before `timestamp` came earlier in this stream.
 * An operator passes it on only after everything that came before it. User callbacks never see marks.
 */
export interface Mark {
  readonly isMark: true
  readonly timestamp: CommitTimestamp
}

export type Item<T> = Delivery<T> | Mark
/** What travels between stages: whatever was ready, never empty, never held back to be filled. */
export type Chunk<T> = readonly Item<T>[]

export type Operator<T, U> = (source: AsyncIterable<Item<T>>) => Stage<U>

export function mark(timestamp: CommitTimestamp): Mark {
  return { isMark: true, timestamp }
}

export function isMark(item: Delivery<unknown> | Mark): item is Mark {
  return (item as Mark).isMark === true
}

/**
 * A stream of deliveries. Iterate it item by item (`for await`), by arrays (`chunks()`), or compose it with `pipe()`.
 * Nothing is read before the first `next()`; ending the iteration early closes what it reads from.
 */
export class Stage<T> extends AsyncIterableX<Item<T>> {
  readonly #open: (signal: AbortSignal) => AsyncIterable<Chunk<T>>

  /** ix answers `instanceof` by a tag that all of its streams have; here it means what it says. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    return Function.prototype[Symbol.hasInstance].call(Stage, value)
  }

  constructor(open: (signal: AbortSignal) => AsyncIterable<Chunk<T>>) {
    super()
    this.#open = open
  }

  /** The same stream in arrays: one hand-over for all that is ready, which is what makes stages cheap. */
  chunks(signal: AbortSignal = neverAborted): AsyncIterable<Chunk<T>> {
    return this.#open(signal)
  }

  override async *[Symbol.asyncIterator](signal: AbortSignal = neverAborted): AsyncGenerator<Item<T>, void, undefined> {
    for await (const chunk of this.#open(signal)) {
      // Not `yield*`, which goes through one more iterator and costs half as much again per item.
      for (const item of chunk) yield item
    }
  }

  override pipe(): this
  override pipe<A>(a: Operator<T, A>): Stage<A>
  override pipe<A, B>(a: Operator<T, A>, b: Operator<A, B>): Stage<B>
  override pipe<A, B, C>(a: Operator<T, A>, b: Operator<A, B>, c: Operator<B, C>): Stage<C>
  override pipe<A, B, C, D>(a: Operator<T, A>, b: Operator<A, B>, c: Operator<B, C>, d: Operator<C, D>): Stage<D>
  override pipe<A, B, C, D, E>(
    a: Operator<T, A>,
    b: Operator<A, B>,
    c: Operator<B, C>,
    d: Operator<C, D>,
    e: Operator<D, E>,
  ): Stage<E>
  override pipe<A, B, C, D, E, F>(
    a: Operator<T, A>,
    b: Operator<A, B>,
    c: Operator<B, C>,
    d: Operator<C, D>,
    e: Operator<D, E>,
    f: Operator<E, F>,
  ): Stage<F>
  override pipe(...operators: ((source: never) => unknown)[]): unknown {
    let current: unknown = this
    for (const apply of operators) current = apply(AsyncIterableX.as(current as AsyncIterable<unknown>) as never)
    return current
  }
}

/** Makes a stream of a function that yields arrays of items. It is called anew for every iteration. */
export function stage<T>(open: (signal: AbortSignal) => AsyncIterable<Chunk<T>>): Stage<T> {
  return new Stage(open)
}

/**
 * Makes an operator of a generator over single items: the simple way to write one.
 * @example
 * const everySecond = <T>() => operator<T, T>(async function* (source) {
 *   let n = 0
 *   for await (const item of source) {
 *     if (isMark(item) || n++ % 2 === 0) yield item
 *     else item.ack() // what an operator drops, it settles
 *   }
 * })
 */
export function operator<T, U>(
  transform: (source: AsyncIterable<Item<T>>, signal: AbortSignal) => AsyncIterable<Item<U>>,
): Operator<T, U> {
  return (source) =>
    new Stage(async function* (signal) {
      const items = { [Symbol.asyncIterator]: () => asStage(source)[Symbol.asyncIterator](signal) }
      for await (const item of transform(items, signal)) yield [item]
    })
}

/** Makes an operator of a generator over arrays of items: the fast way, for what every record passes through. */
export function chunkOperator<T, U>(
  transform: (source: AsyncIterable<Chunk<T>>, signal: AbortSignal) => AsyncIterable<Chunk<U>>,
): Operator<T, U> {
  return (source) => new Stage((signal) => transform(asStage(source).chunks(signal), signal))
}

/** A stage of any stream of items: in arrays, ended by a signal. The stream itself if it is a stage already. */
export function asStage<T>(source: AsyncIterable<Item<T>>): Stage<T> {
  if (source instanceof Stage) return source as Stage<T>
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

const neverAborted: AbortSignal = new AbortController().signal
