/** A pipeline as data: checked when it is defined, run by runPipeline or the command line. */
import { type ErrorPolicy, errorPolicy, type OnError } from '../core/error-policy.ts'
import { ConfigError } from '../core/errors.ts'
import { callback, durationMs, knownKeys, nonEmptyString, oneOf, positiveInteger } from '../core/options.ts'
import type { Stage } from '../core/stage.ts'
import type { Sink } from '../core/types.ts'
import { Source } from '../sources/source.ts'
import type { PartitionStore } from '../stores/partition-store.ts'

export interface PipelineOptions<In, Out> {
  /**
   * Progress is kept under this name.
   * @default the name of the pipeline file, or of the stream
   */
  readonly name?: string
  readonly source: Source<In>
  /**
   * What happens to the changes on their way.
   * @default nothing
   */
  readonly steps?: (changes: Stage<In>) => Stage<Out>
  /** A delivery is settled when every sink has it. */
  readonly sink: Sink<Out> | readonly Sink<Out>[]
  /** @default sqlitePartitionStore({ path: '.millrace/state.db' }) */
  readonly store?: PartitionStore
  /** @default retry().thenStop() */
  readonly onError?: OnError
  /**
   * Most deliveries that are read and not settled, over all partitions.
   * @default 1000
   */
  readonly maxInFlight?: number
  /** @default 67108864 (64 MiB) */
  readonly maxInFlightBytes?: number
  /**
   * How often progress is stored.
   * @default 1000
   */
  readonly checkpointIntervalMs?: number
  /**
   * A delivery that nobody settles within this time is reported with its partition and id; 0 never reports.
   * @default 60000
   */
  readonly settleTimeoutMs?: number
  /**
   * What follows the report: only the report, reading its partition again from the last checkpoint, or stopping.
   * @default 'warn'
   */
  readonly onSettleTimeout?: 'warn' | 'retry' | 'stop'
  /**
   * How long a drain may take before the run closes.
   * @default 30000
   */
  readonly drainTimeoutMs?: number
  /**
   * How long another process must wait after this one died before it takes over.
   * @default 10000
   */
  readonly leaseMs?: number
  /**
   * When another process runs this pipeline already: wait as a standby and take over when it ends, or exit.
   * @default 'wait'
   */
  readonly onHeld?: 'wait' | 'exit'
}

/** A checked pipeline. Pipeline files export one as their default export. */
export interface Pipeline<In = unknown, Out = unknown> {
  readonly isPipeline: true
  readonly name: string | undefined
  readonly source: Source<In>
  readonly steps: (changes: Stage<In>) => Stage<Out>
  readonly sinks: readonly Sink<Out>[]
  readonly store: PartitionStore | undefined
  readonly policy: ErrorPolicy
  readonly maxInFlight: number
  readonly maxInFlightBytes: number
  readonly checkpointIntervalMs: number
  readonly settleTimeoutMs: number
  readonly onSettleTimeout: 'warn' | 'retry' | 'stop'
  readonly drainTimeoutMs: number
  readonly leaseMs: number
  readonly onHeld: 'wait' | 'exit'
}

/**
 * Checks a pipeline's options; nothing is opened or contacted.
 * @example
 * export default definePipeline({
 *   source: spannerChangeStream({ database: 'projects/p/instances/i/databases/d', stream: 'OrderChanges' }),
 *   steps: (changes) => changes.pipe(filter((change) => change.table === 'Orders')),
 *   sink: fileSink({ path: 'orders.jsonl' }),
 * })
 */
export function definePipeline<In, Out = In>(options: PipelineOptions<In, Out>): Pipeline<In, Out> {
  if (typeof options !== 'object' || options === null) throw new ConfigError(`${OWNER}: takes an options object`)
  knownKeys(OWNER, options, KNOWN)
  if (!(options.source instanceof Source)) {
    throw new ConfigError(`${OWNER}: source is missing or not a source`, {
      hint: "Use one of 'millrace/sources', such as spannerChangeStream({ database, stream }) or from(iterable).",
    })
  }
  const { name, steps = (changes) => changes as unknown as Stage<Out>, drainTimeoutMs = 30_000 } = options
  const { maxInFlight = 1000, maxInFlightBytes = 64 * 1024 * 1024, checkpointIntervalMs = 1000 } = options
  const { settleTimeoutMs = 60_000, onSettleTimeout = 'warn', leaseMs = 10_000, onHeld = 'wait' } = options
  return {
    isPipeline: true,
    name: name === undefined ? undefined : pipelineName(name),
    source: options.source,
    steps: callback(OWNER, 'steps', steps),
    sinks: checkedSinks(options.sink),
    store: options.store,
    policy: errorPolicy(options.onError),
    maxInFlight: positiveInteger(OWNER, 'maxInFlight', maxInFlight),
    maxInFlightBytes: positiveInteger(OWNER, 'maxInFlightBytes', maxInFlightBytes),
    checkpointIntervalMs: positiveInteger(OWNER, 'checkpointIntervalMs', checkpointIntervalMs),
    settleTimeoutMs: durationMs(OWNER, 'settleTimeoutMs', settleTimeoutMs),
    onSettleTimeout: oneOf(OWNER, 'onSettleTimeout', ['warn', 'retry', 'stop'], onSettleTimeout),
    drainTimeoutMs: durationMs(OWNER, 'drainTimeoutMs', drainTimeoutMs),
    leaseMs: positiveInteger(OWNER, 'leaseMs', leaseMs),
    onHeld: oneOf(OWNER, 'onHeld', ['wait', 'exit'], onHeld),
  }
}

/** Names become rows and file names: letters, digits, dot, dash and underscore only. */
export function pipelineName(name: string): string {
  nonEmptyString(OWNER, 'name', name)
  if (/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$/.test(name)) return name
  throw new ConfigError(
    `${OWNER}: name must be 1 to 100 letters, digits, '.', '-' or '_' and not begin with a dot, got ${JSON.stringify(name.slice(0, 100))}`,
  )
}

function checkedSinks<Out>(sink: PipelineOptions<unknown, Out>['sink']): readonly Sink<Out>[] {
  const sinks = Array.isArray(sink) ? (sink as readonly Sink<Out>[]) : [sink as Sink<Out>]
  const isSink = (s: Sink<Out> | undefined): boolean => typeof s?.write === 'function' && typeof s.close === 'function'
  if (sinks.length > 0 && sinks.every(isSink)) return sinks
  throw new ConfigError(`${OWNER}: sink is missing or not a sink`, {
    hint: "Use one of 'millrace/sinks', such as fileSink({ path }), or an object with write(items) and close().",
  })
}

const OWNER = 'definePipeline'
const KNOWN = [
  'name',
  'source',
  'steps',
  'sink',
  'store',
  'onError',
  'maxInFlight',
  'maxInFlightBytes',
  'checkpointIntervalMs',
  'settleTimeoutMs',
  'onSettleTimeout',
  'drainTimeoutMs',
  'leaseMs',
  'onHeld',
] as const
