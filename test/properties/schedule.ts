/** One simulated life of a pipeline: a random history, faults, crashes and restarts, judged by the auditor. */
import fc from 'fast-check'
import { type Clock, sleep, systemClock } from '../../src/core/clock.ts'
import type { OnError } from '../../src/core/error-policy.ts'
import { OperatorError } from '../../src/core/errors.ts'
import type { Stage } from '../../src/core/stage.ts'
import type { ChangeStreamClient, Dialect, PartitionMode } from '../../src/model/change-stream.ts'
import { timestampFromMs } from '../../src/model/commit-timestamp.ts'
import { type Change, changeId, type Gap, rowKey } from '../../src/model/data-change-record.ts'
import { batch, filter, map, parMap, tap } from '../../src/operators/index.ts'
import { definePipeline } from '../../src/runtime/define-pipeline.ts'
import { type RunningPipeline, runPipeline } from '../../src/runtime/run-pipeline.ts'
import {
  type GrpcCode,
  SeededRandom,
  SimulatedStream,
  SimulationStalledError,
  VirtualClock,
} from '../../src/simulator/index.ts'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { memoryPartitionStore, type PartitionStore } from '../../src/stores/index.ts'
import { audit, type Violation } from '../support/auditor.ts'
import { Fate, type Trouble } from '../support/fate.ts'
import { History, movesOf } from '../support/history.ts'
import { recordedClient, recordedSink, recordedStore } from '../support/recorded-edges.ts'

/** What ends one run before its time. */
export type Disruption =
  | { readonly kind: 'crash'; readonly step: number; readonly side: 'before' | 'after' }
  | { readonly kind: 'drain' | 'close' | 'die'; readonly afterMs: number }
  /** Dies, and what it had on the way to the store arrives later: others may own its partitions by then. */
  | { readonly kind: 'linger'; readonly afterMs: number; readonly lateMs: number }

export interface Schedule {
  readonly seed: number
  readonly dialect: Dialect
  readonly mode: PartitionMode
  readonly transactions: number
  readonly keys: number
  readonly pauseMs: number
  readonly initialPartitions: number
  readonly topologyChance: number
  readonly tieChance: number
  /** What is older than this is lost, with a gap in its place; 0 for a stream that keeps everything. */
  readonly retentionMs: number
  /** How long nobody reads between two runs. */
  readonly outageMs: number
  /** Changes after the end must not be delivered. */
  readonly endsEarly: boolean
  readonly maxInFlight: number
  readonly maxPartitions: number
  readonly concurrency: number
  readonly order: 'key' | 'source'
  /** Changes in one batch; 0 for no batches. */
  readonly batchItems: number
  readonly lanes: 'one' | 'four' | 'key'
  readonly handlerMs: number
  readonly handlerFailures: number
  readonly poison: number
  /** How often a failing write is tried before the run stops. */
  readonly attempts: number
  readonly queryFaults: number
  readonly permanentFaults: boolean
  readonly storeTrouble: number
  readonly sinkTrouble: number
  /** The longest way to the store and back, each; some are longer than a tick. */
  readonly storeDelayMs: number
  readonly sinkDelayMs: number
  readonly disruptions: readonly Disruption[]
  /** The faults end that long after the last run has begun. */
  readonly healAfterMs: number
  /** The next worker is started while the one before still runs: it must stand by. */
  readonly standby: boolean
}

/** Lives are short or long: most moments should lie inside of them. */
const moment = fc.oneof(...[200, 2_000, 12_000].map((max) => fc.integer({ min: 0, max })))

const crash: fc.Arbitrary<Disruption> = fc.record({
  kind: fc.constant('crash' as const),
  step: fc.integer({ min: 1, max: 120 }),
  side: fc.constantFrom('before' as const, 'after' as const),
})
const stop: fc.Arbitrary<Disruption> = fc.record({
  // A drain promises most, so it comes most often.
  kind: fc.constantFrom<('drain' | 'close' | 'die')[]>('drain', 'drain', 'drain', 'close', 'close', 'die'),
  afterMs: moment,
})
const linger: fc.Arbitrary<Disruption> = fc.record({
  kind: fc.constant('linger' as const),
  afterMs: moment,
  // A lease lasts longer the slower the store is: some of these are longer than any.
  lateMs: fc.oneof(fc.integer({ min: 1_000, max: 6_000 }), fc.integer({ min: 8_000, max: 20_000 })),
})
const disruption = fc.oneof(crash, stop, stop, linger, linger)

/** Small numbers are where things meet. */
const upTo = (small: number, large: number): fc.Arbitrary<number> =>
  fc.oneof(fc.integer({ min: 1, max: small }), fc.integer({ min: 1, max: large }))
const rarely = (max: number): fc.Arbitrary<number> => fc.constantFrom(0, 0, max / 20, max / 5, max)

const free: fc.Arbitrary<Schedule> = fc.record({
  seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
  dialect: fc.constantFrom('googlesql' as const, 'postgresql' as const),
  mode: fc.constantFrom('immutable' as const, 'mutable' as const),
  transactions: fc.integer({ min: 1, max: 60 }),
  keys: upTo(4, 25),
  pauseMs: fc.constantFrom(0, 20, 200, 1000, 6000),
  initialPartitions: fc.integer({ min: 1, max: 4 }),
  topologyChance: fc.constantFrom(0, 0.05, 0.15, 0.35),
  tieChance: fc.constantFrom(0, 0.1, 0.6, 0.9),
  // Long enough that what can be read still can be when a slow store has answered.
  retentionMs: fc.constantFrom(0, 0, 0, 100_000, 300_000),
  outageMs: fc.constantFrom(0, 0, 0, 5_000, 120_000, 400_000),
  endsEarly: fc.boolean(),
  maxInFlight: upTo(8, 200),
  maxPartitions: fc.constantFrom(1, 2, 1000),
  concurrency: upTo(3, 40),
  order: fc.constantFrom('key' as const, 'source' as const),
  batchItems: fc.constantFrom(0, 0, 2, 5),
  lanes: fc.constantFrom('one' as const, 'four' as const, 'key' as const),
  handlerMs: fc.constantFrom(0, 10, 300),
  handlerFailures: rarely(0.2),
  poison: rarely(0.4),
  attempts: fc.integer({ min: 1, max: 8 }),
  queryFaults: rarely(0.2),
  permanentFaults: fc.boolean(),
  storeTrouble: rarely(0.15),
  sinkTrouble: rarely(0.2),
  storeDelayMs: fc.constantFrom(0, 0, 50, 1200, 1200),
  sinkDelayMs: fc.constantFrom(0, 20, 200, 1000, 1000),
  disruptions: fc.array(disruption, { maxLength: 4 }),
  healAfterMs: fc.constantFrom(0, 1000, 10_000),
  standby: fc.boolean(),
})

/** Partitions come and go while nobody reads, and the stream forgets them: left to chance that is rare. */
const lost = { retentionMs: 100_000, outageMs: 120_000, pauseMs: 6000, standby: false, endsEarly: false } as const

/** Ranges keep moving while their readers have hardly any room: each move is an occasion to overtake. */
const moving: fc.Arbitrary<Schedule> = fc
  .tuple(
    free,
    fc.record({
      mode: fc.constant('mutable' as const),
      retentionMs: fc.constant(0),
      transactions: fc.integer({ min: 40, max: 60 }),
      keys: fc.integer({ min: 2, max: 10 }),
      pauseMs: fc.constant(0),
      initialPartitions: fc.integer({ min: 2, max: 4 }),
      topologyChance: fc.constant(0.35),
      tieChance: fc.constantFrom(0.6, 0.9),
      maxInFlight: fc.integer({ min: 1, max: 4 }),
    }),
  )
  .map(([schedule, moves]) => ({ ...schedule, ...moves }))

export const anySchedule: fc.Arbitrary<Schedule> = fc.oneof(
  { weight: 8, arbitrary: free },
  { weight: 2, arbitrary: moving },
  {
    weight: 1,
    arbitrary: fc
      .tuple(free, fc.integer({ min: 40, max: 60 }), fc.constantFrom(0.15, 0.35))
      .map(([schedule, transactions, topologyChance]) => ({ ...schedule, ...lost, transactions, topologyChance })),
  },
)

/** The schedule that belongs to a seed: what `--seed` repeats. */
export function scheduleOfSeed(seed: number): Schedule {
  return { ...fc.sample(anySchedule, { seed, numRuns: 1 })[0]!, seed }
}

export interface Verdict {
  readonly violations: readonly Violation[]
  readonly history: History
  readonly stream: SimulatedStream
  readonly runs: number
}

/** How the workers reach the stream. */
export interface Door {
  readonly clock: Clock
  /** Time runs this many times faster than the schedule says: for doors with a real clock. */
  readonly speed: number
  connect(stream: SimulatedStream): Promise<{ client(): ChangeStreamClient; close(): Promise<void> }>
}

/** The schedule that a property found: what `--seed` with `--path` repeats. */
export function scheduleOfPath(seed: number, path: string): Schedule {
  return fc.sample(anySchedule, { seed, path, numRuns: 1 })[0]!
}

/** Runs a schedule in simulated time, through the in-process door or a client of one's own. */
export async function runSchedule(
  schedule: Schedule,
  clientOf: (stream: SimulatedStream) => ChangeStreamClient = (stream) => stream.client(),
): Promise<Verdict> {
  const clock = new VirtualClock({ maxSimulatedMs: MAX_SIMULATED_MS })
  const door: Door = {
    clock,
    speed: 1,
    connect: (stream) => Promise.resolve({ client: () => clientOf(stream), close: () => Promise.resolve() }),
  }
  const world = new World(schedule, door)
  try {
    await clock.run(() => world.live())
  } catch (error) {
    if (!(error instanceof SimulationStalledError)) throw error
  }
  return world.judge()
}

/** Runs a schedule in real time through another door. */
export async function runScheduleThrough(door: Omit<Door, 'clock'>, schedule: Schedule): Promise<Verdict> {
  const world = new World(schedule, { ...door, clock: systemClock })
  await world.live()
  return world.judge()
}

class World {
  readonly #schedule: Schedule
  readonly #door: Door
  readonly #clock: Clock
  readonly #random: SeededRandom
  readonly #stream: SimulatedStream
  readonly #history = new History()
  readonly #store: PartitionStore
  readonly #poison = new Set<string>()
  readonly #end: string
  readonly #endings: Promise<string>[] = []
  #runs = 0
  #failures = 0
  #isCompleted = false

  constructor(schedule: Schedule, door: Door) {
    const { seed, dialect, mode, initialPartitions, tieChance, transactions, pauseMs, endsEarly } = schedule
    const retentionMs = schedule.retentionMs / door.speed || FOREVER_MS
    this.#schedule = schedule
    this.#door = door
    this.#clock = door.clock
    this.#random = new SeededRandom(seed)
    this.#stream = new SimulatedStream({
      seed,
      clock: door.clock,
      dialect,
      mode,
      initialPartitions,
      tieChance,
      retentionMs,
    })
    this.#stream.defineTable({
      name: 'Orders',
      columns: [
        { name: 'Id', type: 'INT64', isPrimaryKey: true },
        { name: 'Total', type: 'INT64' },
      ],
    })
    this.#store = memoryPartitionStore({ clock: door.clock })
    const workMs = transactions * (pauseMs + 1) * (endsEarly ? 0.5 : 1) + (endsEarly ? 0 : 1000)
    this.#end = timestampFromMs(door.clock.now() + workMs / door.speed)
  }

  async live(): Promise<void> {
    const { client, close } = await this.#door.connect(this.#stream)
    try {
      this.#injectFaults()
      const workload = this.#work()
      let running: Promise<unknown> = Promise.resolve()
      for (const disruption of this.#schedule.disruptions) {
        const before = running
        running = this.#run(client(), disruption)
        if (!this.#schedule.standby) {
          await running
          // What a dead run left on its way is to meet the next owner.
          const isNext = disruption.kind === 'linger'
          if (!isNext) await sleep(this.#clock, this.#schedule.outageMs / this.#door.speed)
        }
        await before
      }
      await Promise.all([running, workload])
      // What the faults leave behind when they end must not hold up the run that is under way.
      const last = this.#run(client(), undefined)
      await sleep(this.#clock, this.#schedule.healAfterMs / this.#door.speed)
      this.#stream.heal()
      this.#isCompleted = (await last) === 'finished'
      while (!this.#isCompleted && this.#failures < MAX_FAILURES) {
        this.#isCompleted = (await this.#run(client(), undefined)) === 'finished'
      }
      await Promise.all(this.#endings)
    } finally {
      await close()
    }
  }

  judge(): Verdict {
    const { maxInFlight } = this.#schedule
    const changes = this.#stream.ledger.changes
    const partitions = this.#stream.lineage().map(({ token, parents, start, end }) => ({
      token,
      parents,
      start,
      end: end ?? null,
    }))
    const moves = this.#schedule.mode === 'mutable' ? movesOf(this.#stream.ledger.topology) : []
    const violations = audit({ changes, partitions, moves }, this.#history, {
      start: this.#stream.createdAt,
      end: this.#end,
      limits: { maxInFlight, maxInFlightBytes: MAX_BYTES, maxRecordBytes: 100_000 },
      completed: this.#isCompleted,
    })
    return { violations, history: this.#history, stream: this.#stream, runs: this.#runs }
  }

  #injectFaults(): void {
    const { queryFaults, permanentFaults } = this.#schedule
    if (queryFaults === 0) return
    this.#stream.injectFaults({
      errors: queryFaults,
      codes: permanentFaults ? [...PASSING_CODES, ...PERMANENT_CODES] : PASSING_CODES,
      stalls: queryFaults / 2,
      earlyEnds: Math.min(0.3, queryFaults * 3),
      duplicateTails: Math.min(1, queryFaults * 5),
      slowStarts: queryFaults / 10,
      kills: queryFaults / 20,
    })
  }

  /** Commits, splits, moves and merges until the history is written. */
  async #work(): Promise<void> {
    const { transactions, pauseMs, topologyChance } = this.#schedule
    const random = this.#random.fork('work')
    for (let n = 0; n < transactions; n++) {
      if (pauseMs > 0) await sleep(this.#clock, random.int(2 * pauseMs) / this.#door.speed)
      this.#commit(random, n)
      if (!random.chance(topologyChance)) continue
      // Several at the time of the change: some of them are seen before the others.
      for (let more = random.int(4); more > 0; more--) this.#commit(random, n)
      this.#changeTopology(random)
    }
  }

  #commit(random: SeededRandom, n: number): void {
    const { keys, poison } = this.#schedule
    const ids = new Set(Array.from({ length: 1 + random.int(4) }, () => String(random.int(keys))))
    const writes = [...ids].map((Id) => {
      const exists = this.#stream.row('Orders', { Id }) !== undefined
      const op = !exists ? 'insert' : random.chance(0.15) ? 'delete' : 'update'
      return { table: 'Orders', op, keys: { Id }, ...(op !== 'delete' && { values: { Total: String(n) } }) } as const
    })
    const before = this.#stream.ledger.changes.length
    this.#stream.commit(writes)
    for (const { id } of this.#stream.ledger.changes.slice(before)) if (random.chance(poison)) this.#poison.add(id)
  }

  #changeTopology(random: SeededRandom): void {
    const live = this.#stream.livePartitions()
    const at = random.int(live.length)
    const other = live[random.int(live.length)]!
    const isMutable = this.#schedule.mode === 'mutable'
    const kind = random.int(isMutable ? 7 : 3)
    // Broken off behind its child records: they are no evidence for the query that follows.
    if (this.#schedule.queryFaults > 0 && random.chance(0.5)) {
      const { token } = live[at]!
      this.#stream.injectFaults([{ token, message: 'end', fault: { kind: 'error', code: 'UNAVAILABLE' } }])
      if (random.chance(0.5)) this.#stream.injectFaults([{ token, message: 'children', fault: { kind: 'early-end' } }])
    }
    if (kind === 5) {
      // Round in a circle, all at one time.
      if (live.length > 2) this.#stream.rotateRanges([0, 1, 2].map((n) => live[(at + n) % live.length]!.token))
    } else if (kind === 6) {
      // Round in a circle, one after the other.
      for (let n = 0; n < live.length && live.length > 1; n++) {
        this.#stream.moveRange(live[n]!.token, live[(n + 1) % live.length]!.token)
      }
    } else if (kind > 2) {
      if (other.token === live[at]!.token) return
      if (kind === 3) this.#stream.moveRange(live[at]!.token, other.token)
      else this.#stream.swapRanges(live[at]!.token, other.token)
    } else if (kind === 0 && live.length < 12) this.#stream.split(live[at]!.token, 2 + random.int(2))
    else if (kind === 1) this.#stream.move(live[at]!.token)
    else if (at + 1 < live.length) this.#stream.merge(live[at]!.token, live[at + 1]!.token)
  }

  /** One process, from its start to its end or death; what a dead one leaves behind is awaited at the very end. */
  async #run(client: ChangeStreamClient, disruption: Disruption | undefined): Promise<string> {
    const run = ++this.#runs
    const owner = `worker-${run}`
    const random = this.#random.fork(owner)
    const drain = new AbortController()
    const close = new AbortController()
    const death = Promise.withResolvers<'dead'>()
    const crash = disruption?.kind === 'crash' ? disruption : undefined
    const fate = new Fate(random.fork('fate'), this.#clock, crash, () => {
      this.#history.runCrashed(run)
      close.abort()
      death.resolve('dead')
    })
    const disrupt = (): void => {
      if (disruption?.kind === 'drain') drain.abort()
      else if (disruption?.kind === 'close') close.abort()
      else if (disruption?.kind === 'linger') fate.die(disruption.lateMs / this.#door.speed)
      else fate.die()
    }
    const timer =
      disruption === undefined || disruption.kind === 'crash'
        ? undefined
        : this.#clock.after(disruption.afterMs / this.#door.speed, disrupt)
    this.#history.runStarted(run)
    const worker = this.#runWorker(run, owner, random, client, fate, drain.signal, close.signal)
    const ending = this.#noteEnd(run, fate, worker).finally(() => timer?.cancel())
    this.#endings.push(ending)
    return await Promise.race([ending, death.promise])
  }

  async #noteEnd(run: number, fate: Fate, worker: Promise<{ outcome: string }>): Promise<string> {
    let outcome: string
    try {
      outcome = (await worker).outcome
    } catch {
      this.#failures++
      outcome = 'failed'
    }
    const isClean = outcome === 'finished' || outcome === 'drained'
    if (!fate.isDead) this.#history.runEnded(run, isClean ? (outcome as 'finished' | 'drained') : 'failed')
    return fate.isDead ? 'dead' : outcome
  }

  async #runWorker(
    run: number,
    owner: string,
    random: SeededRandom,
    client: ChangeStreamClient,
    fate: Fate,
    drain: AbortSignal,
    close: AbortSignal,
  ): Promise<{ outcome: string }> {
    const { maxInFlight, maxPartitions, lanes, storeTrouble, sinkTrouble, storeDelayMs, sinkDelayMs } = this.#schedule
    const { speed } = this.#door
    const trouble = (chance: number, delayMs: number): Trouble => ({
      refusals: chance / 2,
      lostAnswers: chance / 2,
      maxDelayMs: delayMs / speed,
    })
    const sink = recordedSink(
      run,
      this.#history,
      fate,
      { ...trouble(sinkTrouble, sinkDelayMs), halfBatches: sinkTrouble },
      random.fork('sink'),
      { one: undefined, four: (key: string) => String(key.length % 4), key: (key: string) => key }[lanes],
      (gap) => this.#noteGap('gap-written', run, gap),
    )
    let running: RunningPipeline | undefined
    const pipeline = definePipeline<Item, Item | readonly Item[]>({
      name: 'schedule',
      source: spannerChangeStream({
        database: 'projects/p/instances/i/databases/d',
        stream: this.#stream.name,
        start: this.#stream.createdAt,
        end: this.#end,
        heartbeatMs: Math.max(100, 1000 / speed),
        maxPartitions,
        onGap: 'skip',
        client: recordedClient(client, run, this.#history, fate),
      }),
      steps: (changes) => this.#steps(run, random, changes, () => running),
      sink,
      store: recordedStore(this.#store, run, owner, this.#history, fate, trouble(storeTrouble, storeDelayMs)),
      onError: this.#policy(run, random.fork('policy')),
      maxInFlight,
      maxInFlightBytes: MAX_BYTES,
      checkpointIntervalMs: 500 / speed,
      // A store that takes about as long as a lease lasts keeps nobody: a run would stop by itself again and again.
      leaseMs: (3000 + 6 * storeDelayMs) / speed,
      drainTimeoutMs: 30_000 / speed,
    })
    const onStart = (started: RunningPipeline): void => {
      running = started
    }
    const stopSampling = this.#sampleLowWatermark(run, fate, () => running)
    try {
      const jitter = random.fork('jitter')
      return await runPipeline(pipeline, {
        clock: this.#clock,
        random: () => jitter.next(),
        drain,
        close,
        owner,
        onStart,
      })
    } finally {
      stopSampling()
      if (running !== undefined && !fate.isDead) this.#history.gapCount(run, running.status().gaps)
    }
  }

  #noteGap(type: 'gap-delivered' | 'gap-written', run: number, { partitionToken: token, from, to }: Gap): void {
    const { retentionMs } = this.#stream
    const expiredBefore = timestampFromMs(this.#clock.now() - retentionMs + retentionMs / 20)
    this.#history.gap(type, run, { token, from, to }, expiredBefore)
  }

  #steps(
    run: number,
    random: SeededRandom,
    changes: Stage<Item>,
    running: () => RunningPipeline | undefined,
  ): Stage<Item | readonly Item[]> {
    const { concurrency, order, handlerMs, handlerFailures, batchItems } = this.#schedule
    const delays = random.fork('handler')
    const clock = this.#clock
    const handled = changes.pipe(
      tap((change) => {
        if (change.op === 'gap') this.#noteGap('gap-delivered', run, change)
        else this.#history.delivered(run, { id: changeId(change), key: rowKey(change.table, change.keys) })
        const status = running()?.status()
        if (status !== undefined) this.#history.inFlight(run, status.inFlight, status.inFlightBytes)
        if (status?.lowWatermark !== undefined) this.#history.lowWatermark(run, status.lowWatermark)
      }),
      filter(() => true),
      map((change) => change),
      parMap(
        async (change, { signal }) => {
          if (handlerMs > 0) await sleep(clock, delays.int(handlerMs) / this.#door.speed, signal)
          if (change.op !== 'gap' && this.#poison.has(changeId(change))) throw new Error(POISON)
          if (delays.chance(handlerFailures)) throw new Error('injected: the handler failed')
          return change
        },
        { concurrency, order, clock },
      ),
    )
    if (batchItems === 0) return handled
    return handled.pipe(batch({ maxItems: batchItems, maxWaitMs: 100 / this.#door.speed, clock }))
  }

  /** Poison is given up, by the user's own word; anything else is tried a few times and then stops the run. */
  #policy(run: number, random: SeededRandom): OnError {
    // A run that stopped makes the next one more patient, so that some run comes to its end.
    const attempts = this.#schedule.attempts + this.#failures
    return (error, { value, attempt }) => {
      if (error instanceof OperatorError && (error.cause as Error).message === POISON) {
        this.#history.skipped(run, changeId(value as Change))
        return 'skip'
      }
      return attempt < attempts ? { retryInMs: random.int(200) / this.#door.speed } : 'stop'
    }
  }

  #sampleLowWatermark(run: number, fate: Fate, running: () => RunningPipeline | undefined): () => void {
    let timer = this.#clock.after(0, () => undefined)
    let last: string | undefined
    const sample = (): void => {
      const value = running()?.status().lowWatermark
      if (value !== undefined && value !== last && !fate.isDead) this.#history.lowWatermark(run, value)
      last = value
      timer = this.#clock.after(150 / this.#door.speed, sample)
    }
    sample()
    return () => timer.cancel()
  }
}

type Item = Change | Gap

const MAX_SIMULATED_MS = 3 * 3_600_000
const FOREVER_MS = 7 * 86_400_000
const MAX_BYTES = 1_000_000
const MAX_FAILURES = 60
const POISON = 'injected: this change can never be handled'
const PASSING_CODES: readonly GrpcCode[] = [
  'UNAVAILABLE',
  'INTERNAL',
  'DEADLINE_EXCEEDED',
  'ABORTED',
  'RESOURCE_EXHAUSTED',
  'CANCELLED',
  'UNKNOWN',
]
const PERMANENT_CODES: readonly GrpcCode[] = [
  'PERMISSION_DENIED',
  'UNAUTHENTICATED',
  'FAILED_PRECONDITION',
  'DATA_LOSS',
]
