/** Runs a callback for many values at a time. */
import { type Attempted, attempt } from '../core/attempt.ts'
import type { Clock } from '../core/clock.ts'
import { callback, knownKeys, oneOf, positiveInteger } from '../core/options.ts'
import { type Item, isMark, type Mark, type Operator } from '../core/stage.ts'
import type { Delivery } from '../core/types.ts'
import { type Holder, holdingOperator, laterMark, type Outlet } from './holding-operator.ts'

export interface ParMapOptions {
  /** Most callbacks at a time. */
  readonly concurrency: number
  /**
   * `key`: values of one key run one after the other and leave in order, different keys in parallel.
   * `source`: all run in parallel and leave in the order of the source.
   * `none`: all run in parallel and leave as they are ready.
   * @default 'key'
   */
  readonly order?: 'none' | 'key' | 'source'
  /**
   * What the waits between retries are measured with.
   * @default the machine's clock
   */
  readonly clock?: Clock
}

export interface ParMapContext {
  /** Aborted when the stream stops before its end. */
  readonly signal: AbortSignal
  /** Token of the partition the value came from; empty for sources without partitions. */
  readonly partition: string
  /** 1 at the first call for this value. */
  readonly attempt: number
}

/**
 * Passes on what `fn` returns or resolves to, with the same duty, running at most `concurrency` callbacks at a time.
 * Order is as `order` says. Holds at most twice `concurrency` values and reads no further while results are not taken.
 * A failing `fn` is tried again in place, so order holds, or given up as the error policy says. When the stream stops
 * early, the signal is aborted, running callbacks are waited for, and what is unfinished stays unsettled.
 * @example changes.pipe(parMap(async (change, { signal }) => enrich(change, signal), { concurrency: 32 }))
 */
export function parMap<T, U>(
  fn: (value: T, context: ParMapContext) => U | PromiseLike<U>,
  options: ParMapOptions,
): Operator<T, U> {
  callback('parMap', 'callback', fn)
  knownKeys('parMap', options ?? {}, ['concurrency', 'order', 'clock'])
  const { concurrency, order = 'key', clock } = options ?? {}
  positiveInteger('parMap', 'concurrency', concurrency)
  oneOf('parMap', 'order', ['none', 'key', 'source'], order)
  return holdingOperator((outlet) => new ParallelRun(fn, concurrency, order, clock, outlet))
}

/** One value at work. The jobs form a list in the order of the source; lanes and the waiting line run through it. */
interface Job<T, U> {
  readonly delivery: Delivery<T>
  previous: Job<T, U> | undefined
  next: Job<T, U> | undefined
  /** The job of the same key that may start when this one is done. */
  nextOfKey: Job<T, U> | undefined
  nextWaiting: Job<T, U> | undefined
  /** Leaves when this job and all before it have left. */
  markAfter: Mark | undefined
  isDone: boolean
  /** Undefined for what was given up. */
  output: Delivery<U> | undefined
}

class ParallelRun<T, U> implements Holder<T> {
  readonly #fn: (value: T, context: ParMapContext) => U | PromiseLike<U>
  readonly #concurrency: number
  readonly #order: 'none' | 'key' | 'source'
  readonly #clock: Clock | undefined
  readonly #outlet: Outlet<U>

  // All jobs that have not left, in the order of the source.
  #first: Job<T, U> | undefined
  #last: Job<T, U> | undefined
  #open = 0

  // Jobs that may start as soon as there is a free place, in the order in which they came to that.
  #firstWaiting: Job<T, U> | undefined
  #lastWaiting: Job<T, U> | undefined
  #running = 0

  // Callbacks that have not returned, also after the end of the iteration.
  #atWork = 0
  #onIdle: (() => void) | undefined

  readonly #lastOfKey = new Map<string, Job<T, U>>()
  #hasSourceEnded = false

  constructor(
    fn: (value: T, context: ParMapContext) => U | PromiseLike<U>,
    concurrency: number,
    order: 'none' | 'key' | 'source',
    clock: Clock | undefined,
    outlet: Outlet<U>,
  ) {
    this.#fn = fn
    this.#concurrency = concurrency
    this.#order = order
    this.#clock = clock
    this.#outlet = outlet
  }

  hasRoom(): boolean {
    return this.#open + this.#outlet.size < 2 * this.#concurrency
  }

  add(item: Item<T>): undefined {
    if (isMark(item)) this.#addMark(item)
    else this.#addJob(item)
  }

  sourceEnded(): void {
    this.#hasSourceEnded = true
    if (this.#open === 0) this.#outlet.end()
  }

  /** Callbacks have the outlet's signal. They are waited for, so that none goes on while the next run begins. */
  close(): Promise<void> {
    if (this.#atWork === 0) return Promise.resolve()
    return new Promise((resolve) => {
      this.#onIdle = resolve
    })
  }

  #addMark(mark: Mark): void {
    if (this.#last === undefined) this.#outlet.emit(mark)
    else this.#last.markAfter = laterMark(this.#last.markAfter, mark)
  }

  #addJob(delivery: Delivery<T>): void {
    const job: Job<T, U> = {
      delivery,
      previous: this.#last,
      next: undefined,
      nextOfKey: undefined,
      nextWaiting: undefined,
      markAfter: undefined,
      isDone: false,
      output: undefined,
    }
    if (this.#last === undefined) this.#first = job
    else this.#last.next = job
    this.#last = job
    this.#open++

    if (this.#order === 'key') {
      const before = this.#lastOfKey.get(delivery.key)
      this.#lastOfKey.set(delivery.key, job)
      if (before !== undefined) {
        before.nextOfKey = job
        return
      }
    }
    this.#queue(job)
    this.#startWaiting()
  }

  #queue(job: Job<T, U>): void {
    if (this.#lastWaiting === undefined) this.#firstWaiting = job
    else this.#lastWaiting.nextWaiting = job
    this.#lastWaiting = job
  }

  #startWaiting(): void {
    while (this.#firstWaiting !== undefined && this.#running < this.#concurrency) {
      const job = this.#firstWaiting
      this.#firstWaiting = job.nextWaiting
      if (this.#firstWaiting === undefined) this.#lastWaiting = undefined
      this.#running++
      const { signal } = this.#outlet
      const { partition } = job.delivery
      const work = (value: T, tries: number): U | PromiseLike<U> =>
        this.#fn(value, { signal, partition, attempt: tries })
      this.#atWork++
      attempt('parMap', job.delivery, work, signal, this.#clock).then(
        (attempted) => {
          this.#returned()
          this.#finish(job, attempted)
        },
        (error: unknown) => {
          this.#returned()
          this.#outlet.fail(error)
        },
      )
    }
  }

  #returned(): void {
    this.#atWork--
    if (this.#atWork === 0) this.#onIdle?.()
  }

  #finish(job: Job<T, U>, attempted: Attempted<U>): void {
    if (this.#outlet.signal.aborted) return
    this.#running--
    job.isDone = true
    if (attempted !== undefined) job.output = job.delivery.derive(attempted.result)
    if (this.#order === 'key') this.#freeKey(job)
    if (this.#order === 'source') while (this.#first?.isDone) this.#leave(this.#first)
    else this.#leave(job)
    this.#startWaiting()
    if (this.#hasSourceEnded && this.#open === 0) this.#outlet.end()
    else this.#outlet.roomChanged()
  }

  #freeKey(job: Job<T, U>): void {
    if (job.nextOfKey === undefined) this.#lastOfKey.delete(job.delivery.key)
    else this.#queue(job.nextOfKey)
  }

  #leave(job: Job<T, U>): void {
    const { previous, next } = job
    if (previous === undefined) this.#first = next
    else previous.next = next
    if (next === undefined) this.#last = previous
    else next.previous = previous
    this.#open--

    if (job.output !== undefined) this.#outlet.emit(job.output)
    if (job.markAfter === undefined) return
    if (previous === undefined) this.#outlet.emit(job.markAfter)
    else previous.markAfter = laterMark(previous.markAfter, job.markAfter)
  }
}
