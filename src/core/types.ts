/** The words that every folder shares: a delivery, a sink, a logger. */
import type { Check } from './check.ts'

/**
 * A point in commit time: RFC 3339 in UTC with exactly nine fraction digits, such as
 * `2026-11-18T09:30:00.123456789Z`. Exact to the nanosecond, and text order is time order.
 */
export type CommitTimestamp = string

export interface NackOptions {
  /** Ask for the value again after this time, in its key's lane. Honoured by `deliveries()`. */
  readonly retryInMs?: number
  /** How often the work on this value has been tried; the error policy counts with it. */
  readonly attempt?: number
  /** What the error policy has already said to this failure, so that it is not asked twice. */
  readonly decision?: Decision
}

/** What the error policy answers: give up the run, give up this value, or try again after a while. */
export type Decision = 'stop' | 'skip' | { readonly retryInMs: number }

/**
 * A value together with the duty to settle it. Whoever takes a delivery out of a stream settles it, once:
 * `ack` when its work is durably done, `nack` when it failed. A second settlement changes nothing.
 */
export interface Delivery<T> {
  readonly value: T
  /** Ordering key: values of one key are handled in commit order. A change's table and primary key by default. */
  readonly key: string
  /** Event time. */
  readonly timestamp: CommitTimestamp
  /** The same for the same change in every run: server transaction id / record sequence / mod index. */
  readonly id: string
  /** Token of the partition it came from; empty for sources without partitions. */
  readonly partition: string
  readonly isSettled: boolean
  ack(): void
  nack(error: unknown, options?: NackOptions): void
  /** The same duty with another value: settling either settles both. */
  derive<U>(value: U): Delivery<U>
  /** Several values for one duty: settled when all parts are; no parts is an ack. */
  split<U>(values: readonly U[]): Delivery<U>[]
  /** What the error policy says about this failure. Asking settles nothing. */
  decide(error: unknown, attempt: number): Decision
}

/** Where values end. */
export interface Sink<T> {
  /** For messages: `kafkaSink`, `fileSink`. */
  readonly name: string
  /**
   * Resolves when every item is durable at the target; an item may be written again after a crash. Items come in
   * order. If some fail, a SinkError names them (`failedItems`), and none that follows one of them with the same key
   * may have been written: they are written again together.
   */
  write(items: readonly T[], signal: AbortSignal): Promise<void>
  /** Ends connections. Safe to call twice. */
  close(): Promise<void>
  /**
   * Which lane an item belongs to. Lanes are written in parallel; one lane never overtakes itself.
   * @default one lane for everything
   */
  lane?(item: T, key: string): string
  /**
   * Most items in one `write`.
   * @default 500
   */
  readonly maxBatchItems?: number
  /** Looks whether the target could be written to, for `millrace preflight`. Writes nothing, leaves nothing behind. */
  check?(signal: AbortSignal): Promise<Check[]>
}

/** What library code logs to. Fields are data for machines, the message is for people; never row content. */
export interface Logger {
  debug(message: string, fields?: Readonly<Record<string, unknown>>): void
  info(message: string, fields?: Readonly<Record<string, unknown>>): void
  warn(message: string, fields?: Readonly<Record<string, unknown>>): void
  error(message: string, fields?: Readonly<Record<string, unknown>>): void
}

const ignore = (): void => undefined

/** Says nothing: the default of library functions. */
export const silentLogger: Logger = { debug: ignore, info: ignore, warn: ignore, error: ignore }
