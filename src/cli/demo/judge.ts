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

/** Takes the output line by line, while the ledger still grows. */
export class Judge {
  readonly #ledger: readonly CommittedChange[]
  readonly #positions = new Map<string, number>()
  readonly #delivered = new Set<string>()
  readonly #youngest = new Map<string, number>()
  #firstMissing = 0
  #repeated = 0
  #outOfOrder = 0
  #unknown = 0

  constructor(ledger: readonly CommittedChange[]) {
    this.#ledger = ledger
  }

  observe(line: string): void {
    const id = idOf(line)
    const position = id === undefined ? undefined : this.#positionOf(id)
    if (id === undefined || position === undefined) {
      this.#unknown++
      return
    }
    if (this.#delivered.has(id)) {
      this.#repeated++
      return
    }
    this.#delivered.add(id)
    const { key } = this.#ledger[position]!
    const youngest = this.#youngest.get(key) ?? -1
    if (position < youngest) this.#outOfOrder++
    else this.#youngest.set(key, position)
  }

  /** The oldest change that has not arrived: how far the output is behind. */
  oldestMissing(): CommittedChange | undefined {
    while (this.#delivered.has(this.#ledger[this.#firstMissing]?.id ?? '')) this.#firstMissing++
    return this.#ledger[this.#firstMissing]
  }

  verdict(): Verdict {
    const committed = this.#ledger.length
    const delivered = this.#delivered.size
    return {
      committed,
      delivered,
      lost: committed - delivered,
      repeated: this.#repeated,
      outOfOrder: this.#outOfOrder,
      unknown: this.#unknown,
    }
  }

  #positionOf(id: string): number | undefined {
    // The ledger only grows, so what is new in it is noted when it is first asked for.
    while (this.#positions.size < this.#ledger.length) {
      this.#positions.set(this.#ledger[this.#positions.size]!.id, this.#positions.size)
    }
    return this.#positions.get(id)
  }
}

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
