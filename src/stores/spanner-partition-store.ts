/** Partition progress in a Spanner database: for pipelines whose workers share nothing but Spanner. */
import { type Clock, systemClock } from '../core/clock.ts'
import { ConfigError } from '../core/errors.ts'
import type { Checkpoint } from '../core/in-flight-tracker.ts'
import { knownKeys, positiveInteger } from '../core/options.ts'
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import { isReopened, type Partition, type PartitionState } from '../model/partition.ts'
import { databasePath, emulatorAddress } from '../model/spanner-address.ts'
import type { PartitionRows } from './partition-rows.ts'
import type { CheckpointWrite, NewPartition, Ownership, PartitionStore, PartitionTable } from './partition-store.ts'
import { MAX_WRITES, PAGE_ROWS, PART_ROWS } from './spanner-commit-sizes.ts'
import type { OpenRows } from './spanner-partition-sql.ts'
import { SpannerPartitions } from './spanner-partitions.ts'
import { OWNER } from './spanner-store-errors.ts'

export interface SpannerPartitionStoreOptions {
  /**
   * `projects/<project>/instances/<instance>/databases/<database>`. Better not the one whose changes are read: the
   * store writes once a second, and a stream that watches its table would report that.
   */
  readonly database: string
  /**
   * Made when the store is first opened, with an index.
   * @default 'millrace_partitions'
   */
  readonly table?: string
  /**
   * How long finished partitions are kept, in days; at least 31, since a stream remembers up to 30 days. Spanner
   * deletes older ones by itself, except the first one and those that a later run may read on. Only a table that is
   * made now takes it over.
   * @default 60
   */
  readonly keepFinishedDays?: number
  /**
   * How long a call may take before it fails with an error that is worth a retry.
   * @default 10000
   */
  readonly timeoutMs?: number
  /**
   * `host:port` of an emulator.
   * @default the environment variable SPANNER_EMULATOR_HOST
   */
  readonly emulatorHost?: string
  /**
   * What leases are measured with.
   * @default the machine's clock
   */
  readonly clock?: Clock
}

/**
 * Keeps progress in a table of a Spanner database, GoogleSQL or PostgreSQL dialect. A checkpoint is one read-write
 * transaction. Above 4,000 unfinished partitions others follow that only renew leases, and above 15,000 that have moved
 * on since the last one, more than Spanner takes at a time, progress itself is stored in several. Transactions of one
 * store run one after the other. Any number of processes may share the table. Refuses to sit under a change stream that watches it.
 * Nothing is opened before `open`, and a closed store may be opened again.
 * @example spannerPartitionStore({ database: 'projects/p/instances/i/databases/millrace' })
 */
export function spannerPartitionStore(options: SpannerPartitionStoreOptions): PartitionStore {
  if (typeof options !== 'object' || options === null) throw new ConfigError(`${OWNER}: takes an options object`)
  knownKeys(OWNER, options, KNOWN)
  const { table = 'millrace_partitions', keepFinishedDays = 60, timeoutMs = 10_000, clock = systemClock } = options
  const emulatorHost = emulatorAddress(OWNER, options.emulatorHost)
  const database = databasePath(OWNER, options.database)
  checkedTable(table)
  positiveInteger(OWNER, 'timeoutMs', timeoutMs)
  if (positiveInteger(OWNER, 'keepFinishedDays', keepFinishedDays) < 31) {
    throw new ConfigError(`${OWNER}: keepFinishedDays must be at least 31, got ${keepFinishedDays}`, {
      hint: 'A change stream keeps up to 30 days: a partition that is forgotten before could be read a second time.',
    })
  }
  const settings = { database, table, keepFinishedDays, timeoutMs, emulatorHost, clock }
  let opening: Promise<SpannerPartitions> | undefined
  let isOpen = false
  return {
    name: `${OWNER}(${database})`,
    async open(pipeline) {
      opening ??= SpannerPartitions.open(settings)
      const opened = opening
      try {
        const table = new SpannerPartitionTable(pipeline, await opened)
        isOpen ||= opening === opened
        return table
      } catch (error) {
        // The next try begins anew.
        if (opening === opened) opening = undefined
        throw error
      }
    },
    peek: (pipeline) => SpannerPartitions.peek(settings, pipeline),
    async close() {
      const closed = opening?.then((partitions) => partitions.close()).catch(() => undefined)
      opening = undefined
      // One that is still being opened may take long, and goes when it comes.
      if (isOpen) await closed
      isOpen = false
    },
  }
}

class SpannerPartitionTable implements PartitionTable {
  readonly #pipeline: string
  readonly #partitions: SpannerPartitions

  constructor(pipeline: string, partitions: SpannerPartitions) {
    this.#pipeline = pipeline
    this.#partitions = partitions
  }

  async list(): Promise<Partition[]> {
    return this.#partitions.list(this.#pipeline)
  }

  async get(token: string): Promise<Partition | undefined> {
    return this.#partitions.get(this.#pipeline, token)
  }

  async createRoot(root: NewPartition, owner: string, leaseMs: number): Promise<boolean> {
    const run = (rows: PartitionRows): boolean => rows.createRoot(root, owner, leaseMs)
    return this.#partitions.write({ pipeline: this.#pipeline, tokens: [root.token], looksForAny: true, run })
  }

  async reopen(end: CommitTimestamp | null): Promise<void> {
    const ended = await this.#partitions.ended(this.#pipeline)
    const tokens = ended.filter((row) => isReopened(row, end)).map(({ token }) => token)
    for (const part of inParts(tokens)) await this.#onRows(part, (rows) => rows.reopen(end))
  }

  async claim(owner: string, leaseMs: number): Promise<Partition[]> {
    const unfinished: Partition[] = []
    let isHeld = false
    for await (const page of this.#inPages('all', (rows) => (isHeld ? rows.list() : rows.claim(owner, leaseMs)))) {
      unfinished.push(...page)
      // Of two that claim many pages at once, the loser of the first must not win a later one: both would wait for ever.
      isHeld ||= page.some((row) => row.owner !== owner)
    }
    // Between two pages the old owner may have added a child to the first of them, and finished its parent.
    return unfinished.length < PAGE_ROWS ? unfinished : this.#partitions.unfinished(this.#pipeline)
  }

  async addChildren(
    parent: string,
    ownership: Ownership,
    children: readonly NewPartition[],
    leaseMs: number,
  ): Promise<Partition[] | undefined> {
    const inserted: Partition[] = []
    for (const part of children.length === 0 ? [[]] : inParts(children)) {
      const tokens = [parent, ...part.map(({ token }) => token)]
      const added = await this.#onRows(tokens, (rows) => rows.addChildren(parent, ownership, part, leaseMs))
      if (added === undefined) return undefined
      inserted.push(...added)
    }
    return inserted
  }

  async advance(token: string, ownership: Ownership, from: PartitionState, to: PartitionState): Promise<boolean> {
    return this.#onRows([token], (rows) => rows.advance(token, ownership, from, to))
  }

  async checkpoint(owner: string, writes: readonly CheckpointWrite[], leaseMs: number): Promise<string[]> {
    // Keys move between partitions: after a crash, one whose progress is stored without that of another could overtake
    // it. So progress is one commit; if there are too many rows for that, the leases of the others follow in pages.
    const open = { columns: 'progress', isPage: false } as const
    const lost: string[] = []
    let isWhole = false
    for (const part of writes.length === 0 ? [[]] : inParts(writes, MAX_WRITES)) {
      const run = (rows: PartitionRows): string[] => {
        isWhole = rows.list().length < PAGE_ROWS
        return rows.checkpoint(owner, part, leaseMs, isWhole ? 'all' : 'written')
      }
      lost.push(...(await this.#partitions.write({ pipeline: this.#pipeline, open, run })))
    }
    if (isWhole) return lost
    const renewed = new Set(writes.map(({ token }) => token))
    for (const token of lost) renewed.delete(token)
    for await (const _ of this.#inPages('progress', (rows) => rows.renew(owner, leaseMs, renewed)));
    return lost
  }

  async finish(
    token: string,
    ownership: Ownership,
    checkpoint: Checkpoint,
    endedAt: CommitTimestamp | null,
  ): Promise<boolean> {
    return this.#onRows([token], (rows) => rows.finish(token, ownership, checkpoint, endedAt))
  }

  async release(owner: string): Promise<void> {
    for await (const _ of this.#inPages('progress', (rows) => rows.release(owner)));
  }

  #onRows<R>(tokens: readonly string[], run: (rows: PartitionRows) => R): Promise<R> {
    return this.#partitions.write({ pipeline: this.#pipeline, tokens, run })
  }

  /** Works through the unfinished rows, a commit a page: nearly always there is one page. */
  async *#inPages<R>(columns: OpenRows['columns'], work: (rows: PartitionRows) => R): AsyncGenerator<R> {
    let after: string | undefined
    do {
      const open = { columns, after, isPage: true }
      const run = (rows: PartitionRows) => {
        const tokens = rows.list().map(({ token }) => token)
        return { result: work(rows), last: tokens.length < PAGE_ROWS ? undefined : tokens.at(-1) }
      }
      const { result, last } = await this.#partitions.write({ pipeline: this.#pipeline, open, run })
      yield result
      after = last
    } while (after !== undefined)
  }
}

function* inParts<T>(items: readonly T[], size: number = PART_ROWS): Generator<T[]> {
  for (let at = 0; at < items.length; at += size) yield items.slice(at, at + size)
}

function checkedTable(name: unknown): void {
  if (typeof name === 'string' && /^[A-Za-z][A-Za-z0-9_]{0,100}$/.test(name)) return
  throw new ConfigError(
    `${OWNER}: table must be a letter followed by letters, digits or _ (at most 101), got ${JSON.stringify(name)}`,
  )
}

const KNOWN = ['database', 'table', 'keepFinishedDays', 'timeoutMs', 'emulatorHost', 'clock'] as const
