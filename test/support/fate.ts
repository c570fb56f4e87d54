/** What befalls one run at its edges: failed calls, lost answers, slowness, and its death at a chosen moment. */
import { type Clock, sleep } from '../../src/core/clock.ts'
import { SinkError, StoreError } from '../../src/core/errors.ts'
import type { SeededRandom } from '../../src/simulator/index.ts'

export interface Trouble {
  /** Chance that a call fails before it does anything. */
  readonly refusals: number
  /** Chance that a call does its work and its answer is lost: the caller cannot know. */
  readonly lostAnswers: number
  readonly maxDelayMs: number
}

/** Where a process dies: before or after its n-th durable step, counted over the store and the sink. */
export interface CrashPoint {
  readonly step: number
  readonly side: 'before' | 'after'
}

export class Fate {
  readonly #random: SeededRandom
  readonly #clock: Clock
  readonly #crash: CrashPoint | undefined
  readonly #onDeath: () => void
  readonly #stops = new AbortController()
  #steps = 0
  #lateMs: number | undefined

  constructor(random: SeededRandom, clock: Clock, crash: CrashPoint | undefined, onDeath: () => void) {
    this.#random = random
    this.#clock = clock
    this.#crash = crash
    this.#onDeath = onDeath
  }

  get isDead(): boolean {
    return this.#stops.signal.aborted
  }

  /** From now on nothing of this run can change the world, but for what arrives late at the store, if that is said. */
  die(lateMs?: number): void {
    if (this.isDead) return
    this.#lateMs = lateMs
    this.#stops.abort(new StoreError('the process is dead'))
    this.#onDeath()
  }

  assertAlive(): void {
    this.#stops.signal.throwIfAborted()
  }

  /** A call that only looks. */
  async look<T>(trouble: Trouble, call: () => Promise<T>): Promise<T> {
    await this.#delay(trouble)
    if (this.#random.chance(trouble.refusals)) throw passing('store')
    return await call()
  }

  /** A call that changes something durable: `apply` is the moment at which it is done. */
  async step<T>(what: 'store' | 'sink', trouble: Trouble, apply: () => Promise<T>): Promise<T> {
    const step = ++this.#steps
    if (what === 'store') await this.#arriveLate(trouble, apply)
    else await this.#delay(trouble)
    if (this.#crash?.step === step && this.#crash.side === 'before') this.die()
    this.assertAlive()
    if (this.#random.chance(trouble.refusals)) throw passing(what)
    const result = await apply()
    if (this.#crash?.step === step && this.#crash.side === 'after') this.die()
    await this.#delay(trouble)
    if (this.#random.chance(trouble.lostAnswers)) throw passing(what)
    return result
  }

  /** The way to the store: whoever dies on it has sent the call, and nobody hears the answer. */
  async #arriveLate(trouble: Trouble, apply: () => Promise<unknown>): Promise<void> {
    try {
      await this.#delay(trouble)
    } catch (death) {
      if (this.#lateMs !== undefined) {
        await sleep(this.#clock, this.#lateMs)
        await apply()
      }
      throw death
    }
  }

  async #delay({ maxDelayMs }: Trouble): Promise<void> {
    this.assertAlive()
    if (maxDelayMs > 0) await sleep(this.#clock, this.#random.int(maxDelayMs), this.#stops.signal)
  }
}

function passing(what: 'store' | 'sink'): Error {
  return what === 'store'
    ? new StoreError('injected: the store did not answer', { retryable: true })
    : new SinkError('injected: the sink did not answer', { retryable: true })
}
