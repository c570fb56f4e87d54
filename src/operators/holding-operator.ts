/** For operators that hold values for a while: reads the source in the background while what is ready leaves. */
import { BoundedQueue } from '../core/bounded-queue.ts'
import { ClosedError } from '../core/errors.ts'
import { asStage, type Chunk, type Item, type Mark, type Operator, Stage } from '../core/stage.ts'

/** What an operator does with the items it holds, in one iteration. */
export interface Holder<T> {
  /** Whether another item may come in; asked again after every hand-over and after `outlet.roomChanged()`. */
  hasRoom(): boolean
  /** Takes one item; a promise makes the reading wait. */
  add(item: Item<T>): Promise<void> | undefined
  /** Nothing more will come: calls `outlet.end()` once the rest has left. */
  sourceEnded(): void
  /** The iteration is over, for whatever reason. Resolves when nothing is at work any more. */
  close(): Promise<void>
}

/** Makes an operator whose results leave while the source is idle. `open` is called anew for every iteration. */
export function holdingOperator<T, U>(open: (outlet: Outlet<U>) => Holder<T>): Operator<T, U> {
  return (source) => new Stage((signal) => hold(asStage(source), signal, open))
}

/** The later of two marks that wait for the same thing; it says all that the other one says. */
export function laterMark(held: Mark | undefined, next: Mark): Mark {
  return held !== undefined && held.timestamp > next.timestamp ? held : next
}

/** Where an operator puts what may leave. */
export class Outlet<U> {
  readonly #ready = new BoundedQueue<Item<U>>(Number.POSITIVE_INFINITY)
  readonly #abort = new AbortController()
  #failure: { readonly error: unknown } | undefined
  #wakeReader: (() => void) | undefined

  /** Aborted when the run fails or its consumer stops; not when the stream ends by itself. */
  get signal(): AbortSignal {
    return this.#abort.signal
  }

  get hasFailed(): boolean {
    return this.#failure !== undefined
  }

  /** How many items wait to be taken. */
  get size(): number {
    return this.#ready.size
  }

  emit(item: Item<U>): void {
    this.#ready.offer(item)
  }

  /** The stream ends after what is ready. */
  end(): void {
    this.#ready.close()
  }

  /** The stream throws this error after what is ready; whatever is still at work is told to stop. */
  fail(error: unknown): void {
    if (this.signal.aborted) return
    this.#failure = { error }
    this.#ready.close()
    this.stop(error)
  }

  /** Tells whatever is still at work to stop. */
  stop(reason: unknown): void {
    this.#abort.abort(reason)
    this.roomChanged()
  }

  /** Lets the reader look again whether there is room. */
  roomChanged(): void {
    this.#wakeReader?.()
    this.#wakeReader = undefined
  }

  /** @internal */
  nextRoomChange(): Promise<void> {
    return new Promise((resolve) => {
      this.#wakeReader = resolve
    })
  }

  /** @internal */
  async take(): Promise<Chunk<U> | undefined> {
    const chunk = await this.#ready.takeAll()
    if (chunk === undefined && this.#failure !== undefined) throw this.#failure.error
    this.roomChanged()
    return chunk
  }
}

async function* hold<T, U>(
  source: Stage<T>,
  signal: AbortSignal,
  open: (outlet: Outlet<U>) => Holder<T>,
): AsyncGenerator<Chunk<U>, void, undefined> {
  const outlet = new Outlet<U>()
  const relayAbort = (): void => outlet.fail(signal.reason)
  if (signal.aborted) relayAbort()
  signal.addEventListener('abort', relayAbort, { once: true })
  const holder = open(outlet)
  const reader = new Reader(source, holder, outlet)
  let hasEnded = false
  try {
    for (let chunk = await outlet.take(); chunk !== undefined; chunk = await outlet.take()) yield chunk
    hasEnded = true
  } finally {
    signal.removeEventListener('abort', relayAbort)
    if (!hasEnded) outlet.stop(new ClosedError('the consumer of the stream stopped before its end'))
    await reader.close()
    await holder.close()
  }
}

/** Moves items from the source to the holder as long as there is room. */
class Reader<T> {
  readonly #chunks: AsyncIterator<Chunk<T>>
  readonly #holder: Holder<T>
  readonly #outlet: Outlet<unknown>
  readonly #ended: Promise<void>
  #isExhausted = false

  constructor(source: Stage<T>, holder: Holder<T>, outlet: Outlet<unknown>) {
    this.#chunks = source.chunks(outlet.signal)[Symbol.asyncIterator]()
    this.#holder = holder
    this.#outlet = outlet
    this.#ended = this.#run().catch((error: unknown) => outlet.fail(error))
  }

  /** Closes the source. */
  async close(): Promise<void> {
    if (this.#isExhausted) return
    try {
      await this.#ended // a pending read ends with the signal
      await this.#chunks.return?.()
    } catch (error) {
      // The first failure is the one to report.
      if (!this.#outlet.hasFailed && error !== this.#outlet.signal.reason) throw error
    }
  }

  async #run(): Promise<void> {
    while (await this.#hasRoom()) {
      const chunk = await this.#read()
      if (this.#outlet.signal.aborted) return
      if (chunk === undefined) return this.#holder.sourceEnded()
      for (const item of chunk) {
        if (this.#outlet.signal.aborted || (!this.#holder.hasRoom() && !(await this.#hasRoom()))) return
        const isTaken = this.#holder.add(item)
        if (isTaken !== undefined) await isTaken
      }
    }
  }

  async #read(): Promise<Chunk<T> | undefined> {
    try {
      const next = await this.#chunks.next()
      if (!next.done) return next.value
    } catch (error) {
      this.#isExhausted = true // what throws has ended
      throw error
    }
    this.#isExhausted = true
    return undefined
  }

  /** Waits for room; false if the iteration ended in the meantime. */
  async #hasRoom(): Promise<boolean> {
    while (!this.#outlet.signal.aborted) {
      if (this.#holder.hasRoom()) return true
      await this.#outlet.nextRoomChange()
    }
    return false
  }
}
