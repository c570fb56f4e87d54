/** A small reader that is right: reads all partitions of a simulated stream, parents first, through any faults. */
import { sleep } from '../../src/core/clock.ts'
import { isRetryable } from '../../src/core/errors.ts'
import type { ChangeStreamClient, PartitionQuery } from '../../src/model/change-stream.ts'
import type { CommitTimestamp } from '../../src/model/commit-timestamp.ts'
import {
  type Change,
  type ChangeStreamRecord,
  type ChildPartition,
  changeId,
  changesOf,
} from '../../src/model/data-change-record.ts'
import type { SimulatedStream } from '../../src/simulator/index.ts'

export const neverAborted: AbortSignal = new AbortController().signal

/** All records of one query, in order, to its clean end. */
export async function collect(client: ChangeStreamClient, query: PartitionQuery): Promise<ChangeStreamRecord[]> {
  const records: ChangeStreamRecord[] = []
  for await (const part of client.query(query, neverAborted)) records.push(...part.records)
  return records
}

export interface PatientRead {
  readonly changes: readonly Change[]
  /** Times that a partition was read in all, repeats after faults included. */
  readonly queries: number
}

/** Reads [start, end] of a stream: each change once, in an order that keeps the order of each row. */
export async function readPatiently(
  stream: SimulatedStream,
  start: CommitTimestamp,
  end: CommitTimestamp,
): Promise<PatientRead> {
  const reader = new PatientReader(stream, end)
  await reader.readAll(start)
  return { changes: reader.changes, queries: reader.queries }
}

class PatientReader {
  readonly changes: Change[] = []
  queries = 0
  readonly #stream: SimulatedStream
  readonly #client: ChangeStreamClient
  readonly #end: CommitTimestamp
  readonly #seen = new Set<string>()

  constructor(stream: SimulatedStream, end: CommitTimestamp) {
    this.#stream = stream
    this.#client = stream.client()
    this.#end = end
  }

  async readAll(start: CommitTimestamp): Promise<void> {
    const waiting = new Map<string, { parents: readonly string[]; start: CommitTimestamp }>()
    const known = new Set<string>()
    const finished = new Set<string>()
    const add = (children: readonly ChildPartition[], from: CommitTimestamp): void => {
      for (const { token, parentTokens } of children) {
        if (known.has(token)) continue
        known.add(token)
        waiting.set(token, { parents: parentTokens, start: from })
      }
    }
    await this.#readPartition(null, start, add)
    while (waiting.size > 0) {
      // A parent that is not known yet is not finished either: a merge may be announced by the other one first.
      const ready = [...waiting].filter(([, { parents }]) => parents.every((parent) => finished.has(parent)))
      for (const [token] of ready) waiting.delete(token)
      await Promise.all(
        ready.map(async ([token, { start: from }]) => {
          await this.#readPartition(token, from, add)
          finished.add(token)
        }),
      )
    }
  }

  async #readPartition(
    token: string | null,
    start: CommitTimestamp,
    add: (children: readonly ChildPartition[], from: CommitTimestamp) => void,
  ): Promise<void> {
    const { clock } = this.#stream
    let position = start
    let resumeToken: Uint8Array | undefined
    let queryStart = start
    let hasChildren = false
    for (;;) {
      this.queries++
      const isResume = resumeToken !== undefined
      if (!isResume) queryStart = position
      const query = { token, start: queryStart, end: this.#end, heartbeatMs: HEARTBEAT_MS }
      const watchdog = new Watchdog(this.#stream)
      try {
        const parts = this.#client.query(isResume ? { ...query, resumeToken: resumeToken! } : query, watchdog.signal)
        for await (const part of parts) {
          watchdog.pet()
          for (const entry of part.records) {
            if (entry.kind === 'heartbeat') position = entry.record.timestamp
            if (entry.kind === 'children') {
              hasChildren = true
              add(entry.record.children, entry.record.startTimestamp)
            }
            if (entry.kind !== 'data') continue
            if (entry.record.commitTimestamp > position) position = entry.record.commitTimestamp
            for (const change of changesOf(entry.record)) {
              if (this.#seen.has(changeId(change))) continue
              this.#seen.add(changeId(change))
              this.changes.push(change)
            }
          }
          resumeToken = part.resumeToken
        }
        if (hasChildren || (token !== null && this.#stream.now() > this.#end)) return
        resumeToken = undefined
      } catch (error) {
        if (!isRetryable(error)) throw error
      } finally {
        watchdog.stop()
      }
      await sleep(clock, 10)
    }
  }
}

/** Aborts a query that has been silent for too long. */
class Watchdog {
  readonly #controller = new AbortController()
  readonly #stream: SimulatedStream
  #timer: { cancel(): void } | undefined

  constructor(stream: SimulatedStream) {
    this.#stream = stream
    this.pet()
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  pet(): void {
    this.#timer?.cancel()
    this.#timer = this.#stream.clock.after(SILENCE_MS, () => this.#controller.abort(new Error('silent for too long')))
  }

  stop(): void {
    this.#timer?.cancel()
  }
}

const HEARTBEAT_MS = 1000
const SILENCE_MS = 200_000
