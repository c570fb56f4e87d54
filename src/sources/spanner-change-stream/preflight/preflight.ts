/** What is looked at before a Spanner change stream is read: one line each. Nothing is written, no row content read. */
import { type Check, failedCheck } from '../../../core/check.ts'
import { EnvironmentError, StreamError } from '../../../core/errors.ts'
import type { ChangeStreamClient, Dialect, StreamDescription } from '../../../model/change-stream.ts'
import {
  type CommitTimestamp,
  parseTimestamp,
  timestampFromMs,
  timestampToMs,
} from '../../../model/commit-timestamp.ts'
import type { ValueCaptureType } from '../../../model/data-change-record.ts'
import type { CheckContext } from '../../source.ts'
import { grpcCode, openError } from '../connection/grpc-errors.ts'
import { type CredentialsOptions, checkCredentials } from './credentials-check.ts'
import { type Access, checkGrants, iamGrant, probe, roleGrants } from './grants.ts'
import { checkRetention } from './retention-check.ts'

export interface PreflightOptions extends Access, CredentialsOptions {
  readonly start: CommitTimestamp | undefined
  readonly end: CommitTimestamp | undefined
  readonly onGap: 'stop' | 'skip'
  /** For the sake of the check only; the user's own is not closed. */
  readonly client: ChangeStreamClient & Partial<Selecting>
  readonly ownsClient: boolean
}

interface Selecting {
  /** A small result, all values as text. */
  select(sql: string, signal: AbortSignal): Promise<(string | undefined)[][]>
}

/** The server's clock against ours. */
interface ClockReading {
  readonly nowMs: number
  /** Positive if this machine is ahead. */
  readonly aheadMs: number
  readonly uncertaintyMs: number
}

/** Goes on after a failure with whatever still makes sense, and names the rest as skipped. */
export async function* checkSpanner(
  options: PreflightOptions,
  signal: AbortSignal,
  context: CheckContext,
): AsyncGenerator<Check, void, undefined> {
  const { client, ownsClient } = options
  try {
    const credentials = ownsClient ? await checkCredentials(options, limited(signal)) : GIVEN_CLIENT
    yield credentials
    if (credentials.status === 'failure') return yield* skip(['database', ...AFTER_DATABASE], 'credentials')
    const database = await attempt('database', options, () => checkDatabase(options, limited(signal)))
    yield database
    if (database.status === 'failure') return yield* skip(AFTER_DATABASE, 'database')
    yield* checkStream(options, signal, context)
  } finally {
    if (ownsClient) await client.close()
  }
}

async function checkDatabase({ client, database }: PreflightOptions, signal: AbortSignal): Promise<Check> {
  if (client.select === undefined) return { ...GIVEN_CLIENT, name: 'database' }
  await client.select('SELECT 1', signal)
  return ok('database', `${database} answers`)
}

async function* checkStream(
  options: PreflightOptions,
  signal: AbortSignal,
  context: CheckContext,
): AsyncGenerator<Check, void, undefined> {
  const { client, stream, start, end, heartbeatMs, onGap } = options
  let clock: ClockReading | undefined
  const skew = await attempt('clock skew', options, async () => {
    if (client.select === undefined) return { ...GIVEN_CLIENT, name: 'clock skew' }
    clock = await readClock(client as Selecting, limited(signal))
    return skewCheck(clock)
  })
  const nowMs = clock?.nowMs ?? Date.now()
  let dialect: Dialect | undefined
  if (client.select !== undefined) {
    const found = await attempt('dialect', options, async () => {
      dialect = await readDialect(client as Selecting, limited(signal))
      return ok('dialect', DIALECTS[dialect])
    })
    yield found
  }
  let description: StreamDescription | undefined
  const watched = await attempt('stream', options, async () => {
    description = await client.describe(limited(signal))
    return watchCheck(stream, description.tables)
  })
  if (description === undefined) {
    yield withRoleHint(watched, options, dialect)
    yield* skip(AFTER_STREAM, 'stream')
  } else {
    const known = description
    if (client.select === undefined) yield ok('dialect', DIALECTS[known.dialect])
    yield watched
    yield ok('partition mode', MODES[known.mode])
    yield ok('capture type', `${known.valueCaptureType}: ${CAPTURE_TYPES[known.valueCaptureType] ?? 'unknown to us'}`)
    yield await attempt('retention', options, async () => {
      const lowWatermark = await context.lowWatermark()
      const isDone = await context.isDone(end)
      const reach = (from: CommitTimestamp): Promise<void> => probe(client, known, from, heartbeatMs, limited(signal))
      const { retentionMs } = known
      return await checkRetention({ retentionMs, nowMs, start, end, lowWatermark, isDone, onGap, probe: reach })
    })
    const now = timestampFromMs(nowMs)
    yield await attempt('grants', options, () => checkGrants(client, options, known, now, limited(signal)))
  }
  yield skew
}

/** A stream may be made without anything to watch: it can be read, and says nothing. */
function watchCheck(stream: string, tables: readonly string[] | undefined): Check {
  if (tables === undefined) return ok('stream', `${stream} watches the whole database`)
  if (tables.length > 0) return ok('stream', `${stream} watches ${[...tables].sort().join(', ')}`)
  const fix = `ALTER CHANGE STREAM ${stream} SET FOR ALL, or FOR the tables to watch`
  return { name: 'stream', status: 'warning', message: `${stream} watches nothing, so no change will come`, fix }
}

async function readDialect(client: Selecting, signal: AbortSignal): Promise<Dialect> {
  const [row] = await client.select(
    "SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'",
    signal,
  )
  return row?.[0] === 'POSTGRESQL' ? 'postgresql' : 'googlesql'
}

/** The answer was made somewhere between question and receipt; the middle is the best guess. */
async function readClock(client: Selecting, signal: AbortSignal): Promise<ClockReading> {
  const askedMs = Date.now()
  const [row] = await client.select('SELECT CURRENT_TIMESTAMP', signal)
  const tripMs = Date.now() - askedMs
  const serverMs = timestampToMs(parseTimestamp(row?.[0] ?? ''))
  return { nowMs: serverMs + tripMs / 2, aheadMs: askedMs + tripMs / 2 - serverMs, uncertaintyMs: tripMs / 2 }
}

function skewCheck({ aheadMs, uncertaintyMs }: ClockReading): Check {
  const offMs = Math.max(0, Math.abs(aheadMs) - uncertaintyMs)
  const shown = `${(Math.abs(aheadMs) / 1000).toFixed(1)} s`
  const message = `this machine is ${shown} ${aheadMs > 0 ? 'ahead of' : 'behind'} Spanner`
  if (offMs <= WARN_SKEW_MS) return ok('clock skew', offMs < 100 ? 'none to speak of' : message)
  return { name: 'clock skew', status: offMs > MAX_SKEW_MS ? 'failure' : 'warning', message, fix: SET_CLOCK }
}

/** What a step throws becomes its failure, said in terms of the options. */
async function attempt(name: string, options: PreflightOptions, step: () => Promise<Check>): Promise<Check> {
  try {
    return await step()
  } catch (error) {
    const check = failedCheck(name, explained(error, options))
    return { ...check, message: check.message.replace(/^spannerChangeStream: /, '') }
  }
}

function explained(error: unknown, options: PreflightOptions): unknown {
  const { database, databaseRole, emulatorHost = 'spanner.googleapis.com' } = options
  if (error instanceof Error && error.name === 'TimeoutError') {
    return new EnvironmentError(`Spanner at ${emulatorHost} gives no answer within ${STEP_LIMIT_MS / 1000} s`, {
      hint: 'Is the network up and the address right?',
    })
  }
  if (error instanceof StreamError) return error
  if (grpcCode(error) !== 'PERMISSION_DENIED') return openError(error, database, emulatorHost)
  const role = databaseRole === undefined ? '' : ` with the role ${databaseRole}`
  return new EnvironmentError(`access to '${database}'${role} was denied (PERMISSION_DENIED)`, {
    hint:
      databaseRole === undefined
        ? iamGrant(options)
        : `Give the account roles/spanner.fineGrainedAccessUser, and roles/spanner.databaseRoleUser for ${databaseRole}.`,
  })
}

/** A role sees only what it may read, so a stream may look missing for want of a grant. */
function withRoleHint(check: Check, options: PreflightOptions, dialect: Dialect = 'googlesql'): Check {
  const { databaseRole } = options
  if (databaseRole === undefined) return check
  const grants = roleGrants(options, databaseRole, { dialect, mode: 'immutable' })
  return { ...check, fix: `${check.fix ?? ''}\nOr the role may not see it:\n${grants}`.trim() }
}

function* skip(names: readonly string[], because: string): Generator<Check, void, undefined> {
  for (const name of names) yield { name, status: 'skipped', message: `not looked at, since ${because} failed` }
}

function ok(name: string, message: string): Check {
  return { name, status: 'ok', message }
}

function limited(signal: AbortSignal): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(STEP_LIMIT_MS)])
}

const STEP_LIMIT_MS = 15_000
const WARN_SKEW_MS = 1000
const MAX_SKEW_MS = 60_000
const SET_CLOCK = "Set the clock by NTP: the start 'now' and the leases of partitions are measured with it."
const AFTER_STREAM = ['partition mode', 'capture type', 'retention', 'grants']
const AFTER_DATABASE = ['dialect', 'stream', ...AFTER_STREAM, 'clock skew']
const GIVEN_CLIENT: Check = { name: 'credentials', status: 'skipped', message: 'the pipeline brings its own client' }

const DIALECTS: Readonly<Record<Dialect, string>> = { googlesql: 'GoogleSQL', postgresql: 'PostgreSQL' }
const MODES: Readonly<Record<StreamDescription['mode'], string>> = {
  immutable: 'IMMUTABLE_KEY_RANGE: partitions keep their keys and end with children',
  mutable: 'MUTABLE_KEY_RANGE: partitions live on, keys move between them',
}
const CAPTURE_TYPES: Readonly<Record<ValueCaptureType, string>> = {
  OLD_AND_NEW_VALUES: 'changed columns, before and after',
  NEW_VALUES: 'changed columns, after only',
  NEW_ROW: 'all watched columns, after only',
  NEW_ROW_AND_OLD_VALUES: 'all watched columns after, changed ones before',
}
