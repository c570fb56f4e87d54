/** The Spanner change stream as a source: options and entry. */
import type { protos } from '@google-cloud/spanner'
import { ConfigError } from '../../core/errors.ts'
import { knownKeys, nonEmptyString, oneOf, positiveInteger } from '../../core/options.ts'
import type { ChangeStreamClient } from '../../model/change-stream.ts'
import { type CommitTimestamp, parseTimestamp } from '../../model/commit-timestamp.ts'
import type { Change, DataChangeRecord, Gap } from '../../model/data-change-record.ts'
import { databasePath, emulatorAddress } from '../../model/spanner-address.ts'
import { aloneContext, Source, type SourceChecks } from '../source.ts'
import { ChangeStreamRun } from './change-stream-run.ts'
import { SpannerChangeStreamClient } from './connection/spanner-client.ts'
import { type DeliverableRows, rowsOfRecord, wholeRecord } from './deliverable-rows.ts'
import { checkSpanner } from './preflight/preflight.ts'

export interface SpannerChangeStreamOptions {
  /** `projects/<project>/instances/<instance>/databases/<database>` */
  readonly database: string
  /** The name of the change stream. */
  readonly stream: string
  /**
   * Where to begin when no progress is stored, inclusive, as RFC 3339.
   * @default now
   */
  readonly start?: CommitTimestamp
  /**
   * Where to end, inclusive; the run then ends by itself.
   * @default never
   */
  readonly end?: CommitTimestamp
  /**
   * How often a quiet partition gives a sign of life, 100 to 300,000.
   * @default 2000
   */
  readonly heartbeatMs?: number
  /** How Spanner ranks the queries against other work. */
  readonly priority?: 'low' | 'medium' | 'high'
  /** Names the queries in Spanner's own statistics. */
  readonly requestTag?: string
  /** Which replicas answer. */
  readonly directedRead?: protos.google.spanner.v1.IDirectedReadOptions
  /** The role for fine-grained access control. */
  readonly databaseRole?: string
  /**
   * One delivery per changed row, or per record as Spanner sent it.
   * @default 'row'
   */
  readonly unit?: 'row' | 'record'
  /**
   * Most partitions read at a time; further ones wait their turn.
   * @default 1000
   */
  readonly maxPartitions?: number
  /**
   * When the stream no longer keeps what was still to be read: stop with the exact gap, or emit a `Gap` in place of the
   * lost changes and go on behind it.
   * @default 'stop'
   */
  readonly onGap?: 'stop' | 'skip'
  /**
   * `host:port` of an emulator or simulator.
   * @default the environment variable SPANNER_EMULATOR_HOST
   */
  readonly emulatorHost?: string
  /** Reads from here instead of Spanner: the simulator's in-process door. */
  readonly client?: ChangeStreamClient
}

/**
 * The changes of a Spanner change stream, partition by partition, children after parents.
 * Order: by commit time within a partition, hence per row. Memory: bounded by the pipeline's in-flight limits.
 * Delivery: at least once; a clean restart repeats nothing. Broken streams are read again from where they broke.
 * @example spannerChangeStream({ database: 'projects/p/instances/i/databases/d', stream: 'OrderChanges' })
 */
export function spannerChangeStream(
  options: SpannerChangeStreamOptions & { readonly unit: 'record'; readonly onGap: 'skip' },
): Source<DataChangeRecord | Gap>
export function spannerChangeStream(
  options: SpannerChangeStreamOptions & { readonly unit?: 'row'; readonly onGap: 'skip' },
): Source<Change | Gap>
export function spannerChangeStream(
  options: SpannerChangeStreamOptions & { readonly unit: 'record' },
): Source<DataChangeRecord>
export function spannerChangeStream(options: SpannerChangeStreamOptions & { readonly unit?: 'row' }): Source<Change>
export function spannerChangeStream(
  options: SpannerChangeStreamOptions,
): Source<Change | Gap> | Source<DataChangeRecord | Gap> {
  const { unit = 'row' } = options
  oneOf(OWNER, 'unit', ['row', 'record'], unit)
  return unit === 'row' ? makeSource<Change>(options, rowsOfRecord) : makeSource<DataChangeRecord>(options, wholeRecord)
}

function makeSource<T>(options: SpannerChangeStreamOptions, rowsOf: DeliverableRows<T | Gap>): Source<T | Gap> {
  knownKeys(OWNER, options, KNOWN)
  const { heartbeatMs = 2000, maxPartitions = 1000, priority, requestTag, directedRead, databaseRole, client } = options
  const emulatorHost = emulatorAddress(OWNER, options.emulatorHost)
  const database = databasePath(OWNER, options.database)
  const stream = checkedStream(options.stream)
  const { start, end } = checkedRange(options)
  const { onGap = 'stop' } = options
  positiveInteger(OWNER, 'maxPartitions', maxPartitions)
  oneOf(OWNER, 'onGap', ['stop', 'skip'], onGap)
  if (positiveInteger(OWNER, 'heartbeatMs', heartbeatMs) < 100 || heartbeatMs > 300_000) {
    throw new ConfigError(`${OWNER}: heartbeatMs must be from 100 to 300000, got ${heartbeatMs}`)
  }
  if (priority !== undefined) oneOf(OWNER, 'priority', ['low', 'medium', 'high'], priority)

  const connect = (): ChangeStreamClient =>
    client ??
    new SpannerChangeStreamClient({ database, stream, emulatorHost, databaseRole, priority, requestTag, directedRead })
  const open: Source<T | Gap>['open'] = (context) =>
    new ChangeStreamRun(
      {
        client: connect(),
        ownsClient: client === undefined,
        rowsOf,
        onGap,
        gapValue: (gap) => gap,
        start,
        end,
        heartbeatMs,
        maxPartitions,
      },
      context,
    )
  const checks: SourceChecks = (signal, progress) =>
    checkSpanner(
      {
        ...{ database, stream, start, end, onGap, heartbeatMs, databaseRole, emulatorHost },
        isHostFromEnvironment: options.emulatorHost === undefined,
        keyFile: process.env.GOOGLE_APPLICATION_CREDENTIALS,
        client: connect(),
        ownsClient: client === undefined,
      },
      signal,
      progress,
    )
  return new Source(stream, open, () => aloneContext(stream), checks)
}

/** The name becomes part of a function's name in SQL, where no parameter can stand. */
function checkedStream(stream: unknown): string {
  const name = nonEmptyString(OWNER, 'stream', stream)
  if (/^[A-Za-z][A-Za-z0-9_]{0,127}$/.test(name)) return name
  throw new ConfigError(`${OWNER}: stream must be a letter, then letters, digits or '_', got ${JSON.stringify(name)}`)
}

function checkedRange(options: SpannerChangeStreamOptions): {
  readonly start: CommitTimestamp | undefined
  readonly end: CommitTimestamp | undefined
} {
  const start = checkedTime('start', options.start)
  const end = checkedTime('end', options.end)
  if (start === undefined || end === undefined || start <= end) return { start, end }
  throw new ConfigError(`${OWNER}: end must not lie before start, got start ${start} and end ${end}`)
}

function checkedTime(option: string, value: string | undefined): CommitTimestamp | undefined {
  if (value === undefined) return undefined
  try {
    return parseTimestamp(value)
  } catch (cause) {
    throw new ConfigError(
      `${OWNER}: ${option} must be a time such as 2026-11-18T09:30:00Z, got ${JSON.stringify(value)}`,
      {
        cause,
      },
    )
  }
}

const OWNER = 'spannerChangeStream'
const KNOWN = [
  'database',
  'stream',
  'start',
  'end',
  'heartbeatMs',
  'priority',
  'requestTag',
  'directedRead',
  'databaseRole',
  'unit',
  'maxPartitions',
  'onGap',
  'emulatorHost',
  'client',
] as const
