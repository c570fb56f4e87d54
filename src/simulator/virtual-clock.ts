/** Simulated time: an hour passes in milliseconds, and the same program runs the same way each time. */
import { type Clock, sleep, type Timer } from '../core/clock.ts'
import { ConfigError, StreamError } from '../core/errors.ts'

export interface VirtualClockOptions {
  /**
   * Where time begins, in milliseconds since 1970.
   * @default 2026-01-01T00:00:00Z
   */
  readonly startMs?: number
  /**
   * A run fails when time gets further than this from its beginning: an endless retry is an error, not a hang.
   * @default no limit
   */
  readonly maxSimulatedMs?: number
}

/** A run can make no progress: nothing is scheduled and its promise is open, or its time is used up. */
export class SimulationStalledError extends StreamError {
  /** When it was noticed, in simulated milliseconds since 1970. */
  readonly atMs: number

  constructor(message: string, atMs: number) {
    super('SIMULATION_STALLED', message)
    this.atMs = atMs
  }
}

/**
 * A clock that stands still while there is work to do and jumps to the next timer when there is none.
 * Timers fire in order of time, then of creation, with all promise work done in between. Code under it may use
 * promises and this clock; real timers, sockets and worker threads are not seen and break determinism.
 * @example
 * const clock = new VirtualClock()
 * await clock.run(() => sleep(clock, 3_600_000)) // takes no time
 */
export class VirtualClock implements Clock {
  readonly #startMs: number
  readonly #maxSimulatedMs: number
  readonly #timers = new TimerHeap()
  #nowMs: number
  #isRunning = false

  constructor({ startMs = DEFAULT_START_MS, maxSimulatedMs = Number.POSITIVE_INFINITY }: VirtualClockOptions = {}) {
    this.#startMs = startMs
    this.#nowMs = startMs
    this.#maxSimulatedMs = maxSimulatedMs
  }

  now(): number {
    return this.#nowMs
  }

  after(ms: number, callback: () => void): Timer {
    return this.#timers.add(this.#nowMs + Math.max(0, ms), callback)
  }

  /** Timers that are set and not cancelled. */
  get pendingTimers(): number {
    return this.#timers.size
  }

  /**
   * Lets simulated time pass until the promise of `main` settles, and settles likewise. Timers that are still set
   * then stay set. Rejects with a SimulationStalledError when nothing can move `main` on any more.
   */
  run<T>(main: () => Promise<T>): Promise<T> {
    if (this.#isRunning) throw new ConfigError('VirtualClock: run must not be called while another run goes on')
    this.#isRunning = true
    return new Promise<T>((resolve, reject) => {
      let isSettled = false
      const settle = (): void => {
        isSettled = true
        this.#isRunning = false
      }
      const fail = (error: unknown): void => {
        settle()
        reject(error)
      }
      let idleTurns = 0
      // One turn of the event loop per timer: when it begins, all promise work of the turn before is done.
      const turn = (): void => {
        if (isSettled) return
        try {
          idleTurns = this.#fireNext() ? 0 : idleTurns + 1
          if (idleTurns > MAX_IDLE_TURNS) throw this.#stalled()
          setImmediate(turn)
        } catch (error) {
          fail(error)
        }
      }
      Promise.resolve()
        .then(main)
        .then((value) => {
          settle()
          resolve(value)
        }, fail)
      setImmediate(turn)
    })
  }

  /** Lets this much simulated time pass, with all that is due in it. */
  advance(ms: number): Promise<void> {
    return this.run(() => sleep(this, ms))
  }

  #fireNext(): boolean {
    const timer = this.#timers.next()
    if (timer === undefined) return false
    if (timer.atMs - this.#startMs > this.#maxSimulatedMs) throw this.#timeUsedUp()
    this.#nowMs = Math.max(this.#nowMs, timer.atMs)
    timer.fire()
    return true
  }

  #stalled(): SimulationStalledError {
    return new SimulationStalledError(
      `VirtualClock: stalled at ${this.#shownTime()}: the run waits for something, but no timer is set`,
      this.#nowMs,
    )
  }

  #timeUsedUp(): SimulationStalledError {
    return new SimulationStalledError(
      `VirtualClock: maxSimulatedMs (${this.#maxSimulatedMs}) is used up at ${this.#shownTime()}`,
      this.#nowMs,
    )
  }

  #shownTime(): string {
    return `${new Date(this.#nowMs).toISOString()} (${this.#nowMs - this.#startMs} ms simulated)`
  }
}

class HeapTimer implements Timer {
  readonly atMs: number
  readonly order: number
  readonly #heap: TimerHeap
  #callback: (() => void) | undefined

  constructor(atMs: number, order: number, heap: TimerHeap, callback: () => void) {
    this.atMs = atMs
    this.order = order
    this.#heap = heap
    this.#callback = callback
  }

  get isCancelled(): boolean {
    return this.#callback === undefined
  }

  cancel(): void {
    if (this.#callback === undefined) return
    this.#callback = undefined
    this.#heap.noteCancelled()
  }

  fire(): void {
    const callback = this.#callback
    this.#callback = undefined
    callback?.()
  }
}

/** A binary heap by time, then by creation. Cancelled timers stay in it until they come up or are the larger half. */
class TimerHeap {
  #timers: HeapTimer[] = []
  #cancelled = 0
  #created = 0

  get size(): number {
    return this.#timers.length - this.#cancelled
  }

  add(atMs: number, callback: () => void): Timer {
    const timer = new HeapTimer(atMs, this.#created++, this, callback)
    this.#timers.push(timer)
    this.#rise(this.#timers.length - 1)
    return timer
  }

  noteCancelled(): void {
    this.#cancelled++
    if (this.#cancelled < MIN_CANCELLED || this.#cancelled * 2 < this.#timers.length) return
    this.#timers = this.#timers.filter((timer) => !timer.isCancelled)
    this.#cancelled = 0
    for (let i = (this.#timers.length >> 1) - 1; i >= 0; i--) this.#sink(i)
  }

  /** Takes out the next timer that is not cancelled. */
  next(): HeapTimer | undefined {
    for (;;) {
      const first = this.#timers[0]
      if (first === undefined) return undefined
      const last = this.#timers.pop()!
      if (this.#timers.length > 0) {
        this.#timers[0] = last
        this.#sink(0)
      }
      if (!first.isCancelled) return first
      this.#cancelled--
    }
  }

  #rise(from: number): void {
    const timers = this.#timers
    const timer = timers[from]!
    let i = from
    while (i > 0) {
      const parent = (i - 1) >> 1
      if (!isBefore(timer, timers[parent]!)) break
      timers[i] = timers[parent]!
      i = parent
    }
    timers[i] = timer
  }

  #sink(from: number): void {
    const timers = this.#timers
    const timer = timers[from]!
    let i = from
    for (;;) {
      let child = 2 * i + 1
      if (child >= timers.length) break
      if (child + 1 < timers.length && isBefore(timers[child + 1]!, timers[child]!)) child++
      if (!isBefore(timers[child]!, timer)) break
      timers[i] = timers[child]!
      i = child
    }
    timers[i] = timer
  }
}

function isBefore(a: HeapTimer, b: HeapTimer): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order)
}

const DEFAULT_START_MS = Date.UTC(2026, 0, 1)
/** A few turns without a timer are allowed before a run counts as stalled: a loading module needs some. */
const MAX_IDLE_TURNS = 20
const MIN_CANCELLED = 64
