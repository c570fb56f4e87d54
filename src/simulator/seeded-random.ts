/** Random numbers that are the same for the same seed. */
import { ConfigError } from '../core/errors.ts'
import { hashText } from './hash-text.ts'

/** A small fast generator (sfc32). Equal seeds give equal numbers, on every machine. */
export class SeededRandom {
  readonly #seed: string
  #a: number
  #b: number
  #c: number
  #count = 1

  constructor(seed: number | string) {
    this.#seed = String(seed)
    this.#a = hashText(this.#seed, 1)
    this.#b = hashText(this.#seed, 2)
    this.#c = hashText(this.#seed, 3)
    // The first numbers still resemble the seed.
    for (let i = 0; i < 12; i++) this.next()
  }

  /** From 0 to just below 1. */
  next(): number {
    const sum = (this.#a + this.#b + this.#count) | 0
    this.#count = (this.#count + 1) | 0
    this.#a = this.#b ^ (this.#b >>> 9)
    this.#b = (this.#c + (this.#c << 3)) | 0
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum
    return (sum >>> 0) / 2 ** 32
  }

  /** A whole number from 0 to `n - 1`. */
  int(n: number): number {
    return Math.floor(this.next() * n)
  }

  chance(probability: number): boolean {
    return this.next() < probability
  }

  pick<T>(list: readonly T[]): T {
    if (list.length === 0) throw new ConfigError('SeededRandom: there is nothing to pick from in an empty list')
    return list[this.int(list.length)]!
  }

  /** A generator of its own for one purpose: it depends on seed and label only, not on numbers drawn so far. */
  fork(label: string): SeededRandom {
    return new SeededRandom(`${this.#seed}/${label}`)
  }
}
