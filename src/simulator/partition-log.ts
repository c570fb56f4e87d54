/** What one partition returns, in order, and who waits for more of it. */
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import type { ChangeStreamRecord } from '../model/data-change-record.ts'

export interface LogEntry {
  readonly timestamp: CommitTimestamp
  readonly record: Exclude<ChangeStreamRecord, { kind: 'heartbeat' }>
  /** Queries see it from then on; never earlier than the entry before it. */
  visibleAtMs: number
}

/**
 * Entries by (commit timestamp, transaction id, record sequence), records about partitions behind the data of their time. Positions count from the first
 * entry ever, so they stay the same when old entries are forgotten.
 */
export class PartitionLog {
  #entries: LogEntry[] = []
  #forgotten = 0
  /** Nothing may be put before this position: a query has looked there. */
  #observed = 0
  readonly #waiters = new Set<() => void>()

  /** Position of the oldest entry that is kept. */
  get first(): number {
    return this.#forgotten
  }

  /** Position behind the newest entry. */
  get end(): number {
    return this.#forgotten + this.#entries.length
  }

  at(position: number): LogEntry | undefined {
    return this.#entries[position - this.#forgotten]
  }

  /** Position of the first entry at or after a time. */
  positionOf(timestamp: CommitTimestamp): number {
    let low = 0
    let high = this.#entries.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.#entries[middle]!.timestamp < timestamp) low = middle + 1
      else high = middle
    }
    return this.#forgotten + low
  }

  observe(position: number): void {
    if (position > this.#observed) this.#observed = position
  }

  /** Where the records of a transaction belong; undefined if a query has been told what is there. */
  placeFor(timestamp: CommitTimestamp, serverTransactionId: string): number | undefined {
    let position = this.end
    for (; position > this.#forgotten; position--) {
      const { timestamp: before, record } = this.at(position - 1)!
      if (before < timestamp || record.kind !== 'data') break
      if (record.record.serverTransactionId < serverTransactionId) break
    }
    return position >= this.#observed ? position : undefined
  }

  insert(position: number, entries: readonly LogEntry[]): void {
    const index = position - this.#forgotten
    if (index === this.#entries.length) for (const entry of entries) this.#entries.push(entry)
    else this.#entries.splice(index, 0, ...entries)
    let visibleAtMs = index > 0 ? this.#entries[index - 1]!.visibleAtMs : 0
    for (let i = index; i < this.#entries.length; i++) {
      const entry = this.#entries[i]!
      entry.visibleAtMs = visibleAtMs = Math.max(entry.visibleAtMs, visibleAtMs)
    }
    for (const wake of [...this.#waiters]) wake()
  }

  forgetBefore(timestamp: CommitTimestamp): void {
    const count = this.positionOf(timestamp) - this.#forgotten
    if (count === 0) return
    this.#entries = this.#entries.slice(count)
    this.#forgotten += count
  }

  /** Calls back whenever entries are added, until the returned function is called. */
  subscribe(waiter: () => void): () => void {
    this.#waiters.add(waiter)
    return () => {
      this.#waiters.delete(waiter)
    }
  }
}
