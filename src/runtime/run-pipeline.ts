/** Runs a pipeline from its source to its sinks, until it is finished, drained, closed or failed. */
import { type Clock, systemClock, type Timer } from '../core/clock.ts'
import { describeThrown } from '../core/errors.ts'
import { linkSignals } from '../core/signals.ts'
import { isMark, type Stage } from '../core/stage.ts'
import { type CommitTimestamp, type Delivery, type Logger, type Sink, silentLogger } from '../core/types.ts'
import type { SourceStatus } from '../sources/source.ts'
import type { Pipeline } from './define-pipeline.ts'
import { type OpenedSource, openSource } from './open-source.ts'
import { SinkLanes } from './sink-lanes.ts'

export interface RunOptions {
  /**
   * For a pipeline that has no name of its own.
   * @default the source's name
   */
  readonly name?: string
  readonly clock?: Clock
  /** For the jitter of waits; seeded in simulations. */
  readonly random?: () => number
  readonly logger?: Logger
  /** An abort finishes what is in flight, stores the progress and ends the run. */
  readonly drain?: AbortSignal
  /** An abort ends the run at once; what is in flight comes again at the next start. */
  readonly close?: AbortSignal
  /** Names this run in leases. */
  readonly owner?: string
  readonly onStart?: (run: RunningPipeline) => void
}

export interface RunningPipeline {
  status(): RunStatus
}

export interface RunStatus extends SourceStatus {
  readonly pipeline: string
  readonly state: 'starting' | 'standby' | 'running' | 'draining' | 'ended'
  /** Items that became durable at the sinks. */
  readonly written: number
}

export interface RunSummary {
  readonly pipeline: string
  readonly outcome: 'finished' | 'drained' | 'closed'
  readonly delivered: number
  readonly settled: number
  readonly skipped: number
  readonly written: number
  readonly rereads: number
  readonly elapsedMs: number
  readonly lowWatermark: CommitTimestamp | undefined
  /** Deliveries that were open when the run ended: they come again at the next start. */
  readonly unsettled: number
}

/**
 * Runs a pipeline. Resolves when it finished, was drained or was closed; rejects with the error that stopped it.
 * Either way the progress up to the last gapless settlement is stored, and the sinks are closed.
 */
export async function runPipeline<In, Out>(pipeline: Pipeline<In, Out>, options: RunOptions = {}): Promise<RunSummary> {
  return await new PipelineRun(pipeline, options).run()
}

class PipelineRun<In, Out> {
  readonly #pipeline: Pipeline<In, Out>
  readonly #options: RunOptions
  readonly #clock: Clock
  readonly #logger: Logger
  readonly #stop = new AbortController()
  readonly #source: OpenedSource<In>
  #isDraining = false
  #drainTimer: Timer | undefined
  #isEnded = false
  /** Something ignored the signal to stop and may still be at work. */
  #isAbandoned = false
  #written = 0
  #unsettled = 0

  constructor(pipeline: Pipeline<In, Out>, options: RunOptions) {
    this.#pipeline = pipeline
    this.#options = options
    this.#clock = options.clock ?? systemClock
    this.#logger = options.logger ?? silentLogger
    this.#source = openSource(pipeline, options)
  }

  async run(): Promise<RunSummary> {
    const { drain, close, onStart } = this.#options
    const startedMs = this.#clock.now()
    const forgetDrain = onAbort(drain, () => this.#drain())
    const forgetClose = onAbort(close, () => this.#stop.abort(CLOSED))
    onStart?.({ status: () => this.#status() })
    let failure: { readonly error: unknown } | undefined
    try {
      await this.#withinGrace(this.#carry(this.#pipeline.steps(this.#source.run.stream)))
    } catch (error) {
      failure = { error }
      this.#stop.abort(error)
    } finally {
      forgetDrain()
      forgetClose()
      this.#drainTimer?.cancel()
    }
    failure = await this.#end(failure)
    const isCutShort = failure?.error === CLOSED || failure?.error === DRAIN_TIMEOUT
    if (failure !== undefined && !isCutShort) throw failure.error
    return this.#summary(startedMs, failure?.error)
  }

  /** Takes deliveries to the lanes of every sink, no faster than they are written. */
  async #carry(stream: Stage<Out>): Promise<void> {
    const { sinks, maxInFlight } = this.#pipeline
    // A lane that fails while the source is idle must end the wait for the next delivery as well.
    const failed = new AbortController()
    const { signal, unlink } = linkSignals(this.#stop.signal, failed.signal)
    const lanes = sinks.map(
      (sink) =>
        new SinkLanes(sink, {
          clock: this.#clock,
          signal,
          onWritten: (items) => {
            this.#written += items
          },
          onFailed: (error) => failed.abort(error),
        }),
    )
    try {
      for await (const chunk of stream.chunks(signal)) {
        const deliveries = chunk.filter((item) => !isMark(item)) as Delivery<Out>[]
        if (deliveries.length === 0) continue
        spread(deliveries, lanes)
        for (const lane of lanes) if (lane.pending >= maxInFlight) await lane.below(maxInFlight)
      }
      for (const lane of lanes) await lane.below(1)
    } catch (error) {
      // A write that goes on behind our back could overtake what the next run writes: stop them, and see them stop.
      failed.abort(error)
      await Promise.all(lanes.map((lane) => lane.stopped()))
      throw error
    } finally {
      unlink()
    }
  }

  /** Once the run is to stop, waits a little for what is under way, and then no longer. */
  #withinGrace(carrying: Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      let grace: Timer | undefined
      const forget = onAbort(this.#stop.signal, () => {
        grace = this.#clock.after(GRACE_MS, () => {
          this.#isAbandoned = true
          reject(this.#stop.signal.reason)
        })
      })
      carrying.then(resolve, reject).finally(() => {
        forget()
        grace?.cancel()
      })
    })
  }

  #drain(): void {
    if (this.#isDraining || this.#isEnded) return
    this.#isDraining = true
    this.#source.run.drain()
    this.#drainTimer = this.#clock.after(this.#pipeline.drainTimeoutMs, () => this.#stop.abort(DRAIN_TIMEOUT))
  }

  /** Closes everything, in the order of the flow; the first error wins, later ones are logged. */
  async #end(failure: { readonly error: unknown } | undefined): Promise<{ readonly error: unknown } | undefined> {
    let first = failure
    const close = async (what: string, closing: () => Promise<void> | undefined): Promise<void> => {
      try {
        await closing()
      } catch (error) {
        first ??= { error }
        if (first.error !== error) this.#logger.warn(`${what} could not be closed`, { error: describeThrown(error) })
      }
    }
    this.#unsettled = this.#source.run.status().inFlight
    await close('the source', () => this.#source.run.close({ keepLeases: this.#isAbandoned }))
    for (const sink of this.#pipeline.sinks) await close(sink.name, () => this.#closeSink(sink))
    await close('the partition store', () => this.#source.closeStore())
    this.#isEnded = true
    return first
  }

  /** A sink that hung while it wrote may hang again when it is closed: then it is left behind. */
  async #closeSink(sink: Sink<Out>): Promise<void> {
    if (!this.#isAbandoned) return await sink.close()
    const { promise: isOverdue, resolve } = Promise.withResolvers<void>()
    const grace = this.#clock.after(GRACE_MS, resolve)
    await Promise.race([sink.close(), isOverdue]).finally(() => grace.cancel())
  }

  #status(): RunStatus {
    const source = this.#source.run.status()
    return { ...source, pipeline: this.#source.name, state: this.#state(source), written: this.#written }
  }

  #state({ standbyFor, partitions, delivered }: SourceStatus): RunStatus['state'] {
    if (this.#isEnded) return 'ended'
    if (this.#isDraining) return 'draining'
    if (standbyFor !== undefined) return 'standby'
    return partitions.length > 0 || delivered > 0 ? 'running' : 'starting'
  }

  #summary(startedMs: number, cutShortBy: unknown): RunSummary {
    const { delivered, settled, skipped, rereads, lowWatermark } = this.#source.run.status()
    const outcome = cutShortBy === CLOSED ? 'closed' : this.#isDraining ? 'drained' : 'finished'
    return {
      pipeline: this.#source.name,
      outcome,
      delivered,
      settled,
      skipped,
      written: this.#written,
      rereads,
      elapsedMs: this.#clock.now() - startedMs,
      lowWatermark,
      unsettled: this.#unsettled,
    }
  }
}

/** Gives each sink its part of the duty: a delivery is settled when every sink has it. */
function spread<T>(deliveries: readonly Delivery<T>[], lanes: readonly SinkLanes<T>[]): void {
  if (lanes.length === 1) {
    lanes[0]!.add(deliveries)
    return
  }
  const parts = deliveries.map((delivery) => delivery.split(lanes.map(() => delivery.value)))
  for (const [index, lane] of lanes.entries()) lane.add(parts.map((part) => part[index]!))
}

function onAbort(signal: AbortSignal | undefined, listener: () => void): () => void {
  if (signal === undefined) return () => undefined
  if (signal.aborted) listener()
  signal.addEventListener('abort', listener, { once: true })
  return () => signal.removeEventListener('abort', listener)
}

const GRACE_MS = 2_000
const CLOSED = new Error('the run was closed')
const DRAIN_TIMEOUT = new Error('the drain took longer than drainTimeoutMs')
