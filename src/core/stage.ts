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
      for await (const item of transform(itemsOf(source, signal), signal)) yield [item]
    })
}

/** Makes an operator of a generator over arrays of items: the fast way, for what every record passes through. */
export function chunkOperator<T, U>(
  transform: (source: AsyncIterable<Chunk<T>>, signal: AbortSignal) => AsyncIterable<Chunk<U>>,
): Operator<T, U> {
  return (source) => new Stage((signal) => transform(chunksOf(source, signal), signal))
}

/** The items of any stream in arrays; single-item arrays if it is not one of ours. */
export function chunksOf<T>(source: AsyncIterable<Item<T>>, signal: AbortSignal): AsyncIterable<Chunk<T>> {
  if (source instanceof Stage) return (source as Stage<T>).chunks(signal)
  return (async function* () {
    for await (const item of source) yield [item]
  })()
}

function itemsOf<T>(source: AsyncIterable<Item<T>>, signal: AbortSignal): AsyncIterable<Item<T>> {
  if (!(source instanceof Stage)) return source
  return { [Symbol.asyncIterator]: () => (source as Stage<T>)[Symbol.asyncIterator](signal) }
}

const neverAborted: AbortSignal = new AbortController().signal
