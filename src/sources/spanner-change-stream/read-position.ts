/** How far a partition has been read, so that reading again from there brings nothing twice. */
import type { Checkpoint } from '../../core/in-flight-tracker.ts'
import type { CommitTimestamp } from '../../model/commit-timestamp.ts'

/**
 * The last observed time and what was observed at exactly that time. A query starts at a time inclusive, and several
 * changes may share one time: resuming one tick later would lose some, so the ids at the border are remembered.
 */
export class ReadPosition {
  #timestamp: CommitTimestamp
  // Most times have one id: a set is only made for the second one.
  #firstId: string | undefined
  #moreIds: Set<string> | undefined

  constructor({ watermark, boundaryIds }: Checkpoint) {
    this.#timestamp = watermark
    for (const id of boundaryIds) this.#remember(id)
  }

  get timestamp(): CommitTimestamp {
    return this.#timestamp
  }

  /** Whether this has not been seen. Order inside a partition is by time, so whatever is older is a repeat. */
  isNew(timestamp: CommitTimestamp, id: string): boolean {
    if (timestamp > this.#timestamp) return true
    return timestamp === this.#timestamp && id !== this.#firstId && this.#moreIds?.has(id) !== true
  }

  observe(timestamp: CommitTimestamp, id?: string): void {
    if (timestamp > this.#timestamp) {
      this.#timestamp = timestamp
      this.#firstId = undefined
      this.#moreIds = undefined
    }
    if (id !== undefined && timestamp === this.#timestamp) this.#remember(id)
  }

  #remember(id: string): void {
    if (this.#firstId === undefined) this.#firstId = id
    else if (id !== this.#firstId) {
      this.#moreIds ??= new Set()
      this.#moreIds.add(id)
    }
  }
}
