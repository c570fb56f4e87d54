/** Knows which deliveries of one partition are still open, and up to where everything is settled without a gap. */
import type { CommitTimestamp } from './types.ts'

export interface OpenDelivery {
  readonly id: string
  readonly timestamp: CommitTimestamp
  /** When it was handed out, in the caller's milliseconds. */
  readonly sinceMs: number
}

export interface Checkpoint {
  /** Everything before this time is settled. */
  readonly watermark: CommitTimestamp
  /** What is settled at exactly this time. A restart reads from the watermark on, inclusive, and drops these. */
  readonly boundaryIds: readonly string[]
}

/**
 * Numbers what is handed out and moves a watermark over the gapless run of settled numbers.
 *
 * A ring of timestamps, ids and flags: it never holds a value, a settlement costs O(1) whatever is open, and its
 * length is the distance from the oldest open number to the newest. Callers bound that distance with `window`.
 * @example
 * const tracker = new InFlightTracker()
 * const first = tracker.enter('2026-01-01T00:00:01.000000000Z', 'a', 0)
 * const second = tracker.enter('2026-01-01T00:00:02.000000000Z', 'b', 0)
 * tracker.settle(second)            // tracker.checkpoint is still undefined: 'a' is open
 * tracker.settle(first)             // tracker.checkpoint.watermark is now second's time
 */
export class InFlightTracker {
  // The ring; capacity is a power of two, so that a sequence number finds its slot with a mask.
  #timestamps: CommitTimestamp[] = new Array(INITIAL_CAPACITY).fill('')
  #ids: (string | undefined)[] = new Array(INITIAL_CAPACITY).fill(undefined)
  #since: Float64Array = new Float64Array(INITIAL_CAPACITY)
  // What each was entered with, or SETTLED: one place in memory to touch when a number in the middle is settled.
  #bytes: Float64Array = new Float64Array(INITIAL_CAPACITY)
  #mask = INITIAL_CAPACITY - 1

  #head = 0 // the oldest open number, or #next if nothing is open
  #next = 0
  #open = 0

  #watermark: CommitTimestamp | undefined
  #boundaryIds: string[] = []
  #waiters: { readonly window: number; readonly resolve: () => void }[] = []

  /** Starts at a stored checkpoint, or with nothing settled. */
  constructor(start?: Checkpoint) {
    this.#watermark = start?.watermark
    this.#boundaryIds = [...(start?.boundaryIds ?? [])]
  }

  /** How many are handed out and not settled. */
  get open(): number {
    return this.#open
  }

  /** How many numbers lie between the oldest open one and the newest: the ring's length. */
  get window(): number {
    return this.#next - this.#head
  }

  /** Up to where everything is settled; undefined until the first gapless settlement. */
  get checkpoint(): Checkpoint | undefined {
    return this.#watermark === undefined
      ? undefined
      : { watermark: this.#watermark, boundaryIds: this.#boundaryIds.slice() }
  }

  get watermark(): CommitTimestamp | undefined {
    return this.#watermark
  }

  /** How many boundary ids the checkpoint has, without copying them. */
  get boundaryCount(): number {
    return this.#boundaryIds.length
  }

  /** The delivery that holds the watermark back. */
  get oldestOpen(): OpenDelivery | undefined {
    if (this.#open === 0) return undefined
    const slot = this.#head & this.#mask
    return { id: this.#ids[slot] ?? '', timestamp: this.#timestamps[slot]!, sinceMs: this.#since[slot]! }
  }

  /** Takes the next number for something handed out. Timestamps must not decrease. */
  enter(timestamp: CommitTimestamp, id: string, nowMs: number, bytes = 0): number {
    if (this.window > this.#mask) this.#grow()
    const slot = this.#next & this.#mask
    this.#timestamps[slot] = timestamp
    this.#ids[slot] = id
    this.#since[slot] = nowMs
    this.#bytes[slot] = bytes
    this.#open++
    return this.#next++
  }

  /**
   * Notes a time up to which nothing more will come (a heartbeat, the end of a partition): it takes its place in the
   * sequence already settled. Several in a row take one place, so an idle partition does not grow the ring.
   */
  pass(timestamp: CommitTimestamp): void {
    if (this.#open === 0) {
      this.#advanceTo(timestamp, undefined)
      return
    }
    const newest = (this.#next - 1) & this.#mask
    if (this.#ids[newest] === undefined) {
      this.#timestamps[newest] = timestamp
      return
    }
    if (this.window > this.#mask) this.#grow()
    const slot = this.#next & this.#mask
    this.#timestamps[slot] = timestamp
    this.#ids[slot] = undefined
    this.#bytes[slot] = SETTLED
    this.#next++
  }

  /** Settles one number and returns the bytes it was entered with; undefined if it is not open. */
  settle(sequence: number): number | undefined {
    if (sequence < this.#head || sequence >= this.#next) return undefined
    const slot = sequence & this.#mask
    const bytes = this.#bytes[slot]
    if (bytes === SETTLED) return undefined
    this.#bytes[slot] = SETTLED
    this.#open--
    if (sequence === this.#head) this.#advanceHead()
    return bytes
  }

  /** Resolves when nothing is open. */
  idle(): Promise<void> {
    return this.windowBelow(1)
  }

  /** Resolves when the ring is shorter than `window`: how a reader waits for one slow delivery to be settled. */
  windowBelow(window: number): Promise<void> {
    if (this.window < window) return Promise.resolve()
    return new Promise((resolve) => this.#waiters.push({ window, resolve }))
  }

  #advanceHead(): void {
    while (this.#head < this.#next) {
      const slot = this.#head & this.#mask
      if (this.#bytes[slot] !== SETTLED) break
      this.#advanceTo(this.#timestamps[slot]!, this.#ids[slot])
      this.#ids[slot] = undefined
      this.#head++
    }
    if (this.#waiters.length > 0) this.#wakeWaiters()
  }

  #advanceTo(timestamp: CommitTimestamp, id: string | undefined): void {
    if (this.#watermark === undefined || timestamp > this.#watermark) {
      this.#watermark = timestamp
      // Emptied, not made anew: it moves with nearly every settlement.
      if (this.#boundaryIds.length > 0) this.#boundaryIds.length = 0
    }
    if (id !== undefined && timestamp === this.#watermark) this.#boundaryIds.push(id)
  }

  #wakeWaiters(): void {
    const waiters = this.#waiters
    this.#waiters = []
    for (const waiter of waiters) {
      if (this.window < waiter.window) waiter.resolve()
      else this.#waiters.push(waiter)
    }
  }

  #grow(): void {
    const oldMask = this.#mask
    const capacity = (oldMask + 1) * 2
    const mask = capacity - 1
    const timestamps: CommitTimestamp[] = new Array(capacity).fill('')
    const ids: (string | undefined)[] = new Array(capacity).fill(undefined)
    const since = new Float64Array(capacity)
    const bytes = new Float64Array(capacity)
    for (let sequence = this.#head; sequence < this.#next; sequence++) {
      const from = sequence & oldMask
      const to = sequence & mask
      timestamps[to] = this.#timestamps[from]!
      ids[to] = this.#ids[from]
      since[to] = this.#since[from]!
      bytes[to] = this.#bytes[from]!
    }
    this.#timestamps = timestamps
    this.#ids = ids
    this.#since = since
    this.#bytes = bytes
    this.#mask = mask
  }
}

const INITIAL_CAPACITY = 16
const SETTLED = -1
