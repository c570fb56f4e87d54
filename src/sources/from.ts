/** Makes a source of anything that can be iterated, so that the operators serve without Spanner too. */
import type { Timer } from '../core/clock.ts'
import { type Failure, type Origin, SourceDelivery } from '../core/delivery.ts'
import { ConfigError, describeThrown } from '../core/errors.ts'
import { reportForgotten } from '../core/forgotten-deliveries.ts'
import { type BudgetAccount, InFlightBudget } from '../core/in-flight-budget.ts'
import { InFlightTracker } from '../core/in-flight-tracker.ts'
import { abortable } from '../core/signals.ts'
import { type Chunk, Stage } from '../core/stage.ts'
import type { CommitTimestamp, Decision } from '../core/types.ts'
import { timestampFromMs } from '../model/commit-timestamp.ts'
import { aloneContext, Source, type SourceContext, type SourceRun, type SourceStatus } from './source.ts'

export interface FromOptions<T> {
  /**
   * The ordering key of a value.
   * @default one key for each value, so that nothing is held in order
   */
  readonly key?: (value: T, index: number) => string
  /** @default the time of reading */
  readonly timestamp?: (value: T, index: number) => CommitTimestamp
  /** @default the position: '0', '1', ... */
  readonly id?: (value: T, index: number) => string
}

/**
 * A source of the values of any iterable or async iterable.
 * Order: as given. Memory: at most the run's in-flight limit is read ahead of settlement. It keeps no progress: a
 * second run begins at the beginning. A drain does not wait for an async iterable that is asked for its next value; what
 * that would have been is not delivered.
 * @example for await (const item of from([1, 2, 3]).pipe(map((n) => n * 2))) if (!isMark(item)) item.ack()
 */
export function from<T>(values: Iterable<T> | AsyncIterable<T>, options: FromOptions<T> = {}): Source<T> {
  const isIterable =
    typeof values === 'object' && values !== null && (Symbol.iterator in values || Symbol.asyncIterator in values)
  if (!isIterable) throw new ConfigError('from: takes an iterable or an async iterable')
  return new Source(
    'from',
    (context) => new IterableRun(values, options, context),
    () => ({ ...aloneContext('from'), limits: UNLIMITED }),
  )
}

class IterableRun<T> implements SourceRun<T>, Origin {
  readonly stream: Stage<T>
  readonly #values: Iterable<T> | AsyncIterable<T>
  readonly #options: FromOptions<T>
  readonly #context: SourceContext
  readonly #tracker = new InFlightTracker()
  readonly #budget: InFlightBudget
  readonly #account: BudgetAccount
  readonly #stop = new AbortController()
  readonly #failed = new AbortController()
  #settleCheck: Timer | undefined
  #reportedId: string | undefined
  #delivered = 0
  #settled = 0
  #skipped = 0

  constructor(values: Iterable<T> | AsyncIterable<T>, options: FromOptions<T>, context: SourceContext) {
    this.#values = values
    this.#options = options
    this.#context = context
    this.#budget = new InFlightBudget(context.limits)
    this.#account = this.#budget.open()
    this.stream = new Stage((signal) => this.#chunks(signal))
  }

  get failed(): AbortSignal {
    return this.#failed.signal
  }

  drain(): void {
    this.#stop.abort(DRAINED)
  }

  close(): Promise<void> {
    this.#stop.abort(DRAINED)
    this.#settleCheck?.cancel()
    return Promise.resolve()
  }

  status(): SourceStatus {
    return {
      standbyFor: undefined,
      delivered: this.#delivered,
      settled: this.#settled,
      skipped: this.#skipped,
      inFlight: this.#budget.count,
      inFlightBytes: 0,
      lowWatermark: this.#tracker.watermark,
      partitions: [],
      finishedPartitions: 0,
      retentionUsed: undefined,
      gaps: 0,
      rereads: 0,
    }
  }

  acked(sequence: number): void {
    if (this.#tracker.settle(sequence) === undefined) return
    this.#settled++
    this.#account.give(0)
  }

  nacked(
    sequence: number,
    { id, value, error, attempt, decision = this.decide(error, value, attempt) }: Failure,
  ): void {
    if (decision === 'skip') {
      this.#skipped++
      this.#context.logger.warn('a value is skipped after it failed', { id, error: describeThrown(error) })
      this.acked(sequence)
    } else {
      this.#fail(error)
    }
  }

  decide(error: unknown, value: unknown, attempt: number): Decision {
    return this.#context.policy.decide(error, { value, partition: '', attempt })
  }

  #fail(error: unknown): void {
    this.#failed.abort(error)
    this.#stop.abort(error)
  }

  /** Values cannot be read again, so `'retry'` reports like `'warn'`. */
  #watchForgotten(): void {
    const { clock, settleTimeoutMs } = this.#context
    if (settleTimeoutMs === 0) return
    this.#settleCheck = clock.after(Math.min(settleTimeoutMs, 1000), () => {
      try {
        this.#reportedId = reportForgotten(this.#tracker, '', this.#reportedId, this.#context) ?? this.#reportedId
        this.#watchForgotten()
      } catch (error) {
        this.#fail(error)
      }
    })
  }

  async *#chunks(signal: AbortSignal): AsyncGenerator<Chunk<T>, void, undefined> {
    const forward = (): void => this.#stop.abort(signal.reason)
    if (signal.aborted) forward()
    signal.addEventListener('abort', forward, { once: true })
    this.#watchForgotten()
    try {
      if (Symbol.asyncIterator in this.#values) yield* this.#fromAsync(this.#values)
      else yield* this.#fromSync(this.#values)
    } catch (error) {
      if (error !== DRAINED) throw error
    } finally {
      signal.removeEventListener('abort', forward)
    }
    // A value that failed after the last one was read still fails whoever iterates.
    this.#failed.signal.throwIfAborted()
  }

  // Both take room first and a value then: a value that is taken and not handed out would be lost at a drain.

  async *#fromSync(values: Iterable<T>): AsyncGenerator<Chunk<T>, void, undefined> {
    const iterator = values[Symbol.iterator]()
    let chunk: SourceDelivery<T>[] = []
    let isExhausted = false
    try {
      for (;;) {
        if (!this.#account.tryTake(0)) {
          if (chunk.length > 0) yield chunk
          chunk = []
          await this.#account.take(0, this.#stop.signal)
        }
        const { done, value } = iterator.next()
        isExhausted = done === true
        if (isExhausted) break
        chunk.push(this.#deliver(value))
        if (chunk.length < CHUNK_ITEMS) continue
        yield chunk
        chunk = []
        this.#stop.signal.throwIfAborted()
      }
      this.#account.give(0)
      if (chunk.length > 0) yield chunk
    } finally {
      if (!isExhausted) iterator.return?.()
    }
  }

  async *#fromAsync(values: AsyncIterable<T>): AsyncGenerator<Chunk<T>, void, undefined> {
    const iterator = values[Symbol.asyncIterator]()
    let isExhausted = false
    try {
      for (;;) {
        await this.#account.take(0, this.#stop.signal)
        const { done, value } = await abortable(iterator.next(), this.#stop.signal)
        isExhausted = done === true
        if (isExhausted) break
        yield [this.#deliver(value)]
        this.#stop.signal.throwIfAborted()
      }
      this.#account.give(0)
    } finally {
      if (!isExhausted) await this.#closeAsync(iterator)
    }
  }

  async #closeAsync(iterator: AsyncIterator<T>): Promise<void> {
    const returned = Promise.resolve(iterator.return?.())
    // After an abort it may hang in next(), and would answer return() only after that: then it is not waited for.
    if (this.#stop.signal.aborted) returned.catch(() => undefined)
    else await returned
  }

  #deliver(value: T): SourceDelivery<T> {
    const index = this.#delivered++
    const { key, timestamp, id } = this.#options
    const time = timestamp?.(value, index) ?? timestampFromMs(this.#context.clock.now())
    const name = id?.(value, index) ?? String(index)
    const sequence = this.#tracker.enter(time, name, this.#context.clock.now())
    return new SourceDelivery(value, key?.(value, index) ?? name, time, name, this, sequence)
  }
}

const DRAINED = new Error('reading was drained')
const CHUNK_ITEMS = 64
const UNLIMITED = { maxInFlight: Number.MAX_SAFE_INTEGER, maxInFlightBytes: Number.MAX_SAFE_INTEGER }
