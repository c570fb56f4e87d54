/** Compares what the database committed with what arrived: the demo's verdict, taken from no counter of the worker. */

/** A committed change, from the simulated database's ledger; in commit order. */
export interface CommittedChange {
  readonly id: string
  readonly key: string
  readonly commitTimestamp: string
}

export interface Verdict {
  readonly committed: number
  /** Distinct changes that arrived. */
  readonly delivered: number
  readonly lost: number
  /** Arrived again: allowed after a crash, with the same id. */
  readonly repeated: number
  /** First arrivals of a change after a younger one of the same key. */
  readonly outOfOrder: number
  /** Lines that are no committed change: broken, or never written by the database. */
  readonly unknown: number
}

/** What the database keeps of its history: the newest changes, and how many older ones it has dropped. */
export interface CommittedHistory {
  readonly changes: readonly CommittedChange[]
  readonly forgottenChanges: number
}

/** Takes the output line by line, while the ledger still grows. Remembers what is missing, and the newest that arrived. */
export class Judge {
  readonly #history: CommittedHistory
  readonly #known = new Map<string, Awaited>()
  /** In commit order, from the oldest that is missing on. */
  readonly #awaited = new Fifo<Awaited>()
  readonly #arrived = new Fifo<string>()
  /** The position of the youngest change of a key that has arrived. */
  readonly #youngest = new Map<string, number>()
  #committed = 0
  #delivered = 0
  #repeated = 0
  #outOfOrder = 0
  #unknown = 0

  constructor(history: CommittedHistory) {
    this.#history = history
  }

  observe(line: string): void {
    this.#noteCommitted()
    const known = this.#known.get(idOf(line) ?? '')
    if (known === undefined) this.#unknown++
    else if (known.hasArrived) this.#repeated++
    else this.#arrive(known)
  }

  /** The oldest change that has not arrived: how far the output is behind. */
  oldestMissing(): CommittedChange | undefined {
    this.#noteCommitted()
    while (this.#awaited.first?.hasArrived) this.#remember(this.#awaited.shift()!.change.id)
    return this.#awaited.first?.change
  }

  verdict(): Verdict {
    this.#noteCommitted()
    return {
      committed: this.#committed,
      delivered: this.#delivered,
      lost: this.#committed - this.#delivered,
      repeated: this.#repeated,
      outOfOrder: this.#outOfOrder,
      unknown: this.#unknown,
    }
  }

  #noteCommitted(): void {
    const { changes, forgottenChanges } = this.#history
    for (; this.#committed < forgottenChanges + changes.length; this.#committed++) {
      const { id, key, commitTimestamp } = changes[this.#committed - forgottenChanges]!
      const awaited = { change: { id, key, commitTimestamp }, position: this.#committed, hasArrived: false }
      this.#known.set(id, awaited)
      this.#awaited.push(awaited)
    }
  }

  #arrive(awaited: Awaited): void {
    awaited.hasArrived = true
    this.#delivered++
    const { key } = awaited.change
    if (awaited.position < (this.#youngest.get(key) ?? -1)) this.#outOfOrder++
    else this.#youngest.set(key, awaited.position)
  }

  /** A crash repeats what is recent: far more than that is remembered, and the rest is let go. */
  #remember(id: string): void {
    this.#arrived.push(id)
    if (this.#arrived.length > MAX_REMEMBERED) this.#known.delete(this.#arrived.shift()!)
  }
}

interface Awaited {
  readonly change: CommittedChange
  readonly position: number
  hasArrived: boolean
}

/** A queue whose front can be taken at no cost. */
class Fifo<T> {
  #items: T[] = []
  #head = 0

  get length(): number {
    return this.#items.length - this.#head
  }

  get first(): T | undefined {
    return this.#items[this.#head]
  }

  push(item: T): void {
    this.#items.push(item)
  }

  shift(): T | undefined {
    const item = this.#items[this.#head++]
    if (this.#head > 1024 && this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head)
      this.#head = 0
    }
    return item
  }
}

const MAX_REMEMBERED = 100_000

export function hasPassed({ lost, outOfOrder, unknown }: Verdict): boolean {
  return lost === 0 && outOfOrder === 0 && unknown === 0
}

function idOf(line: string): string | undefined {
  try {
    const { id } = JSON.parse(line) as { id?: unknown }
    return typeof id === 'string' ? id : undefined
  } catch {
    return undefined
  }
}
