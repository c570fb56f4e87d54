/** Runs a pipeline from its source to its sinks, until it is finished, drained, closed or failed. */
import { type Clock, systemClock, type Timer } from '../core/clock.ts'
import { ConfigError, describeThrown } from '../core/errors.ts'
import { settlesWithin } from '../core/signals.ts'
import { asStage, type Item, isMark, type Stage } from '../core/stage.ts'
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
    const { failed } = this.#source.run
    const startedMs = this.#clock.now()
    const forget = [
      onAbort(drain, () => this.#drain()),
      onAbort(close, () => this.#stop.abort(CLOSED)),
      onAbort(failed, () => this.#stop.abort(failed.reason)),
    ]
    let failure: { readonly error: unknown } | undefined
    try {
      onStart?.({ status: () => this.#status() })
      await this.#withinGrace(this.#carry(this.#steps()))
      // What failed after the end of the stream was given up by nobody.
      failed.throwIfAborted()
    } catch (error) {
      failure = { error }
      this.#stop.abort(error)
    } finally {
      for (const stopListening of forget) stopListening()
      this.#drainTimer?.cancel()
    }
    failure = await this.#end(failure)
    const isCutShort = failure?.error === CLOSED || failure?.error === DRAIN_TIMEOUT
    if (failure !== undefined && !isCutShort) throw failure.error
    return this.#summary(startedMs, failure?.error)
  }

  #steps(): Stage<Out> {
    const stream: unknown = this.#pipeline.steps(this.#source.run.stream)
    if (typeof (stream as AsyncIterable<Item<Out>> | undefined)?.[Symbol.asyncIterator] === 'function') {
      return asStage(stream as AsyncIterable<Item<Out>>)
    }
    throw new ConfigError('definePipeline: steps must return the stream', {
      hint: 'Write steps: (changes) => changes.pipe(...), with no braces or with a return.',
    })
  }

  /** Takes deliveries to the lanes of every sink, no faster than they are written. */
  async #carry(stream: Stage<Out>): Promise<void> {
    const { sinks, maxInFlight } = this.#pipeline
    const { signal } = this.#stop
    const lanes = sinks.map(
      (sink) =>
        new SinkLanes(sink, {
          clock: this.#clock,
          signal,
          onWritten: (items) => {
            this.#written += items
          },
          // A lane that fails while the source is idle must end the wait for the next delivery as well.
          onFailed: (error) => this.#stop.abort(error),
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
      this.#stop.abort(error)
      await Promise.all(lanes.map((lane) => lane.stopped()))
      throw error
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

  /** A sink that does not come to its end is left behind. */
  async #closeSink(sink: Sink<Out>): Promise<void> {
    const closing = sink.close()
    if (await settlesWithin(this.#clock, GRACE_MS, closing)) await closing
    else this.#logger.warn(`${sink.name} did not close within ${GRACE_MS} ms and is left behind`)
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
