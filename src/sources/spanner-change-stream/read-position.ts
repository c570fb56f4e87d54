/** How far a partition has been read, so that reading again from there brings nothing twice. */
import type { Checkpoint } from '../../core/in-flight-tracker.ts'
import type { CommitTimestamp } from '../../model/commit-timestamp.ts'

/**
 * The last observed time and what was observed at exactly that time. A query starts at a time inclusive, and several
 * changes may share one time: resuming one tick later would lose some, so the ids at the border are remembered.
 */
export class ReadPosition {
  #timestamp: CommitTimestamp
  #idsAtTimestamp: Set<string>

  constructor({ watermark, boundaryIds }: Checkpoint) {
    this.#timestamp = watermark
    this.#idsAtTimestamp = new Set(boundaryIds)
  }

  get timestamp(): CommitTimestamp {
    return this.#timestamp
  }

  /** Whether this has not been seen. Order inside a partition is by time, so whatever is older is a repeat. */
  isNew(timestamp: CommitTimestamp, id: string): boolean {
    return timestamp > this.#timestamp || (timestamp === this.#timestamp && !this.#idsAtTimestamp.has(id))
  }

  observe(timestamp: CommitTimestamp, id?: string): void {
    if (timestamp > this.#timestamp) {
      this.#timestamp = timestamp
      this.#idsAtTimestamp.clear()
    }
    if (id !== undefined && timestamp === this.#timestamp) this.#idsAtTimestamp.add(id)
  }
}
