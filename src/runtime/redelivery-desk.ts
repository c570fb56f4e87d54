/** Hands deliveries out, and hands them out again when asked to, without giving up the order of their key. */
import { BoundedQueue } from '../core/bounded-queue.ts'
import type { Clock, Timer } from '../core/clock.ts'
import { type Failure, type Origin, SourceDelivery } from '../core/delivery.ts'
import { isMark, type Stage } from '../core/stage.ts'
import type { Decision, Delivery } from '../core/types.ts'

/** A key with a value that is to come again: until that is done, values of this key are handed out one at a time. */
interface Lane<T> {
  /** Is handed out or waits for its time; undefined while the lane waits for a late one. */
  head: Entry<T> | undefined
  /** The place of the head, or of the last one. */
  place: number
  timer: Timer | undefined
  /** In order; behind the head. */
  waiting: Entry<T>[]
  /** Handed out before the head came again: the work on them may be older than that on the head. */
  late: Set<Entry<T>>
}

export class RedeliveryDesk<T> {
  readonly #clock: Clock
  // The source's budget bounds what is handed out, so the queue need not.
  readonly #ready = new BoundedQueue<Delivery<T>>(Number.POSITIVE_INFINITY)
  /** What is handed out and not settled, by id: what the source reads again takes the place of what it gave up. */
  readonly #out = new Map<string, Entry<T>>()
  /** Only keys with something to come again: without failures it stays empty and costs one look-up. */
  readonly #lanes = new Map<string, Lane<T>>()
  #places = 0
  #isClosed = false
  /** Set when the stream has ended: says whether everything that it gave is settled. */
  #isIdle: (() => boolean) | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * Takes everything from a stream; its end or error becomes the end or error of `take`. The end counts once all is
   * settled, by `isIdle`: what was handed out may still have to come again.
   */
  async pump(stream: Stage<T>, isIdle: () => boolean, signal: AbortSignal | undefined): Promise<void> {
    try {
      for await (const chunk of stream.chunks(signal)) {
        for (const item of chunk) if (!isMark(item)) this.#admit(item)
      }
      this.#isIdle = isIdle
      this.#endIfIdle()
    } catch (error) {
      this.#ready.fail(error)
    }
  }

  /** What is ready to be handed out; undefined at the end. */
  take(): Promise<Delivery<T>[] | undefined> {
    return this.#ready.takeAll()
  }

  close(): void {
    this.#isClosed = true
    for (const lane of this.#lanes.values()) lane.timer?.cancel()
    this.#lanes.clear()
    this.#ready.close()
  }

  /** @internal */
  acked(entry: Entry<T>): void {
    this.#cameBack(entry)
    const lane = this.#lanes.get(entry.key)
    // If it was handed out before an older value of its key came again, it comes again as well, behind that one.
    if (lane !== undefined && entry.place > lane.place) this.#follow(lane, entry)
    else this.#settled(entry, lane, () => entry.original.ack())
  }

  /** @internal */
  nacked(entry: Entry<T>, { error, retryInMs }: Failure): void {
    this.#cameBack(entry)
    if (this.#isClosed) return
    const decision = retryInMs === undefined ? entry.original.decide(error, entry.attempt) : { retryInMs }
    const lane = this.#lanes.get(entry.key)
    if (typeof decision === 'object') {
      this.#comeAgain(entry, lane, decision.retryInMs)
      return
    }
    lane?.late.delete(entry)
    this.#settled(entry, lane, () => entry.original.nack(error, { attempt: entry.attempt }))
    // A stream that is over has nobody left to tell.
    if (decision === 'stop' && this.#isIdle !== undefined) this.#ready.fail(error)
  }

  #cameBack(entry: Entry<T>): void {
    if (this.#out.get(entry.original.id) === entry) this.#out.delete(entry.original.id)
  }

  #settled(entry: Entry<T>, lane: Lane<T> | undefined, settle: () => void): void {
    settle()
    if (lane !== undefined) {
      if (entry === lane.head) lane.head = undefined
      this.#advance(lane, entry.key)
    }
    this.#endIfIdle()
  }

  #endIfIdle(): void {
    if (this.#isIdle?.()) this.#ready.close()
  }

  #admit(original: Delivery<T>): void {
    const entry = new Entry(original, this.#places++, this)
    const lane = this.#lanes.get(entry.key)
    if (lane === undefined) {
      this.#handOut(entry)
      return
    }
    const givenUp = this.#out.get(original.id)
    if (givenUp !== undefined) lane.late.delete(givenUp)
    if (givenUp !== undefined && givenUp === lane.head) lane.head = undefined
    lane.waiting.push(entry)
    this.#advance(lane, entry.key)
  }

  #handOut(entry: Entry<T>): void {
    const { value, key, timestamp, id } = entry.original
    this.#out.set(id, entry)
    this.#ready.offer(new SourceDelivery(value, key, timestamp, id, entry, entry.place))
  }

  #comeAgain(entry: Entry<T>, existing: Lane<T> | undefined, inMs: number): void {
    entry.attempt++
    if (existing !== undefined && entry.place > existing.place) {
      this.#follow(existing, entry)
      return
    }
    const lane = existing ?? { head: entry, place: 0, timer: undefined, waiting: [], late: new Set<Entry<T>>() }
    this.#lanes.set(entry.key, lane)
    // An older one fails as well: a head that waits for its time steps back; one that is handed out is a late one.
    if (lane.timer !== undefined && lane.head !== entry) this.#insert(lane, lane.head!)
    lane.timer?.cancel()
    lane.head = entry
    lane.place = entry.place
    for (const other of this.#out.values())
      if (other.key === entry.key && other.place > entry.place) lane.late.add(other)
    lane.timer = this.#clock.after(inMs, () => {
      lane.timer = undefined
      this.#handOut(entry)
    })
  }

  /** It was handed out too early: it takes its place in the line. */
  #follow(lane: Lane<T>, entry: Entry<T>): void {
    lane.late.delete(entry)
    this.#insert(lane, entry)
    this.#advance(lane, entry.key)
  }

  /** Hands out the next one, unless the present one is open or a late one has to come before it. */
  #advance(lane: Lane<T>, key: string): void {
    if (lane.head !== undefined) return
    const next = lane.waiting[0]
    if (next === undefined && lane.late.size === 0) this.#lanes.delete(key)
    if (next === undefined) return
    for (const late of lane.late) if (late.place < next.place) return
    lane.waiting.shift()
    lane.head = next
    lane.place = next.place
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
