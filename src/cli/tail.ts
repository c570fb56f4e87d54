/** `millrace tail`: prints the changes of any stream as they are read. Needs no pipeline file and keeps nothing. */

import { systemClock } from '../core/clock.ts'
import { ConfigError, HistoryExpiredError, SourceError } from '../core/errors.ts'
import { settlesWithin } from '../core/signals.ts'
import type { Sink } from '../core/types.ts'
import { filter } from '../operators/index.ts'
import { definePipeline, listenForShutdown, type RunningPipeline, runPipeline } from '../runtime/index.ts'
import { type Change, type SpannerChangeStreamOptions, spannerChangeStream } from '../sources/index.ts'
import { memoryPartitionStore } from '../stores/index.ts'
import { changeAsJson, changeLine, paintFor } from './change-line.ts'
import { plural } from './human-units.ts'
import { parseTime } from './relative-time.ts'
import { EXIT } from './report-error.ts'
import { runOutput } from './run-output.ts'

export interface TailOptions {
  readonly database: string
  readonly stream: string
  readonly start: string
  readonly end?: string
  readonly table?: readonly string[]
  readonly json?: true
  readonly emulatorHost?: string
  readonly role?: string
  readonly verbose?: true
}

/** Returns the exit code: Ctrl-C is how a tail ends, so it is 0. Throws what `describeError` tells the user. */
export async function tail(options: TailOptions): Promise<number> {
  const shutdown = listenForShutdown(process, { isUnderNpm: process.env.npm_lifecycle_event !== undefined })
  const stop = new AbortController()
  shutdown.drain.addEventListener('abort', () => stop.abort(), { once: true })
  const source = spannerChangeStream(sourceOptions(options))
  const printer = new Printer(options.json === true, () => stop.abort())
  const tables = new Set(options.table)
  const otherTables = new Set<string>()
  const isWanted = ({ table }: Change): boolean => {
    if (tables.size === 0 || tables.has(table)) return true
    otherTables.add(table)
    return false
  }
  const pipeline = definePipeline({
    name: 'tail',
    source,
    steps: (changes) => changes.pipe(filter(isWanted)),
    sink: printer,
    store: memoryPartitionStore(),
  })
  const { logger } = runOutput({ format: 'text', verbose: options.verbose === true })
  let running: RunningPipeline | undefined
  const onStart = (started: RunningPipeline): void => {
    running = started
  }
  const note = setTimeout(() => printer.noteIfSilent(waitingNote(options)), NOTE_AFTER_MS)
  try {
    const ended = runPipeline(pipeline, { logger, close: stop.signal, onStart })
    await untilEndOrStop(ended, stop.signal)
    if (!printer.isCutOff) process.stderr.write(`${summaryLine(printer.count, running, otherTables)}\n`)
    // What a reader that has stalled, as a pager does, has not taken by now would hold the process for ever.
    if (stop.signal.aborted && !(await printer.isTaken(STOP_LIMIT_MS))) process.exit(EXIT.ok)
    return EXIT.ok
  } catch (error) {
    throw inTermsOfTail(error)
  } finally {
    clearTimeout(note)
  }
}

/** Ctrl-C means now: a server that does not answer must not hold the process. */
async function untilEndOrStop(ended: Promise<unknown>, stop: AbortSignal): Promise<void> {
  const stopped = new Promise<void>((resolve) => stop.addEventListener('abort', () => resolve(), { once: true }))
  await Promise.race([ended, stopped])
  if (stop.aborted) await settlesWithin(systemClock, STOP_LIMIT_MS, ended)
}

/** The reader's hints are for a pipeline: a tail has no name, no progress to lose and no option onGap. */
function inTermsOfTail(error: unknown): unknown {
  if (error instanceof HistoryExpiredError) {
    return new HistoryExpiredError(error.message, { gap: error.gap, cause: error, hint: 'Give a later --start.' })
  }
  const isStartRefused =
    error instanceof ConfigError && error.cause instanceof SourceError && error.cause.status === 'OUT_OF_RANGE'
  if (!isStartRefused) return error
  const hint = "Give a --start between the creation of the stream and now. Is this machine's clock right?"
  return new ConfigError(error.message, { cause: error, hint })
}

function sourceOptions(options: TailOptions): SpannerChangeStreamOptions & { readonly unit: 'row' } {
  const { database, stream, start, end, emulatorHost, role } = options
  const now = Date.now()
  return {
    database,
    stream,
    unit: 'row',
    ...(start !== 'now' && { start: parseTime('start', start, now) }),
    ...(end !== undefined && { end: parseTime('end', end, now) }),
    ...(emulatorHost !== undefined && { emulatorHost }),
    ...(role !== undefined && { databaseRole: role }),
  }
}

/** Writes lines to stdout, in the order of reading and no faster than they are taken. */
class Printer implements Sink<Change> {
  readonly name = 'tail'
  readonly #line: (change: Change) => string
  readonly #onCutOff: () => void
  count = 0
  /** Whoever read the output has read enough, as `head` does. */
  isCutOff = false

  constructor(isJson: boolean, onCutOff: () => void) {
    const paint = paintFor(process.stdout)
    this.#line = isJson ? changeAsJson : (change) => changeLine(change, paint)
    this.#onCutOff = onCutOff
  }

  async write(changes: readonly Change[]): Promise<void> {
    const text = changes.map((change) => `${this.#line(change)}\n`).join('')
    this.count += changes.length
    await new Promise<void>((resolve, reject) => {
      process.stdout.write(text, (error) => {
        if (!error) return resolve()
        if ((error as NodeJS.ErrnoException).code !== 'EPIPE') return reject(error)
        this.isCutOff = true
        this.#onCutOff()
        resolve()
      })
    })
  }

  async close(): Promise<void> {}

  /** Whether the reader has taken all that was printed, now or within the limit. */
  isTaken(limitMs: number): Promise<boolean> {
    const taken = new Promise((resolve) => process.stdout.write('', resolve))
    return settlesWithin(systemClock, limitMs, taken)
  }

  noteIfSilent(note: string): void {
    if (this.count === 0 && process.stderr.isTTY) process.stderr.write(`${note}\n`)
  }
}

function waitingNote({ stream, table, start }: TailOptions): string {
  const tables = table === undefined ? '' : ` (${table.join(', ')} only)`
  const since = start === 'now' ? '' : ` since ${start.startsWith('-') ? `${start.slice(1)} ago` : start}`
  return `waiting for changes in ${stream}${tables}${since}; Ctrl-C ends`
}

function summaryLine(count: number, running: RunningPipeline | undefined, others: ReadonlySet<string>): string {
  const status = running?.status()
  const partitions = (status?.partitions.length ?? 0) + (status?.finishedPartitions ?? 0)
  const leftOut = others.size === 0 ? '' : `; left out: ${[...others].sort().join(', ')}`
  return `${plural(count, 'change')} from ${plural(partitions, 'partition')}${leftOut}`
}

const NOTE_AFTER_MS = 1500
const STOP_LIMIT_MS = 300
