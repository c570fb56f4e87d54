/** A change stream that answers each query as a test says, and a probe that reads it delivery by delivery. */
import { type Clock, sleep } from '../../../src/core/clock.ts'
import { errorPolicy, stop } from '../../../src/core/error-policy.ts'
import { SourceError } from '../../../src/core/errors.ts'
import { isMark } from '../../../src/core/stage.ts'
import type { CommitTimestamp, Delivery, Logger } from '../../../src/core/types.ts'
import type {
  ChangeStreamClient,
  PartitionQuery,
  QueryPart,
  StreamDescription,
} from '../../../src/model/change-stream.ts'
import type { Change, ChangeStreamRecord } from '../../../src/model/data-change-record.ts'
import { VirtualClock } from '../../../src/simulator/index.ts'
import { type SpannerChangeStreamOptions, spannerChangeStream } from '../../../src/sources/index.ts'
import { aloneContext, type SourceContext, type SourceRun } from '../../../src/sources/source.ts'
import { memoryPartitionStore, type PartitionStore, type PartitionTable } from '../../../src/stores/index.ts'

/** One step of an answer: records, a clean end, silence until the reader cancels, an error, or a wait. */
export type Answer =
  | QueryPart
  | 'end'
  | 'silence'
  | { readonly error: unknown }
  | { readonly until: Promise<unknown> }
  | { readonly afterMs: number; readonly part: QueryPart }

/** Token -> the answers to its first query, its second, and so on. What is not scripted is silence. */
export type Script = Readonly<Record<string, readonly (readonly Answer[])[]>>

export class ScriptedStream implements ChangeStreamClient {
  /** As they were sent, the first query's null token as `root`. */
  readonly queries: (PartitionQuery & { readonly of: string })[] = []
  /** Parts that were taken by the reader. */
  pulled = 0
  /** Queries that were begun and neither ended nor cancelled. */
  open = 0
  readonly #script: Script
  readonly #clock: Clock

  readonly #description: Partial<StreamDescription>

  constructor(clock: Clock, script: Script, description: Partial<StreamDescription> = {}) {
    this.#clock = clock
    this.#script = script
    this.#description = description
  }

  describe(): Promise<StreamDescription> {
    return Promise.resolve({
      dialect: 'googlesql',
      mode: 'immutable',
      valueCaptureType: 'OLD_AND_NEW_VALUES',
      retentionMs: 86_400_000,
      tables: undefined,
      ...this.#description,
    })
  }

  close(): Promise<void> {
    return Promise.resolve()
  }

  /** The tokens in the order in which they were first queried. */
  get tokens(): string[] {
    return [...new Set(this.queries.map(({ of }) => of))]
  }

  queriesOf(token: string): PartitionQuery[] {
    return this.queries.filter(({ of }) => of === token)
  }

  async *query(query: PartitionQuery, signal: AbortSignal): AsyncGenerator<QueryPart, void, undefined> {
    signal.throwIfAborted()
    const of = query.token ?? 'root'
    const answers = this.#script[of]?.[this.queriesOf(of).length] ?? ['silence']
    this.queries.push({ ...query, of })
    this.open++
    try {
      for (const answer of answers) {
        if (answer === 'end') return
        if (answer === 'silence') await aborted(signal)
        else if ('error' in answer) throw answer.error
        else if ('until' in answer) await answer.until
        else {
          if ('afterMs' in answer) await sleep(this.#clock, answer.afterMs, signal)
          this.pulled++
          yield 'part' in answer ? answer.part : answer
        }
        signal.throwIfAborted()
      }
      await aborted(signal)
    } finally {
      this.open--
    }
  }
}

/** A time within the first second of the simulation. */
export function at(nanos: number): CommitTimestamp {
  return `2026-01-01T00:00:00.${String(nanos).padStart(9, '0')}Z`
}

export function part(...records: ChangeStreamRecord[]): QueryPart {
  return { records }
}

export function resumable(...records: ChangeStreamRecord[]): QueryPart {
  return { records, resumeToken: Buffer.from(String(records.length)) }
}

/** A record of one or more rows; its transaction id is `name`, so that row 0 has the id `<name>/00000000/0`. */
export function data(nanos: number, name: string, keys: readonly string[] = [name], token = 'a'): ChangeStreamRecord {
  return {
    kind: 'data',
    bytes: 100 * keys.length,
    record: {
      partitionToken: token,
      commitTimestamp: at(nanos),
      recordSequence: '00000000',
      serverTransactionId: name,
      isLastRecordInTransactionInPartition: true,
      tableName: 'Orders',
      valueCaptureType: 'NEW_VALUES',
      columnTypes: [],
      mods: keys.map((Id) => ({ keys: { Id }, newValues: { Note: 'text' }, oldValues: {} })),
      modType: 'UPDATE',
      numberOfRecordsInTransaction: 1,
      numberOfPartitionsInTransaction: 1,
      transactionTag: '',
      isSystemTransaction: false,
    },
  }
}

export function heartbeat(nanos: number): ChangeStreamRecord {
  return { kind: 'heartbeat', record: { timestamp: at(nanos) } }
}

/** Child token -> its parents. */
export function children(nanos: number, of: Readonly<Record<string, readonly string[]>>): ChangeStreamRecord {
  const list = Object.entries(of).map(([token, parentTokens]) => ({ token, parentTokens }))
  return {
    kind: 'children',
    record: { startTimestamp: at(nanos), recordSequence: '00000001', children: list },
  }
}

/** New partitions of a stream with mutable key ranges. */
export function start(nanos: number, ...tokens: string[]): ChangeStreamRecord {
  return { kind: 'start', record: { startTimestamp: at(nanos), recordSequence: '00000000', tokens } }
}

export function endOf(token: string, nanos: number): ChangeStreamRecord {
  return { kind: 'end', record: { endTimestamp: at(nanos), recordSequence: '00000009', token } }
}

export function moved(
  nanos: number,
  { from = [], to = [], sequence = '00000005' }: Partial<Record<'from' | 'to', string[]>> & { sequence?: string },
): ChangeStreamRecord {
  const record = { commitTimestamp: at(nanos), recordSequence: sequence, token: '', moveInFrom: from, moveOutTo: to }
  return { kind: 'event', record }
}

/** The server's answer to a query that it ends with this status. */
export function failed(status: string): { readonly error: SourceError } {
  return { error: new SourceError(`reading failed with ${status}`, { status, partition: 'a' }) }
}

/** The answers to the first query: these partitions. */
export function roots(...tokens: string[]): readonly (readonly Answer[])[] {
  return [[part(children(0, Object.fromEntries(tokens.map((token) => [token, []])))), 'end']]
}

/** An error that a retry can cure. */
export function broken(): { readonly error: SourceError } {
  return { error: new SourceError('UNAVAILABLE', { retryable: true }) }
}

export interface ProbeOptions extends Partial<SourceContext> {
  readonly source?: Partial<SpannerChangeStreamOptions>
  /** @default true */
  readonly acksAll?: boolean
}

/** One run of the source, read by a consumer that acks at once or leaves it to the test. */
export class Probe {
  readonly run: SourceRun<Change>
  readonly store: PartitionStore
  readonly context: SourceContext
  readonly taken: Delivery<Change>[] = []
  readonly marks: CommitTimestamp[] = []
  /** How much had been taken when each mark came. */
  readonly takenAtMark: number[] = []
  readonly warnings: { readonly message: string; readonly fields: Readonly<Record<string, unknown>> }[] = []
  /** Resolves when the stream ends; rejects with its error. */
  readonly ended: Promise<void>
  readonly #clock: Clock

  constructor(clock: Clock, client: ChangeStreamClient, { source, acksAll = true, ...context }: ProbeOptions = {}) {
    const warn: Logger['warn'] = (message, fields = {}) => this.warnings.push({ message, fields })
    this.#clock = clock
    this.store = context.store ?? memoryPartitionStore({ clock })
    this.context = {
      ...aloneContext('probe'),
      owner: 'probe',
      clock,
      random: () => 0.5,
      policy: errorPolicy(stop()),
      logger: { debug: () => undefined, info: () => undefined, warn, error: warn },
      ...context,
      store: this.store,
    }
    const options = { database: DATABASE, stream: 'S', start: at(0), client, ...source }
    this.run = spannerChangeStream(options as SpannerChangeStreamOptions & { readonly unit?: 'row' }).open(this.context)
    this.ended = this.#read(acksAll)
    // Whoever awaits it hears of a failure; those who do not, do not care.
    this.ended.catch(() => undefined)
  }

  get ids(): string[] {
    return this.taken.map(({ id }) => id.split('/')[0]!)
  }

  delivery(name: string): Delivery<Change> {
    const found = this.taken.findLast(({ id }) => id.startsWith(`${name}/`))
    if (found === undefined) throw new Error(`${name} was not delivered`)
    return found
  }

  /** Lets simulated time pass until it is so. */
  async until(isSo: () => boolean | Promise<boolean>): Promise<void> {
    while (!(await isSo())) await sleep(this.#clock, 10)
  }

  async table(): Promise<PartitionTable> {
    return await this.store.open(this.context.pipeline)
  }

  async states(): Promise<Record<string, string>> {
    const rows = await (await this.table()).list()
    return Object.fromEntries(rows.map(({ token, state }) => [token, state]))
  }

  async #read(acksAll: boolean): Promise<void> {
    for await (const item of this.run.stream) {
      if (isMark(item)) {
        this.marks.push(item.timestamp)
        this.takenAtMark.push(this.taken.length)
        continue
      }
      this.taken.push(item)
      if (acksAll) item.ack()
    }
  }
}

/** A store some of whose calls behave as a test says. */
export function withTable(
  store: PartitionStore,
  change: (table: PartitionTable) => Partial<PartitionTable>,
): PartitionStore {
  return {
    name: store.name,
    async open(pipeline) {
      const table = await store.open(pipeline)
      const unchanged: PartitionTable = {
        list: () => table.list(),
        get: (...args) => table.get(...args),
        createRoot: (...args) => table.createRoot(...args),
        reopen: (...args) => table.reopen(...args),
        claim: (...args) => table.claim(...args),
        addChildren: (...args) => table.addChildren(...args),
        advance: (...args) => table.advance(...args),
        checkpoint: (...args) => table.checkpoint(...args),
        finish: (...args) => table.finish(...args),
        release: (...args) => table.release(...args),
      }
      return { ...unchanged, ...change(table) }
    },
    close: () => store.close(),
  }
}

/** Runs a test in simulated time: what waits for more than a few simulated hours fails. */
export async function simulate<R>(body: (clock: VirtualClock) => Promise<R>): Promise<R> {
  const clock = new VirtualClock({ maxSimulatedMs: 4 * 3_600_000 })
  return await clock.run(() => body(clock))
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) return reject(signal.reason)
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
  })
}

const DATABASE = 'projects/p/instances/i/databases/d'
