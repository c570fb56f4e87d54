/** Hands deliveries out, and hands them out again when asked to, without giving up the order of their key. */
import { BoundedQueue } from '../core/bounded-queue.ts'
import type { Clock, Timer } from '../core/clock.ts'
import { type Failure, type Origin, SourceDelivery } from '../core/delivery.ts'
import { isMark, type Stage } from '../core/stage.ts'
import type { Decision, Delivery } from '../core/types.ts'

/** A key with a value that is to come again: while it is open, values of this key are handed out one at a time. */
interface Lane<T> {
  head: Entry<T>
  timer: Timer | undefined
  /** In order; behind the head. */
  waiting: Entry<T>[]
}

export class RedeliveryDesk<T> {
  readonly #clock: Clock
  // The source's budget bounds what is handed out, so the queue need not.
  readonly #ready = new BoundedQueue<Delivery<T>>(Number.POSITIVE_INFINITY)
  /** Only keys with something to come again: without failures it stays empty and costs one look-up. */
  readonly #lanes = new Map<string, Lane<T>>()
  #places = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Takes everything from a stream; its end or error becomes the end or error of `take`. */
  async pump(stream: Stage<T>, signal: AbortSignal | undefined): Promise<void> {
    try {
      for await (const chunk of stream.chunks(signal)) {
        for (const item of chunk) if (!isMark(item)) this.#admit(item)
      }
      this.#ready.close()
    } catch (error) {
      this.#ready.fail(error)
    }
  }

  /** What is ready to be handed out; undefined at the end. */
  take(): Promise<Delivery<T>[] | undefined> {
    return this.#ready.takeAll()
  }

  close(): void {
    for (const lane of this.#lanes.values()) lane.timer?.cancel()
    this.#lanes.clear()
    this.#ready.close()
  }

  /** @internal */
  acked(entry: Entry<T>): void {
    const lane = this.#lanes.get(entry.key)
    if (lane === undefined || entry.place < lane.head.place) {
      entry.original.ack()
    } else if (entry === lane.head) {
      entry.original.ack()
      this.#advance(lane)
    } else {
      // It was handled before an older value of its key, which is to come again: so it comes again, behind that one.
      this.#insert(lane, entry)
    }
  }

  /** @internal */
  nacked(entry: Entry<T>, { error, retryInMs }: Failure): void {
    const decision = retryInMs === undefined ? entry.original.decide(error, entry.attempt) : { retryInMs }
    if (typeof decision === 'object') {
      this.#comeAgain(entry, decision.retryInMs)
      return
    }
    entry.original.nack(error, { attempt: entry.attempt })
    const lane = this.#lanes.get(entry.key)
    if (entry === lane?.head) this.#advance(lane)
  }

  #admit(original: Delivery<T>): void {
    const entry = new Entry(original, this.#places++, this)
    const lane = this.#lanes.get(entry.key)
    if (lane === undefined) this.#handOut(entry)
    else lane.waiting.push(entry)
  }

  #handOut(entry: Entry<T>): void {
    const { value, key, timestamp, id } = entry.original
    this.#ready.offer(new SourceDelivery(value, key, timestamp, id, entry, entry.place))
  }

  #comeAgain(entry: Entry<T>, inMs: number): void {
    entry.attempt++
    let lane = this.#lanes.get(entry.key)
    if (lane === undefined) {
      lane = { head: entry, timer: undefined, waiting: [] }
      this.#lanes.set(entry.key, lane)
    } else if (entry.place > lane.head.place) {
      this.#insert(lane, entry)
      return
    } else if (entry !== lane.head) {
      // An older one fails as well: the present head steps back. If it is handed out now, its ack brings it here.
      if (lane.timer !== undefined) this.#insert(lane, lane.head)
      lane.timer?.cancel()
      lane.head = entry
    }
    this.#handOutLater(lane, inMs)
  }

  #handOutLater(lane: Lane<T>, inMs: number): void {
    lane.timer = this.#clock.after(inMs, () => {
      lane.timer = undefined
      this.#handOut(lane.head)
    })
  }

  #advance(lane: Lane<T>): void {
    const next = lane.waiting.shift()
    if (next === undefined) {
      this.#lanes.delete(lane.head.key)
      return
    }
    lane.head = next
    this.#handOut(next)
  }

  #insert(lane: Lane<T>, entry: Entry<T>): void {
    const behind = lane.waiting.findIndex((other) => other.place > entry.place)
    if (behind === -1) lane.waiting.push(entry)
    else lane.waiting.splice(behind, 0, entry)
  }
}

/** One delivery of the source, however often it is handed out. */
class Entry<T> implements Origin {
  readonly original: Delivery<T>
  /** Its position among all: values of one key come in this order. */
  readonly place: number
  attempt = 1
  readonly #desk: RedeliveryDesk<T>

  constructor(original: Delivery<T>, place: number, desk: RedeliveryDesk<T>) {
    this.original = original
    this.place = place
    this.#desk = desk
  }

  get key(): string {
    return this.original.key
  }

  get partition(): string {
    return this.original.partition
  }

  acked(): void {
    this.#desk.acked(this)
  }

  nacked(_sequence: number, failure: Failure): void {
    this.#desk.nacked(this, failure)
  }

  decide(error: unknown, _value: unknown, attempt: number): Decision {
    return this.original.decide(error, attempt)
  }
}
