/** What map, filter, tap and flatMap share: one plain callback per value, under the error policy. */
import { type Attempted, attemptAgain } from '../core/attempt.ts'
import type { Clock } from '../core/clock.ts'
import { callback, knownKeys } from '../core/options.ts'
import { type Chunk, chunkOperator, type Item, isMark, type Operator } from '../core/stage.ts'
import type { Delivery } from '../core/types.ts'

/** Options of the operators that call back without waiting. */
export interface CallbackOptions {
  /**
   * What the waits between retries are measured with.
   * @default the machine's clock
   */
  readonly clock?: Clock
}

/** Calls `work` for each value and lets `put` say what follows from its result: what leaves, or a settlement. */
export function callbackOperator<T, R, U>(
  name: string,
  work: (value: T) => R,
  put: (delivery: Delivery<T>, result: R, out: Item<U>[]) => void,
  options: CallbackOptions,
): Operator<T, U> {
  callback(name, 'callback', work)
  knownKeys(name, options, ['clock'])
  const { clock } = options
  return chunkOperator<T, U>((source, signal) => {
    const tryAgain = (delivery: Delivery<T>, thrown: unknown): Promise<Attempted<R>> =>
      attemptAgain(name, delivery, work, thrown, signal, clock)
    return new CallbackIteration(source[Symbol.asyncIterator](), work, put, tryAgain)
  })
}

/**
 * One iteration, to be read by one reader at a time. Written out, because an async generator costs twice as much for
 * each hand-over, and these are the operators that every record passes through.
 */
class CallbackIteration<T, R, U> implements AsyncIterableIterator<Chunk<U>, undefined> {
  readonly #source: AsyncIterator<Chunk<T>>
  readonly #work: (value: T) => R
  readonly #put: (delivery: Delivery<T>, result: R, out: Item<U>[]) => void
  readonly #tryAgain: (delivery: Delivery<T>, thrown: unknown) => Promise<Attempted<R>>

  #chunk: Chunk<T> = []
  #position = 0
  /** What the callback threw for the delivery at the position. */
  #failure: FailedCall<T> | undefined
  #hasEnded = false

  constructor(
    source: AsyncIterator<Chunk<T>>,
    work: (value: T) => R,
    put: (delivery: Delivery<T>, result: R, out: Item<U>[]) => void,
    tryAgain: (delivery: Delivery<T>, thrown: unknown) => Promise<Attempted<R>>,
  ) {
    this.#source = source
    this.#work = work
    this.#put = put
    this.#tryAgain = tryAgain
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  async next(): Promise<IteratorResult<Chunk<U>, undefined>> {
    while (!this.#hasEnded) {
      if (this.#position === this.#chunk.length) {
        const read = await this.#source.next()
        if (read.done) break
        this.#chunk = read.value
        this.#position = 0
      }
      const out: Item<U>[] = []
      try {
        if (this.#failure !== undefined) await this.#recover(this.#failure, out)
        this.#callForRest(out)
      } catch (error) {
        await this.return().catch(() => undefined) // the first failure is the one to report
        throw error
      }
      if (out.length > 0) return { done: false, value: out }
    }
    this.#hasEnded = true
    return ENDED
  }

  async return(): Promise<IteratorResult<Chunk<U>, undefined>> {
    this.#hasEnded = true
    await this.#source.return?.()
    return ENDED
  }

  /** Stops at a failure: what is done so far leaves before the waits of a retry. */
  #callForRest(out: Item<U>[]): void {
    const chunk = this.#chunk
    while (this.#position < chunk.length) {
      const item = chunk[this.#position]!
      if (isMark(item)) out.push(item)
      else {
        let result: R
        try {
          result = this.#work(item.value)
        } catch (thrown) {
          this.#failure = { delivery: item, thrown }
          return
        }
        this.#put(item, result, out)
      }
      this.#position++
    }
  }

  async #recover({ delivery, thrown }: FailedCall<T>, out: Item<U>[]): Promise<void> {
    this.#failure = undefined
    this.#position++
    const attempted = await this.#tryAgain(delivery, thrown)
    if (attempted !== undefined) this.#put(delivery, attempted.result, out)
  }
}

interface FailedCall<T> {
  readonly delivery: Delivery<T>
  readonly thrown: unknown
}

const ENDED: IteratorReturnResult<undefined> = { done: true, value: undefined }
