/** The parent's side of the crash tests: a served stream, worker processes that can be killed, and the verdict. */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { type Change, changeId, rowKey } from '../../src/model/data-change-record.ts'
import type { Partition } from '../../src/model/partition.ts'
import { type SeededRandom, type ServedStream, SimulatedStream, serveStream } from '../../src/simulator/index.ts'
import { sqlitePartitionStore } from '../../src/stores/index.ts'
import { checkNothingLost, checkOrderPerKey, type Violation } from './auditor.ts'
import type { CounterOrders } from './counter-worker.ts'
import type { FreezePoint, WorkerOrders, WorkerReport } from './crash-worker.ts'
import { gatherFacts, History } from './history.ts'

type ReportOf<K extends WorkerReport['kind']> = Extract<WorkerReport, { kind: K }>

/** A worker process. Reports are kept, so that none is missed however late a test asks for it. */
export class CrashWorker implements AsyncDisposable {
  readonly reports: WorkerReport[] = []
  readonly exited: Promise<void>
  readonly #process: ChildProcess
  readonly #listeners = new Set<() => void>()
  #errors = ''
  #hasExited = false

  constructor(compileCache: string, script: string = WORKER) {
    this.#process = spawn(process.execPath, ['--conditions=@millrace/source', script], {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...process.env, NODE_COMPILE_CACHE: compileCache, METADATA_SERVER_DETECTION: 'none' },
    })
    this.#process.stdin!.on('error', () => undefined) // a killed worker no longer listens
    this.#process.stderr!.setEncoding('utf8').on('data', (text: string) => {
      this.#errors += text
    })
    createInterface({ input: this.#process.stdout! }).on('line', (line) => {
      this.reports.push(JSON.parse(line) as WorkerReport)
      this.#notify()
    })
    this.exited = new Promise((resolve) => {
      this.#process.on('close', () => {
        this.#hasExited = true
        this.#notify()
        resolve()
      })
    })
  }

  start(orders: WorkerOrders | CounterOrders): void {
    this.#process.stdin!.write(`${JSON.stringify(orders)}\n`)
  }

  drain(): void {
    this.#process.stdin!.write('drain\n')
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#process.kill(signal)
  }

  async kill(): Promise<void> {
    this.#process.kill('SIGKILL')
    await this.exited
  }

  /** Resolves with the first report of this kind that passes the test, past ones included. */
  heard<K extends WorkerReport['kind']>(
    kind: K,
    test: (report: ReportOf<K>) => boolean = () => true,
  ): Promise<ReportOf<K>> {
    return this.#until(`report '${kind}'`, () =>
      this.reports.find((report): report is ReportOf<K> => report.kind === kind && test(report as ReportOf<K>)),
    )
  }

  /** How many items were written by this worker. */
  get written(): number {
    return this.reports.reduce((sum, report) => sum + (report.kind === 'written' ? report.items : 0), 0)
  }

  /** Resolves when so many items were written by this worker. */
  async wrote(items: number): Promise<void> {
    await this.#until(`${items} written items`, () => this.written >= items || undefined)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill()
  }

  #until<R>(what: string, find: () => R | undefined): Promise<R> {
    return new Promise((resolve, reject) => {
      const look = (): void => {
        const found = find()
        if (found === undefined && !this.#hasExited) return
        this.#listeners.delete(look)
        if (found !== undefined) resolve(found)
        else reject(new Error(`the worker ended without ${what}: ${this.#lastWords()}`))
      }
      this.#listeners.add(look)
      look()
    })
  }

  #lastWords(): string {
    return `${JSON.stringify(this.reports.filter(({ kind }) => kind !== 'written').slice(-3))}\n${this.#errors}`
  }

  #notify(): void {
    for (const listener of [...this.#listeners]) listener()
  }
}

/** A stream with a scripted history, served over gRPC, and a folder for what its workers leave behind. */
export class CrashSite implements AsyncDisposable {
  readonly stream: SimulatedStream
  readonly served: ServedStream
  readonly folder: string
  readonly #compileCache: string
  #workers: CrashWorker[] = []
  #names = 0

  private constructor(stream: SimulatedStream, served: ServedStream, compileCache: string) {
    this.stream = stream
    this.served = served
    this.folder = mkdtempSync(join(tmpdir(), 'millrace-crash-'))
    this.#compileCache = compileCache
  }

  static async open(seed: number, compileCache: string): Promise<CrashSite> {
    const stream = new SimulatedStream({ seed, initialPartitions: 2, latencyMs: [0, 2], maxPartRecords: 4 })
    stream.defineTable({
      name: 'Orders',
      columns: [
        { name: 'Id', type: 'INT64', isPrimaryKey: true },
        { name: 'Total', type: 'INT64' },
      ],
    })
    return new CrashSite(stream, await serveStream(stream), compileCache)
  }

  /** Writes every row once per round. */
  commitRounds(rounds: number, rows = 8): void {
    for (let round = 0; round < rounds; round++) {
      for (let row = 0; row < rows; row++) {
        const keys = { Id: String(row) }
        const op = this.stream.row('Orders', keys) === undefined ? 'insert' : 'update'
        this.stream.commit([{ table: 'Orders', op, keys, values: { Total: String(round) } }])
      }
    }
  }

  /** A split, a move and a merge, with changes of the same rows before, between and after. */
  commitHistory(rounds: number): void {
    this.commitRounds(rounds)
    const [first] = this.stream.livePartitions()
    const [half] = this.stream.split(first!.token)
    this.commitRounds(rounds)
    this.stream.move(half!)
    this.commitRounds(rounds)
    const [left, right] = this.stream.livePartitions()
    this.stream.merge(left!.token, right!.token)
    this.commitRounds(rounds)
  }

  /** The time of the last change. */
  get lastCommit(): string {
    return this.stream.ledger.changes.at(-1)!.commitTimestamp
  }

  /** Starts loading a process before it is needed. */
  spawn(): CrashWorker {
    const worker = new CrashWorker(this.#compileCache)
    this.#workers.push(worker)
    return worker
  }

  orders(options: Partial<WorkerOrders> = {}): WorkerOrders {
    const { host, database, stream } = this.served
    return {
      host,
      database,
      stream,
      start: this.stream.createdAt,
      statePath: join(this.folder, 'state.db'),
      outPath: join(this.folder, 'out.jsonl'),
      owner: `worker-${++this.#names}`,
      // No machine is so slow that a worker loses its lease while it works.
      leaseMs: 60_000,
      ...options,
    }
  }

  /**
   * Runs a worker until it freezes at the point, and kills it there. It reads without an end: heartbeats go on, so the
   * point comes however fast the worker is.
   */
  async runToKill(freeze: FreezePoint, worker: CrashWorker = this.spawn()): Promise<void> {
    worker.start(this.orders({ freeze }))
    await worker.heard('frozen')
    await worker.kill()
    this.expireLeases()
  }

  /** As if the leases of a dead worker had run out: its successor need not wait for that. */
  expireLeases(): void {
    using db = new DatabaseSync(join(this.folder, 'state.db'))
    db.exec('UPDATE partitions SET lease_until_ms = 0')
  }

  async runToEnd(end: string, worker: CrashWorker = this.spawn()): Promise<void> {
    worker.start(this.orders({ end }))
    await worker.heard('ended', ({ outcome }) => outcome === 'finished')
    await worker.exited
  }

  /** Resolves when every change of the stream is in the file; the worker may repeat some on the way there. */
  async allWritten(worker: CrashWorker): Promise<void> {
    const missing = new Set(this.stream.ledger.changes.map(({ id }) => id))
    for (let items = 1; missing.size > 0; items++) {
      await worker.wrote(items)
      // It may be at the next line already.
      const text = readFileSync(join(this.folder, 'out.jsonl'), 'utf8')
      for (const line of text.split('\n').slice(0, -1)) missing.delete(changeId(JSON.parse(line) as Change))
    }
  }

  async partitions(): Promise<Partition[]> {
    const store = sqlitePartitionStore({ path: join(this.folder, 'state.db') })
    try {
      return (await (await store.open('crash')).list()).toSorted((a, b) => (a.token < b.token ? -1 : 1))
    } finally {
      await store.close()
    }
  }

  lines(file = 'out.jsonl'): Change[] {
    const text = readFileSync(join(this.folder, file), 'utf8')
    if (!text.endsWith('\n')) throw new Error('the last line of the output is torn')
    const lines = text.slice(0, -1).split('\n')
    return lines.map((line) => JSON.parse(line) as Change)
  }

  /** P1 and P3 over the lines of the file, by the stream's own ledger. */
  violations(end: string, lines: readonly Change[] = this.lines()): Violation[] {
    const history = new History()
    for (const change of lines) {
      const { table, keys, commitTimestamp: timestamp } = change
      history.written(1, { id: changeId(change), key: rowKey(table, keys), timestamp })
    }
    const ledger = { changes: this.stream.ledger.changes, partitions: [] }
    const facts = gatherFacts(ledger, history.events, { start: this.stream.createdAt, end })
    return [...checkNothingLost(facts, { completed: true }), ...checkOrderPerKey(facts, { completed: true })]
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const workers = this.#workers
    this.#workers = []
    for (const worker of workers) await worker.kill()
    await this.served.close()
    rmSync(this.folder, { recursive: true, force: true })
  }
}

/** A seeded freeze point among the durable steps of all kinds. */
export function randomFreeze(random: SeededRandom, maxOccurrence: number): FreezePoint {
  return {
    step: 'any',
    side: random.chance(0.5) ? 'before' : 'after',
    occurrence: 1 + random.int(maxOccurrence),
  }
}

const WORKER = fileURLToPath(new URL('./crash-worker.ts', import.meta.url))
