/** Hands values from one task to another, with back-pressure: a full queue makes the writer wait. */

/**
 * A first-in, first-out hand-over between any number of writers and one reader.
 * Holds at most `capacity` values; `push` waits for room, `takeAll` waits for values.
 * After `close` the reader gets what is left and then the end; after `fail` it gets the error at once.
 */
export class BoundedQueue<T> {
  readonly #capacity: number
  #values: T[] = []
  #state: 'open' | 'closed' | { readonly error: unknown } = 'open'
  #wakeReader: (() => void) | undefined
  #waitingWriters: (() => void)[] = []

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  get size(): number {
    return this.#values.length
  }

  get hasFailed(): boolean {
    return typeof this.#state === 'object'
  }

  /** Resolves once the value is in the queue; resolves to false if the queue ended before there was room. */
  async push(value: T): Promise<boolean> {
    while (this.#state === 'open' && this.#values.length >= this.#capacity) {
      await new Promise<void>((resolve) => this.#waitingWriters.push(resolve))
    }
    return this.offer(value)
  }

  /** Adds without waiting, over capacity if need be: for writers whose own budget bounds what they add. */
  offer(value: T): boolean {
    if (this.#state !== 'open') return false
    this.#values.push(value)
    this.#wake()
    return true
  }

  /** Adds without waiting, in place of the last value if that is outdated by this one. */
  offerInPlaceOf(isOutdated: (last: T) => boolean, value: T): boolean {
    const last = this.#values.at(-1)
    if (this.#state === 'open' && last !== undefined && isOutdated(last)) this.#values.pop()
    return this.offer(value)
  }

  /** Everything that is there, waiting for at least one value; undefined at the end. One reader at a time. */
  async takeAll(): Promise<T[] | undefined> {
    while (this.#values.length === 0 || typeof this.#state === 'object') {
      if (typeof this.#state === 'object') throw this.#state.error
      if (this.#state === 'closed') return undefined
      await new Promise<void>((resolve) => {
        this.#wakeReader = resolve
      })
    }
    const values = this.#values
    this.#values = []
    this.#releaseWriters()
    return values
  }

  /** Takes out what is no longer wanted. */
  drop(isUnwanted: (value: T) => boolean): void {
    this.#values = this.#values.filter((value) => !isUnwanted(value))
    this.#releaseWriters()
  }

  /** No more values will come. */
  close(): void {
    if (this.#state === 'open') this.#end('closed')
  }

  /** The reader throws this error next, before anything that is still queued. */
  fail(error: unknown): void {
    if (typeof this.#state !== 'object') this.#end({ error })
  }

  #end(state: 'closed' | { readonly error: unknown }): void {
    this.#state = state
    this.#wake()
    this.#releaseWriters()
  }

  #wake(): void {
    this.#wakeReader?.()
    this.#wakeReader = undefined
  }

  #releaseWriters(): void {
    const writers = this.#waitingWriters
    if (writers.length === 0) return
    this.#waitingWriters = []
    for (const release of writers) release()
  }
}
