/** A value and the duty to settle it: made by sources, passed on by operators, settled at the end. */
import type { CommitTimestamp, Decision, Delivery, NackOptions } from './types.ts'

/** Where a settlement goes: the source's side of a delivery. */
export interface Origin {
  /** Token of the partition, if the source has partitions. */
  readonly partition?: string
  /** Called once per sequence number. */
  acked(sequence: number): void
  /** Called instead of `acked` when the work failed for good. */
  nacked(sequence: number, failure: Failure): void
  decide(error: unknown, value: unknown, attempt: number): Decision
}

export interface Failure {
  readonly id: string
  readonly value: unknown
  readonly error: unknown
  readonly attempt: number
  /** Set if whoever failed asks for the value again. */
  readonly retryInMs: number | undefined
  /** Set if the error policy has been asked already. */
  readonly decision: Decision | undefined
}

/** What a delivery settles: its source, the whole it is a part of, or the many it was joined from. */
interface Duty {
  readonly partition: string
  readonly isSettled: boolean
  ack(): void
  nack(error: unknown, options?: NackOptions): void
  decide(error: unknown, attempt: number): Decision
}

/** A delivery fresh from its source: sequence number `sequence` of `origin`. */
export class SourceDelivery<T> implements Delivery<T>, Duty {
  readonly value: T
  readonly key: string
  readonly timestamp: CommitTimestamp
  readonly id: string
  isSettled = false
  readonly #origin: Origin
  readonly #sequence: number

  constructor(value: T, key: string, timestamp: CommitTimestamp, id: string, origin: Origin, sequence: number) {
    this.value = value
    this.key = key
    this.timestamp = timestamp
    this.id = id
    this.#origin = origin
    this.#sequence = sequence
  }

  get partition(): string {
    return this.#origin.partition ?? ''
  }

  ack(): void {
    if (this.isSettled) return
    this.isSettled = true
    this.#origin.acked(this.#sequence)
  }

  nack(error: unknown, { attempt = Number.POSITIVE_INFINITY, retryInMs, decision }: NackOptions = {}): void {
    if (this.isSettled) return
    this.isSettled = true
    this.#origin.nacked(this.#sequence, { id: this.id, value: this.value, error, attempt, retryInMs, decision })
  }

  decide(error: unknown, attempt: number): Decision {
    return this.#origin.decide(error, this.value, attempt)
  }

  derive<U>(value: U): Delivery<U> {
    return new DerivedDelivery(value, this.key, this.timestamp, this.id, this)
  }

  split<U>(values: readonly U[]): Delivery<U>[] {
    return splitDuty(values, this, this)
  }
}

/**
 * One delivery for several: acking it acks them all, nacking it nacks them all.
 * All joined deliveries share the key `''`, whatever the keys of their parts: only so does a later one with a common
 * key not overtake an earlier one that holds it among others.
 */
export function join<T, U>(parts: readonly [Delivery<T>, ...Delivery<T>[]], value: U): Delivery<U> {
  const last = parts[parts.length - 1]!
  const id = parts.length === 1 ? last.id : `${parts[0].id}..${last.id}`
  return new DerivedDelivery(value, '', last.timestamp, id, new JoinedDuty(parts))
}

class DerivedDelivery<T> implements Delivery<T> {
  readonly value: T
  readonly key: string
  readonly timestamp: CommitTimestamp
  readonly id: string
  readonly #duty: Duty

  constructor(value: T, key: string, timestamp: CommitTimestamp, id: string, duty: Duty) {
    this.value = value
    this.key = key
    this.timestamp = timestamp
    this.id = id
    this.#duty = duty
  }

  get partition(): string {
    return this.#duty.partition
  }

  get isSettled(): boolean {
    return this.#duty.isSettled
  }

  ack(): void {
    this.#duty.ack()
  }

  nack(error: unknown, options?: NackOptions): void {
    this.#duty.nack(error, options)
  }

  decide(error: unknown, attempt: number): Decision {
    return this.#duty.decide(error, attempt)
  }

  derive<U>(value: U): Delivery<U> {
    return new DerivedDelivery(value, this.key, this.timestamp, this.id, this.#duty)
  }

  split<U>(values: readonly U[]): Delivery<U>[] {
    return splitDuty(values, this, this.#duty)
  }
}

function splitDuty<U>(values: readonly U[], whole: Delivery<unknown>, duty: Duty): Delivery<U>[] {
  if (values.length === 0) {
    duty.ack()
    return []
  }
  const shared = new SplitDuty(duty, values.length)
  return values.map(
    (value, index) =>
      new DerivedDelivery(value, whole.key, whole.timestamp, `${whole.id}.${index}`, new PartDuty(shared)),
  )
}

/** Counts the parts of one split; the last one settles the whole, with the first failure if there was one. */
class SplitDuty {
  readonly whole: Duty
  #open: number
  #failure: { readonly error: unknown; readonly options: NackOptions | undefined } | undefined

  constructor(whole: Duty, parts: number) {
    this.whole = whole
    this.#open = parts
  }

  partSettled(failure?: { readonly error: unknown; readonly options: NackOptions | undefined }): void {
    this.#failure ??= failure
    this.#open--
    if (this.#open > 0) return
    if (this.#failure === undefined) this.whole.ack()
    else this.whole.nack(this.#failure.error, this.#failure.options)
  }
}

class PartDuty implements Duty {
  isSettled = false
  readonly #shared: SplitDuty

  constructor(shared: SplitDuty) {
    this.#shared = shared
  }

  get partition(): string {
    return this.#shared.whole.partition
  }

  ack(): void {
    if (this.isSettled) return
    this.isSettled = true
    this.#shared.partSettled()
  }

  nack(error: unknown, options?: NackOptions): void {
    if (this.isSettled) return
    this.isSettled = true
    this.#shared.partSettled({ error, options })
  }

  decide(error: unknown, attempt: number): Decision {
    return this.#shared.whole.decide(error, attempt)
  }
}

class JoinedDuty implements Duty {
  readonly #parts: readonly Delivery<unknown>[]

  constructor(parts: readonly Delivery<unknown>[]) {
    this.#parts = parts
  }

  get partition(): string {
    return this.#parts[0]!.partition
  }

  get isSettled(): boolean {
    return this.#parts.every((part) => part.isSettled)
  }

  ack(): void {
    for (const part of this.#parts) part.ack()
  }

  nack(error: unknown, options?: NackOptions): void {
    for (const part of this.#parts) part.nack(error, options)
  }

  decide(error: unknown, attempt: number): Decision {
    return this.#parts[0]!.decide(error, attempt)
  }
}
