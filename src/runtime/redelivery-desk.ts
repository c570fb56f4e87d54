/** Hands deliveries out, and hands them out again when asked to, without giving up the order of their key. */
import { BoundedQueue } from '../core/bounded-queue.ts'
import type { Clock, Timer } from '../core/clock.ts'
import { type Failure, type Origin, SourceDelivery } from '../core/delivery.ts'
import { isMark, type Stage } from '../core/stage.ts'
import type { Decision, Delivery } from '../core/types.ts'

/**
 * The open values of one key. They are handed out side by side until one of them is to come again: then it and all
 * that were handed out behind it come again one by one, and what has not been handed out waits for them.
 */
interface Lane<T> {
  /** In order. An ack passes to the source only when everything before it in its lane is acked as well. */
  entries: Entry<T>[]
  /** The places that come again; undefined while none does. */
  repeats: { readonly from: number; readonly upTo: number } | undefined
}

export class RedeliveryDesk<T> {
  readonly #clock: Clock
  // The source's budget bounds what is handed out, so the queue need not.
  readonly #ready = new BoundedQueue<Delivery<T>>(Number.POSITIVE_INFINITY)
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
    // Also when the stream is over and only settlements are waited for.
    signal?.addEventListener('abort', () => this.#ready.fail(signal.reason), { once: true })
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

  /** Whether `take` throws from now on. */
  get hasFailed(): boolean {
    return this.#ready.hasFailed
  }

  /** What is ready to be handed out; undefined at the end. */
  take(): Promise<Delivery<T>[] | undefined> {
    return this.#ready.takeAll()
  }

  close(): void {
    this.#isClosed = true
    for (const { entries } of this.#lanes.values()) for (const entry of entries) entry.timer?.cancel()
    this.#lanes.clear()
    this.#ready.close()
  }

  /** @internal */
  acked(entry: Entry<T>): void {
    const lane = this.#laneOf(entry)
    if (lane === undefined) {
      entry.original.ack()
      return
    }
    // Handed out before an older one came again: the work on it may be the older of the two.
    entry.state = entry.isOutdated ? 'waiting' : 'done'
    this.#proceed(lane, entry.key)
  }

  /** @internal */
  nacked(entry: Entry<T>, { error, retryInMs }: Failure): void {
    const lane = this.#laneOf(entry)
    if (lane === undefined) return
    const decision = retryInMs === undefined ? entry.original.decide(error, entry.attempt) : { retryInMs }
    if (typeof decision === 'object') {
      this.#comeAgain(lane, entry, decision.retryInMs)
      return
    }
    entry.original.nack(error, { attempt: entry.attempt, decision })
    if (decision === 'stop') {
      // Nothing behind it may be handed out any more.
      this.#ready.fail(error)
      return
    }
    this.#remove(lane, entry)
    this.#proceed(lane, entry.key)
  }

  /** Undefined for what is no longer of interest: the desk is closed, or the source has read the value again. */
  #laneOf(entry: Entry<T>): Lane<T> | undefined {
    return this.#isClosed || entry.isGivenUp ? undefined : this.#lanes.get(entry.key)
  }

  #admit(original: Delivery<T>): void {
    const entry = new Entry(original, this.#places++, this)
    let lane = this.#lanes.get(entry.key)
    if (lane === undefined) {
      lane = { entries: [], repeats: undefined }
      this.#lanes.set(entry.key, lane)
    }
    this.#giveUpEarlierReading(lane, original)
    lane.entries.push(entry)
    if (lane.repeats === undefined) this.#handOut(entry)
    else this.#handOutNext(lane)
  }

  /** A source that reads a partition again has given up what it handed out before: so does the lane. */
  #giveUpEarlierReading(lane: Lane<T>, { id, timestamp, partition }: Delivery<T>): void {
    const last = lane.entries.at(-1)?.original
    if (last === undefined || partition === '' || timestamp > last.timestamp) return
    const earlier = lane.entries.find(({ original }) => original.id === id)
    if (earlier === undefined) return
    earlier.isGivenUp = true
    this.#remove(lane, earlier)
  }

  #remove(lane: Lane<T>, entry: Entry<T>): void {
    entry.timer?.cancel()
    lane.entries.splice(lane.entries.indexOf(entry), 1)
  }

  #comeAgain(lane: Lane<T>, entry: Entry<T>, inMs: number): void {
    entry.attempt++
    entry.state = 'pausing'
    let upTo = entry.place
    for (const later of lane.entries) {
      if (later.place <= entry.place || !later.wasHandedOut) continue
      upTo = later.place
      if (later.state === 'done') later.state = 'waiting'
      else if (later.state === 'out') later.isOutdated = true
    }
    const { repeats } = lane
    lane.repeats = {
      from: Math.min(repeats?.from ?? entry.place, entry.place),
      upTo: Math.max(repeats?.upTo ?? upTo, upTo),
    }
    entry.timer = this.#clock.after(inMs, () => {
      entry.state = 'waiting'
      this.#handOutNext(lane)
    })
  }

  #proceed(lane: Lane<T>, key: string): void {
    while (lane.entries[0]?.state === 'done') lane.entries.shift()!.original.ack()
    if (lane.entries.length === 0) this.#lanes.delete(key)
    else this.#handOutNext(lane)
    this.#endIfIdle()
  }

  #handOutNext(lane: Lane<T>): void {
    const { repeats, entries } = lane
    if (repeats === undefined) return
    const next = entries.find(({ place, state }) => place >= repeats.from && state !== 'done')
    if (next !== undefined && next.place <= repeats.upTo) {
      if (next.state === 'waiting') this.#handOut(next)
      return
    }
    lane.repeats = undefined
    for (const entry of entries) if (entry.state === 'waiting') this.#handOut(entry)
  }

  #handOut(entry: Entry<T>): void {
    const { value, key, timestamp, id } = entry.original
    entry.state = 'out'
    entry.isOutdated = false
    entry.wasHandedOut = true
    this.#ready.offer(new SourceDelivery(value, key, timestamp, id, entry, entry.place))
  }

  #endIfIdle(): void {
    if (this.#isIdle?.()) this.#ready.close()
  }
}

/** One delivery of the source, however often it is handed out. */
class Entry<T> implements Origin {
  readonly original: Delivery<T>
  /** Its position among all: values of one key come in this order. */
  readonly place: number
  attempt = 1
  /** `pausing`: failed and waits for its time. `waiting`: to be handed out. `done`: acked, but not all before it. */
  state: 'waiting' | 'out' | 'pausing' | 'done' = 'waiting'
  wasHandedOut = false
  /** Is handed out, and something older has failed since: its ack will not count. */
  isOutdated = false
  isGivenUp = false
  timer: Timer | undefined
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
