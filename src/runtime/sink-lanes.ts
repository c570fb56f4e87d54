/** Writes deliveries to a sink in lanes: lanes in parallel, one lane never overtakes itself, retries in place. */
import { type Clock, sleep } from '../core/clock.ts'
import { describeThrown, SinkError } from '../core/errors.ts'
import type { Delivery, Sink } from '../core/types.ts'

interface Lane<T> {
  waiting: Delivery<T>[]
}

export interface SinkLanesOptions {
  readonly clock: Clock
  readonly signal: AbortSignal
  /** Called with the number of items that became durable. */
  readonly onWritten: (items: number) => void
  /** Called once, when writing has failed for good. */
  readonly onFailed: (error: unknown) => void
}

/**
 * The writing side of one sink. Takes whatever comes; `pending` tells the caller how much is waiting or being
 * written, and `below` waits for less. An item is acked when the sink has it durably.
 */
export class SinkLanes<T> {
  readonly #sink: Sink<T>
  readonly #options: SinkLanesOptions
  readonly #lanes = new Map<string, Lane<T>>()
  readonly #running = new Set<Promise<void>>()
  #pending = 0
  #failure: { readonly error: unknown } | undefined
  #waiters: { readonly limit: number; readonly resolve: () => void; readonly reject: (error: unknown) => void }[] = []

  constructor(sink: Sink<T>, options: SinkLanesOptions) {
    this.#sink = sink
    this.#options = options
  }

  get pending(): number {
    return this.#pending
  }

  /** Queues items, in order, and starts the lanes that were idle. */
  add(deliveries: readonly Delivery<T>[]): void {
    const idle: [string, Lane<T>][] = []
    for (const delivery of deliveries) {
      const name = this.#laneOf(delivery)
      let lane = this.#lanes.get(name)
      if (lane === undefined) {
        lane = { waiting: [] }
        this.#lanes.set(name, lane)
        idle.push([name, lane])
      }
      lane.waiting.push(delivery)
    }
    this.#pending += deliveries.length
    for (const [name, lane] of idle) {
      const running: Promise<void> = this.#run(name, lane).finally(() => this.#running.delete(running))
      this.#running.add(running)
    }
  }

  /** Resolves when no write is under way any more: after the signal's abort, or after a failure. */
  async stopped(): Promise<void> {
    await Promise.all(this.#running)
  }

  #laneOf({ value, key }: Delivery<T>): string {
    try {
      return this.#sink.lane?.(value, key) ?? ''
    } catch (cause) {
      throw new SinkError(`${this.#sink.name}: lane() threw ${describeThrown(cause)}`, { cause })
    }
  }

  /** Resolves when fewer than `limit` items are waiting or being written; rejects if writing has failed. */
  below(limit: number): Promise<void> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure.error)
    if (this.#pending < limit) return Promise.resolve()
    return new Promise((resolve, reject) => this.#waiters.push({ limit, resolve, reject }))
  }

  async #run(name: string, lane: Lane<T>): Promise<void> {
    const max = this.#sink.maxBatchItems ?? 500
    try {
      while (lane.waiting.length > 0) {
        const batch = lane.waiting.splice(0, max)
        await this.#write(batch)
        this.#pending -= batch.length
        this.#wake()
      }
      this.#lanes.delete(name)
    } catch (error) {
      if (this.#failure === undefined) this.#options.onFailed(error)
      this.#failure ??= { error }
      this.#wake()
    }
  }

  /** Returns when every item of the batch is settled; throws when the run is over. */
  async #write(batch: readonly Delivery<T>[]): Promise<void> {
    const { signal, clock, onWritten } = this.#options
    let open = batch
    for (let tries = 1; ; tries++) {
      signal.throwIfAborted()
      try {
        await this.#sink.write(
          open.map((delivery) => delivery.value),
          signal,
        )
        for (const delivery of open) delivery.ack()
        onWritten(open.length)
        return
      } catch (thrown) {
        if (signal.aborted) throw signal.reason
        const error = thrown instanceof SinkError ? thrown : wrapped(this.#sink.name, thrown)
        const failed = toWriteAgain(open, error)
        settleOthers(open, failed, onWritten)
        open = failed
        const decision = open[0]!.decide(error, tries)
        if (typeof decision === 'object') {
          await sleep(clock, decision.retryInMs, signal)
          continue
        }
        if (decision === 'skip' && open.length > 1) {
          // One bad item must not take the whole batch with it: find it by writing them one by one.
          for (const delivery of open) await this.#write([delivery])
          return
        }
        for (const delivery of open) delivery.nack(error, { attempt: tries, decision })
        if (decision === 'stop') throw error
        return
      }
    }
  }

  #wake(): void {
    const waiters = this.#waiters
    this.#waiters = []
    for (const waiter of waiters) {
      if (this.#failure !== undefined) waiter.reject(this.#failure.error)
      else if (this.#pending < waiter.limit) waiter.resolve()
      else this.#waiters.push(waiter)
    }
  }
}

function wrapped(sink: string, cause: unknown): SinkError {
  return new SinkError(`${sink}: writing failed`, { cause, retryable: true })
}

/** The items that failed, and later ones of the same keys: they are written again, so that the order holds. */
function toWriteAgain<T>(batch: readonly Delivery<T>[], { failedItems }: SinkError): readonly Delivery<T>[] {
  if (failedItems === undefined || failedItems.length === 0) return batch
  const failed = new Set(failedItems)
  const keys = new Set<string>()
  return batch.filter((delivery, index) => {
    if (failed.has(index)) keys.add(delivery.key)
    return keys.has(delivery.key)
  })
}

function settleOthers<T>(
  batch: readonly Delivery<T>[],
  failed: readonly Delivery<T>[],
  onWritten: (items: number) => void,
): void {
  if (failed.length === batch.length) return
  const still = new Set(failed)
  for (const delivery of batch) if (!still.has(delivery)) delivery.ack()
  onWritten(batch.length - failed.length)
}
