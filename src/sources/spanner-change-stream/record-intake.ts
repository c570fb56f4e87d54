/** What the records of one partition say: hands out changes, passes times on, stores children, notes the evidence. */
import type { Clock } from '../../core/clock.ts'
import { SourceDelivery } from '../../core/delivery.ts'
import { abortable } from '../../core/signals.ts'
import type { Chunk, Item } from '../../core/stage.ts'
import type { QueryPart } from '../../model/change-stream.ts'
import type { CommitTimestamp } from '../../model/commit-timestamp.ts'
import {
  type ChildPartitionsRecord,
  type DataChangeRecord,
  type Gap,
  type PartitionEndRecord,
  type PartitionEventRecord,
  type PartitionStartRecord,
  recordId,
} from '../../model/data-change-record.ts'
import { ROOT_TOKEN } from '../../model/partition.ts'
import type { DeliverableRows } from './deliverable-rows.ts'
import type { LivePartition, Reading } from './live-partition.ts'
import type { MoveInBarriers } from './move-in-barriers.ts'

export interface IntakeContext<T> {
  readonly rowsOf: DeliverableRows<T>
  readonly gapValue: (gap: Gap) => T
  /** The user's end. */
  readonly end: CommitTimestamp | undefined
  /** Longest distance from the oldest open delivery to the newest one. */
  readonly maxWindow: number
  readonly clock: Clock
  /** Takes deliveries; never waits, since the budget bounds them. */
  emit(chunk: Chunk<T>): void
  /** Resolves when the children are stored. */
  announce(parent: LivePartition, children: ChildPartitionsRecord): Promise<void>
  readonly barriers: MoveInBarriers
}

/** Of one reading of one partition. What has been seen already is dropped, so queries may overlap. */
export class RecordIntake<T> {
  /** When the children start: the end of this partition, once they are stored. Of one query and what resumes it. */
  childrenStart: CommitTimestamp | undefined
  /** The end of this partition by its own record, or as it follows from where the stream can be read. */
  endedAt: CommitTimestamp | undefined
  /** Something past the user's end has come, or everything up to it is lost. */
  isPastEnd = false
  /** What moved into this partition: reading waits until the partitions that it came from are processed. */
  moveIn: PartitionEventRecord | undefined
  /** Whether anything new has come since this was last set to false. */
  hasProgressed = false
  readonly #partition: LivePartition
  readonly #reading: Reading
  readonly #context: IntakeContext<T>
  readonly #signal: AbortSignal
  #chunk: Item<T>[] = []
  /** When what is handed out now was taken. */
  #nowMs = 0
  /** The moves of one time that were waited for: they are seen again when reading goes on. */
  #passedMoveIns = new Set<string>()
  #passedAt: CommitTimestamp | undefined

  constructor(partition: LivePartition, reading: Reading, context: IntakeContext<T>, signal: AbortSignal) {
    this.#partition = partition
    this.#reading = reading
    this.#context = context
    this.#signal = signal
  }

  /** Whether what follows in the present query is not to be read, or not yet. */
  get isDone(): boolean {
    return this.isPastEnd || this.endedAt !== undefined || this.moveIn !== undefined
  }

  async take({ records }: QueryPart): Promise<void> {
    this.#nowMs = this.#context.clock.now()
    for (const item of records) {
      if (item.kind === 'data') {
        // Only who finds no room waits: a promise a record would cost more than the rest of the work on it.
        const { record, bytes } = item
        const bytesEach = bytes / this.#context.rowsOf.count(record)
        if (this.#takeData(record, bytesEach, false)) await this.#takeRest(record, bytesEach)
      } else if (item.kind === 'heartbeat') this.#takeTime(item.record.timestamp)
      else if (item.kind === 'children') await this.#takeChildren(item.record)
      else if (item.kind === 'start') await this.#takeStart(item.record)
      else if (item.kind === 'event') this.#takeEvent(item.record)
      else this.#takeEnd(item.record)
      if (this.isDone) break
    }
    this.flush()
    this.#context.barriers.progressed(this.#partition.token)
  }

  flush(): void {
    if (this.#chunk.length === 0) return
    const chunk = this.#chunk
    this.#chunk = []
    this.#context.emit(chunk)
  }

  /** Waits for the partitions from which ranges have moved in; then reading may go on. */
  async passMoveIn(): Promise<void> {
    const event = this.moveIn!
    await this.#context.barriers.wait(this.#partition, event, this.#signal)
    if (event.commitTimestamp !== this.#passedAt) this.#passedMoveIns.clear()
    this.#passedAt = event.commitTimestamp
    this.#passedMoveIns.add(idOf(event))
    this.moveIn = undefined
  }

  /** Hands out a gap in place of what is lost; reading goes on at its end. */
  async takeGap(gap: Gap): Promise<void> {
    const { tracker, position, account } = this.#reading
    const { clock, gapValue } = this.#context
    const { partitionToken, from, to } = gap
    await account.take(GAP_BYTES, this.#signal)
    const id = `gap/${partitionToken}/${from}`
    position.observe(to, id)
    const sequence = tracker.enter(to, id, clock.now(), GAP_BYTES)
    this.#chunk.push(new SourceDelivery(gapValue(gap), partitionToken, to, id, this.#reading, sequence))
    this.flush()
    this.#isBehindEnd(to)
  }

  /** Hands out the rows of a record; true if there is no room for all of them now. `hasRoom`: for one there is. */
  #takeData(record: DataChangeRecord, bytesEach: number, hasRoom: boolean): boolean {
    const { tracker, position, account } = this.#reading
    const { rowsOf, maxWindow } = this.#context
    const timestamp = record.commitTimestamp
    if (this.#isBehindEnd(timestamp)) return false
    const ofRecord = recordId(record)
    const count = rowsOf.count(record)
    let isTaken = hasRoom
    for (let index = 0; index < count; index++) {
      const id = rowsOf.id(ofRecord, index)
      if (!position.isNew(timestamp, id)) continue
      if (!isTaken && (tracker.window >= maxWindow || !account.tryTake(bytesEach))) return true
      isTaken = false
      position.observe(timestamp, id)
      this.hasProgressed = true
      const sequence = tracker.enter(timestamp, id, this.#nowMs, bytesEach)
      const key = rowsOf.key(record, index)
      this.#chunk.push(new SourceDelivery(rowsOf.value(record, index), key, timestamp, id, this.#reading, sequence))
    }
    return false
  }

  /** Waits for room as often as it takes; the rows that have been handed out are known by their ids. */
  async #takeRest(record: DataChangeRecord, bytesEach: number): Promise<void> {
    const { tracker, account } = this.#reading
    const { maxWindow } = this.#context
    do {
      this.flush()
      await abortable(tracker.windowBelow(maxWindow), this.#signal)
      await account.take(bytesEach, this.#signal)
      this.#nowMs = this.#context.clock.now()
    } while (this.#takeData(record, bytesEach, true))
  }

  #takeTime(timestamp: CommitTimestamp): void {
    if (this.#isBehindEnd(timestamp)) return
    const { position, tracker } = this.#reading
    if (timestamp > position.timestamp) this.hasProgressed = true
    position.observe(timestamp)
    tracker.pass(timestamp)
  }

  async #takeChildren(record: ChildPartitionsRecord): Promise<void> {
    if (this.#isBehindEnd(record.startTimestamp)) return
    this.flush()
    // Store the children first: an end that is noted before them would lose them.
    await this.#context.announce(this.#partition, record)
    this.childrenStart = record.startTimestamp
  }

  /** The first query's partitions are its children; later ones have no parent, and wait for none. */
  async #takeStart({ startTimestamp, recordSequence, tokens }: PartitionStartRecord): Promise<void> {
    const children = tokens.map((token) => ({ token, parentTokens: [ROOT_TOKEN] }))
    const record = { startTimestamp, recordSequence, children }
    if (this.#partition.token === ROOT_TOKEN) {
      await this.#takeChildren(record)
      return
    }
    if (this.#isBehindEnd(startTimestamp)) return
    this.flush()
    // Stored before the watermark reaches its start: whoever restarts there knows it already.
    await this.#context.announce(this.#partition, record)
    this.#takeTime(startTimestamp)
  }

  #takeEvent(event: PartitionEventRecord): void {
    this.#takeTime(event.commitTimestamp)
    if (this.isPastEnd) return
    this.#reading.eventAt = event.commitTimestamp
    if (event.moveInFrom.length === 0 || this.#passedMoveIns.has(idOf(event))) return
    if (!this.#context.barriers.isOpen(this.#partition, event)) this.moveIn = event
  }

  #takeEnd({ endTimestamp }: PartitionEndRecord): void {
    this.#takeTime(endTimestamp)
    if (!this.isPastEnd) this.endedAt = endTimestamp
  }

  #isBehindEnd(timestamp: CommitTimestamp): boolean {
    const { end } = this.#context
    if (end !== undefined && timestamp > end) this.isPastEnd = true
    return this.isPastEnd
  }
}

function idOf({ commitTimestamp, recordSequence }: PartitionEventRecord): string {
  return `${commitTimestamp}/${recordSequence}`
}

const GAP_BYTES = 100
