/** The course of the demo: changes are made, the worker reads them, things break, and the judge looks on. */
import { sleep, systemClock } from '../../core/clock.ts'
import { StreamError } from '../../core/errors.ts'
import { timestampToMs } from '../../model/commit-timestamp.ts'
import {
  KEY_SPACE,
  type LedgerFault,
  type LedgerTopologyEvent,
  randomWorkload,
  SeededRandom,
  type SimulatedStream,
} from '../../simulator/index.ts'
import type { Display } from './display.ts'
import { Judge } from './judge.ts'
import { faultCounts, faultText, topologyCounts, topologyText } from './ledger-text.ts'
import { partitionRows } from './lineage.ts'
import { OutputTail } from './output-tail.ts'
import type { DemoEvent, DemoState } from './screen.ts'
import type { DemoResult } from './summary.ts'
import type { DemoWorker } from './worker.ts'

export interface DemoSetting {
  readonly stream: SimulatedStream
  readonly seed: number
  /** Row changes per second. */
  readonly rate: number
  /** The file that the worker writes. */
  readonly output: string
  readonly display: Display
  readonly hasCrashes: boolean
  startWorker(): DemoWorker
}

export class Demo {
  readonly #setting: DemoSetting
  readonly #judge: Judge
  readonly #tail: OutputTail
  readonly #random: SeededRandom
  readonly #startedMs = Date.now()
  #worker: DemoWorker
  #totalMs: number | undefined
  #salesBeganMs: number | undefined
  #crashes = 0

  // For the display.
  #phase = 'starting the worker'
  readonly #events: DemoEvent[] = []
  readonly #throughput: number[] = []
  #sampledMs = Date.now()
  #sampledDelivered = 0
  readonly #topology: LedgerTopologyEvent[] = []
  readonly #faults: LedgerFault[] = []

  constructor(setting: DemoSetting) {
    this.#setting = setting
    this.#judge = new Judge(setting.stream.ledger)
    this.#tail = new OutputTail(setting.output)
    this.#random = new SeededRandom(`demo ${setting.seed}`)
    this.#worker = setting.startWorker()
  }

  /**
   * Plays until `totalMs` have passed or `stop` says so, then waits until everything that was committed has arrived,
   * or nothing has for a long time. Throws if the worker ends by itself.
   */
  async play(totalMs: number | undefined, stop: AbortSignal): Promise<DemoResult> {
    this.#totalMs = totalMs
    const over = new AbortController()
    const ticking = setInterval(() => this.#tick(), TICK_MS)
    try {
      this.#note(`seed ${this.#setting.seed}`)
      await this.#until(() => this.#isWorkerRunning || stop.aborted, START_LIMIT_MS)
      await this.#sellAndBreak(stop, over.signal)
      this.#phase = 'finishing'
      this.#setting.stream.heal()
      await this.#arrivalOfEverything()
      await this.#endWorker()
      this.#readOutput()
      return this.#result()
    } finally {
      over.abort()
      clearInterval(ticking)
      this.#tail.close()
    }
  }

  async #sellAndBreak(stop: AbortSignal, over: AbortSignal): Promise<void> {
    const sales = new AbortController()
    const end = (): void => sales.abort()
    stop.addEventListener('abort', end, { once: true })
    over.addEventListener('abort', end, { once: true })
    if (stop.aborted) return
    this.#phase = 'running'
    this.#salesBeganMs = Date.now()
    this.#injectFaults()
    const selling = this.#sell(sales.signal)
    try {
      const crashing = this.#setting.hasCrashes ? this.#crashWorkers(sales.signal) : undefined
      await this.#until(() => this.#isTimeUp || sales.signal.aborted)
      await crashing
    } finally {
      end()
      await selling
    }
  }

  /** Makes as many changes as are due by the clock, so that a busy machine only makes them come in bursts. */
  async #sell(signal: AbortSignal): Promise<void> {
    const { stream, seed, rate } = this.#setting
    const { ledger } = stream
    for (let turn = 0; !signal.aborted; turn++) {
      const due = ((Date.now() - this.#salesBeganMs!) / 1000) * rate - ledger.forgottenChanges - ledger.changes.length
      const transactions = Math.ceil(due / ROWS_PER_TRANSACTION)
      const topologyChance = Math.min(0.2, (TOPOLOGY_CHANGES_PER_SECOND * ROWS_PER_TRANSACTION) / rate)
      const options = { seed: seed * 1_000_003 + turn, transactions, keys: 200, pauseMs: 0, topologyChance, signal }
      await randomWorkload(stream, options)
      await pause(20, signal)
    }
  }

  /** A message carries a few changes, so the chances per message follow from the rate. */
  #injectFaults(): void {
    const perSecond = (times: number): number => Math.min(0.05, (times * 2) / this.#setting.rate)
    this.#setting.stream.injectFaults({
      errors: perSecond(0.6),
      codes: ['UNAVAILABLE', 'INTERNAL', 'ABORTED'],
      earlyEnds: perSecond(0.3),
      stalls: perSecond(0.05),
      kills: perSecond(0.1),
    })
  }

  /** Kills the worker again and again, each time after it has delivered something, at a moment left to chance. */
  async #crashWorkers(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (!this.#isTimeUp || this.#crashes < MIN_CRASHES)) {
      this.#readOutput() // so that what the last worker wrote is not taken for the work of this one
      const before = this.#judge.verdict().delivered
      await this.#until(() => this.#judge.verdict().delivered > before || signal.aborted, START_LIMIT_MS)
      await pause(700 + this.#random.int(1500), signal)
      if (signal.aborted) return
      const worker = this.#worker
      worker.kill()
      await worker.exit
      this.#crashes++
      this.#note('crash: the worker was killed, the next one starts')
      this.#worker = this.#setting.startWorker()
    }
  }

  async #arrivalOfEverything(): Promise<void> {
    let arrived = -1
    let progressMs = Date.now()
    await this.#until(() => {
      const { lost, delivered } = this.#judge.verdict()
      if (delivered !== arrived) {
        arrived = delivered
        progressMs = Date.now()
      }
      return lost === 0 || Date.now() - progressMs > ARRIVAL_LIMIT_MS
    })
  }

  async #endWorker(): Promise<void> {
    const worker = this.#worker
    this.#phase = 'draining'
    worker.terminate()
    const late = setTimeout(() => worker.kill(), DRAIN_LIMIT_MS)
    const { code, signal } = await worker.exit
    clearTimeout(late)
    if (code !== 0) throw new StreamError('DEMO_WORKER', `the worker did not drain: ${code ?? signal}`)
  }

  get #isWorkerRunning(): boolean {
    return this.#worker.status?.state === 'running'
  }

  get #isTimeUp(): boolean {
    return this.#totalMs !== undefined && Date.now() - (this.#salesBeganMs ?? Date.now()) >= this.#totalMs
  }

  /** Waits; a worker that is gone without having been killed ends the demo. */
  async #until(isTrue: () => boolean, limitMs = Number.POSITIVE_INFINITY): Promise<void> {
    const deadlineMs = Date.now() + limitMs
    let worker = this.#worker
    let wasGone = false
    while (!isTrue()) {
      if (wasGone && worker === this.#worker) {
        throw new StreamError('DEMO_WORKER', 'the worker ended by itself')
      }
      if (Date.now() > deadlineMs) throw new StreamError('DEMO_WORKER', `the worker delivers nothing for ${limitMs} ms`)
      worker = this.#worker
      wasGone = worker.isGone
      await pause(50)
    }
  }

  #tick(): void {
    this.#readOutput()
    this.#sampleThroughput()
    this.#setting.display.update(this.#state())
  }

  #readOutput(): void {
    for (const line of this.#tail.readLines()) this.#judge.observe(line)
  }

  #noteNews(): void {
    const { ledger } = this.#setting.stream
    for (const event of newsSince(ledger.topology, this.#topology.at(-1))) {
      this.#topology.push(event)
      const text = topologyText(event)
      if (text !== undefined) this.#note(text)
    }
    for (const fault of newsSince(ledger.faults, this.#faults.at(-1))) {
      this.#faults.push(fault)
      this.#note(faultText(fault))
    }
  }

  #note(text: string): void {
    const event = { atMs: Date.now() - this.#startedMs, text }
    this.#events.push(event)
    if (this.#events.length > 100) this.#events.shift()
    this.#setting.display.event(event)
  }

  #sampleThroughput(): void {
    const elapsedMs = Date.now() - this.#sampledMs
    if (elapsedMs < SAMPLE_MS) return
    const { delivered } = this.#judge.verdict()
    this.#throughput.push(((delivered - this.#sampledDelivered) * 1000) / elapsedMs)
    if (this.#throughput.length > 500) this.#throughput.shift()
    this.#sampledDelivered = delivered
    this.#sampledMs = Date.now()
  }

  #state(): DemoState {
    const { stream } = this.#setting
    const nowMs = Date.now()
    const status = this.#worker.status
    const missing = this.#judge.oldestMissing()
    const isStandby = status?.state === 'standby'
    return {
      ...this.#result(),
      phase: isStandby ? 'next worker waits for the lease' : this.#phase,
      totalMs: this.#totalMs,
      throughput: this.#throughput,
      lagMs: missing === undefined ? 0 : Math.max(0, nowMs - timestampToMs(missing.commitTimestamp)),
      inFlight: status?.inFlight ?? 0,
      partitions: partitionRows(stream.lineage(), status?.partitions, KEY_SPACE, nowMs),
      events: this.#events,
    }
  }

  #result(): DemoResult {
    this.#noteNews()
    return {
      seed: this.#setting.seed,
      elapsedMs: Date.now() - this.#startedMs,
      verdict: this.#judge.verdict(),
      topology: topologyCounts(this.#topology),
      faults: faultCounts(this.#faults),
      crashes: this.#crashes,
    }
  }
}

/** What came after the last one seen; the ledger may have dropped that one by now. */
function newsSince<T>(list: readonly T[], last: T | undefined): T[] {
  return list.slice(last === undefined ? 0 : list.lastIndexOf(last) + 1)
}

async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  await sleep(systemClock, ms, signal).catch(() => undefined)
}

const TICK_MS = 125
const SAMPLE_MS = 250
const START_LIMIT_MS = 20_000
const ARRIVAL_LIMIT_MS = 15_000
const DRAIN_LIMIT_MS = 15_000
const MIN_CRASHES = 2
/** What `randomWorkload` makes on average. */
const ROWS_PER_TRANSACTION = 2.5
const TOPOLOGY_CHANGES_PER_SECOND = 0.9
