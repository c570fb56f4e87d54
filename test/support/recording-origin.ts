/** An origin that writes down what is settled, and a source on top of it that writes down how it is read. */
import { type Failure, type Origin, SourceDelivery } from '../../src/core/delivery.ts'
import { type ErrorPolicy, stop } from '../../src/core/error-policy.ts'
import { type Chunk, type Item, isMark, type Mark, type Stage, stage } from '../../src/core/stage.ts'
import type { CommitTimestamp, Decision, Delivery } from '../../src/core/types.ts'

export class RecordingOrigin implements Origin {
  /** Sequence numbers in the order of their settlement. */
  readonly acks: number[] = []
  readonly nacks: Failure[] = []
  /** How often each sequence number was settled. */
  readonly settlements: Map<number, number> = new Map()
  readonly #policy: ErrorPolicy
  #made = 0

  constructor(policy: ErrorPolicy = stop()) {
    this.#policy = policy
  }

  /** How many deliveries were made. */
  get made(): number {
    return this.#made
  }

  make<T>(value: T, key: string = String(value)): Delivery<T> {
    const sequence = this.#made++
    return new SourceDelivery(value, key, timeOf(sequence), `r${sequence}`, this, sequence)
  }

  acked(sequence: number): void {
    this.acks.push(sequence)
    this.#count(sequence)
  }

  nacked(sequence: number, failure: Failure): void {
    this.nacks.push(failure)
    this.#count(sequence)
  }

  decide(error: unknown, value: unknown, attempt: number): Decision {
    return this.#policy.decide(error, { value, partition: '', attempt })
  }

  #count(sequence: number): void {
    this.settlements.set(sequence, (this.settlements.get(sequence) ?? 0) + 1)
  }
}

/** Times that grow with the number. */
export function timeOf(number: number): CommitTimestamp {
  return `2026-01-01T00:00:00.${String(number).padStart(9, '0')}Z`
}

export interface RecordingSourceOptions<T> {
  readonly values: Iterable<T | Mark>
  /** @default 1 */
  readonly chunkSize?: number
  readonly key?: (value: T) => string
  readonly policy?: ErrorPolicy
  /** What happens after the last value: the end, an error, or nothing until the signal is aborted. */
  readonly after?: 'end' | 'idle' | { readonly error: unknown }
}

/** A source that counts what is read of it, how often it was opened, and how often it was closed. */
export class RecordingSource<T> {
  readonly origin: RecordingOrigin
  readonly stage: Stage<T>
  /** Items handed out over all iterations. */
  reads = 0
  opened = 0
  closed = 0
  signal: AbortSignal | undefined

  constructor({ values, chunkSize = 1, key, policy, after = 'end' }: RecordingSourceOptions<T>) {
    const origin = new RecordingOrigin(policy)
    this.origin = origin
    const recording = this
    this.stage = stage<T>(async function* (signal) {
      recording.opened++
      recording.signal = signal
      try {
        let chunk: Item<T>[] = []
        for (const value of values) {
          chunk.push(isMarkValue(value) ? value : origin.make(value, key?.(value)))
          if (chunk.length < chunkSize) continue
          yield recording.#counted(chunk)
          chunk = []
          signal.throwIfAborted()
        }
        if (chunk.length > 0) yield recording.#counted(chunk)
        if (after === 'idle') await aborted(signal)
        if (typeof after === 'object') throw after.error
      } finally {
        recording.closed++
      }
    })
  }

  #counted(chunk: Chunk<T>): Chunk<T> {
    this.reads += chunk.length
    return chunk
  }
}

/** Everything that comes out, without settling it. */
export async function collect<T>(stream: AsyncIterable<Item<T>>): Promise<Item<T>[]> {
  const items: Item<T>[] = []
  for await (const item of stream) items.push(item)
  return items
}

/** Acks everything that comes out and returns the values; marks are left out. */
export async function drain<T>(stream: AsyncIterable<Item<T>>): Promise<T[]> {
  const values: T[] = []
  for await (const item of stream) {
    if (isMark(item)) continue
    values.push(item.value)
    item.ack()
  }
  return values
}

function isMarkValue(value: unknown): value is Mark {
  return typeof value === 'object' && value !== null && 'isMark' in value
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) return reject(signal.reason)
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
  })
}
