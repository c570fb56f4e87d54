/** Gathers values into arrays. */
import { attemptAgain } from '../core/attempt.ts'
import { type Clock, systemClock, type Timer } from '../core/clock.ts'
import { join } from '../core/delivery.ts'
import { ConfigError } from '../core/errors.ts'
import { callback, durationMs, knownKeys, positiveInteger } from '../core/options.ts'
import { type Item, isMark, type Mark, type Operator } from '../core/stage.ts'
import type { Delivery } from '../core/types.ts'
import { type Holder, holdingOperator, laterMark, type Outlet } from './holding-operator.ts'

export interface BatchOptions<T = never> {
  /**
   * Most values in one batch.
   * @default 100
   */
  readonly maxItems?: number
  /**
   * Most bytes in one batch, as `sizeOf` counts them; a larger value makes a batch of its own.
   * @default no limit
   */
  readonly maxBytes?: number
  /**
   * How long the first value of a batch waits for others. A source may wait for settlements before it goes on, so a
   * batch must not wait for ever.
   * @default 1000
   */
  readonly maxWaitMs?: number
  /** The size of a value in bytes; needed for `maxBytes`. */
  readonly sizeOf?: (value: T) => number
  /**
   * What `maxWaitMs` and the waits between retries are measured with.
   * @default the machine's clock
   */
  readonly clock?: Clock
}

/**
 * Passes on arrays of values; settling a batch settles all that is in it.
 * Keeps order. A batch leaves when it is full, when its first value has waited long enough, and at the end of the
 * source. Holds one batch and what leaves next. A throwing `sizeOf` is tried again or given up as the error policy
 * says. When the stream stops early or its source fails, the values of an unfinished batch stay unsettled.
 * @example changes.pipe(batch({ maxItems: 500, maxWaitMs: 200 }))
 */
export function batch<T>(options: BatchOptions<T> = {}): Operator<T, T[]> {
  knownKeys('batch', options, ['maxItems', 'maxBytes', 'maxWaitMs', 'sizeOf', 'clock'])
  const { maxItems = 100, maxBytes, maxWaitMs = 1000, sizeOf, clock = systemClock } = options
  positiveInteger('batch', 'maxItems', maxItems)
  durationMs('batch', 'maxWaitMs', maxWaitMs)
  if (maxBytes !== undefined) positiveInteger('batch', 'maxBytes', maxBytes)
  if (sizeOf !== undefined) callback('batch', 'sizeOf', sizeOf)
  else if (maxBytes !== undefined) {
    throw new ConfigError('batch: maxBytes needs sizeOf', { hint: 'Add sizeOf: (value) => its size in bytes.' })
  }
  const limits: BatchLimits = { maxItems, maxBytes: maxBytes ?? Number.POSITIVE_INFINITY, maxWaitMs }
  return holdingOperator((outlet) => new BatchRun(limits, sizeOf, clock, outlet))
}

interface BatchLimits {
  readonly maxItems: number
  readonly maxBytes: number
  readonly maxWaitMs: number
}

class BatchRun<T> implements Holder<T> {
  readonly #limits: BatchLimits
  readonly #sizeOf: ((value: T) => number) | undefined
  readonly #clock: Clock
  readonly #outlet: Outlet<T[]>

  #parts: Delivery<T>[] = []
  #bytes = 0
  #timer: Timer | undefined
  /** Came while the batch was open, and leaves right after it. */
  #markAfter: Mark | undefined

  constructor(limits: BatchLimits, sizeOf: ((value: T) => number) | undefined, clock: Clock, outlet: Outlet<T[]>) {
    this.#limits = limits
    this.#sizeOf = sizeOf && ((value) => checkedSize(sizeOf(value)))
    this.#clock = clock
    this.#outlet = outlet
  }

  hasRoom(): boolean {
    return this.#outlet.size === 0
  }

  add(item: Item<T>): Promise<void> | undefined {
    if (isMark(item)) this.#addMark(item)
    else if (this.#sizeOf === undefined) this.#put(item, 0)
    else return this.#measureAndPut(item, this.#sizeOf)
    return undefined
  }

  sourceEnded(): void {
    this.#flush()
    this.#outlet.end()
  }

  close(): Promise<void> {
    this.#timer?.cancel()
    return Promise.resolve()
  }

  #addMark(mark: Mark): void {
    if (this.#parts.length === 0) this.#outlet.emit(mark)
    else this.#markAfter = laterMark(this.#markAfter, mark)
  }

  #measureAndPut(delivery: Delivery<T>, sizeOf: (value: T) => number): Promise<void> | undefined {
    let bytes: number
    try {
      bytes = sizeOf(delivery.value)
    } catch (thrown) {
      return attemptAgain('batch', delivery, sizeOf, thrown, this.#outlet.signal, this.#clock).then((attempted) => {
        if (attempted !== undefined) this.#put(delivery, attempted.result)
      })
    }
    this.#put(delivery, bytes)
    return undefined
  }

  #put(delivery: Delivery<T>, bytes: number): void {
    const { maxItems, maxBytes, maxWaitMs } = this.#limits
    if (this.#bytes + bytes > maxBytes) this.#flush()
    this.#parts.push(delivery)
    this.#bytes += bytes
    if (this.#parts.length >= maxItems || this.#bytes >= maxBytes) this.#flush()
    else this.#timer ??= this.#clock.after(maxWaitMs, () => this.#flush())
  }

  #flush(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    const parts = this.#parts
    if (!isNotEmpty(parts)) return
    this.#parts = []
    this.#bytes = 0
    this.#outlet.emit(
      join(
        parts,
        parts.map((part) => part.value),
      ),
    )
    if (this.#markAfter === undefined) return
    this.#outlet.emit(this.#markAfter)
    this.#markAfter = undefined
  }
}

function isNotEmpty<E>(list: E[]): list is [E, ...E[]] {
  return list.length > 0
}

function checkedSize(bytes: number): number {
  if (typeof bytes === 'number' && bytes >= 0) return bytes
  throw new RangeError('sizeOf must return a number of bytes, zero or more')
}
