/** Whether the stream still keeps what the next run begins with. */
import type { Check } from '../../../core/check.ts'
import { SourceError } from '../../../core/errors.ts'
import { type CommitTimestamp, timestampFromMs, timestampToMs } from '../../../model/commit-timestamp.ts'
import { firstReadable } from '../read-failure.ts'

export interface Beginning {
  readonly retentionMs: number
  readonly nowMs: number
  /** The option; undefined for now. */
  readonly start: CommitTimestamp | undefined
  /** Stored by earlier runs: then `start` does not matter. */
  readonly lowWatermark: CommitTimestamp | undefined
  /** The option; undefined for never. */
  readonly end: CommitTimestamp | undefined
  /** Whether earlier runs have read everything up to it. */
  readonly isDone: boolean
  readonly onGap: 'stop' | 'skip'
  /** Asks the server for the partitions at a time. */
  probe(start: CommitTimestamp): Promise<void>
}

export async function checkRetention(beginning: Beginning): Promise<Check> {
  const { retentionMs, nowMs, start, end, lowWatermark, isDone, onGap } = beginning
  const from = lowWatermark ?? start
  if (isDone) return check('ok', `${period(retentionMs)}; everything up to ${end ?? lowWatermark} is read`)
  if (from === undefined && end !== undefined && end < timestampFromMs(nowMs)) {
    return check('failure', `${period(retentionMs)}; the first run would begin now, and end ${end} lies before`, START)
  }
  if (from === undefined) return check('ok', `${period(retentionMs)}; the first run begins now`)
  const what = lowWatermark === undefined ? `start ${from}` : `stored progress, ${from},`
  const used = (nowMs - timestampToMs(from)) / retentionMs
  if (used < 0 && from > timestampFromMs(nowMs + AHEAD_MS)) {
    return check('warning', `${period(retentionMs)}; ${what} lies in the future`, FUTURE)
  }
  if (from < firstReadable(nowMs, retentionMs)) {
    const message = `${period(retentionMs)}; ${what} lies before ${firstReadable(nowMs, retentionMs)}, the earliest that can be read`
    if (onGap === 'skip') return check('warning', `${message}: a gap is emitted in place of what is lost`)
    return check('failure', message, lowWatermark === undefined ? LATER_START : LOST)
  }
  if (lowWatermark === undefined && !(await reachesBack(beginning, from))) {
    return check('failure', `${period(retentionMs)}; the stream was made after ${what}`, YOUNGER)
  }
  const message = `${period(retentionMs)}; ${what} has used ${Math.max(0, Math.floor(used * 100))} % of it`
  return used > 0.5 ? check('warning', message, HURRY) : check('ok', message)
}

async function reachesBack({ probe }: Beginning, start: CommitTimestamp): Promise<boolean> {
  try {
    await probe(start)
    return true
  } catch (error) {
    if (error instanceof SourceError && error.status === 'OUT_OF_RANGE') return false
    // Anything else is for the check of the grants to tell.
    if (error instanceof SourceError) return true
    throw error
  }
}

function check(status: Check['status'], message: string, fix?: string): Check {
  return { name: 'retention', status, message, ...(fix !== undefined && { fix }) }
}

/** `7 d`, `36 h`, `90 m`, `45 s` */
function period(ms: number): string {
  const [unit, size] = UNITS.find(([, size]) => ms % size === 0) ?? ['s', 1000]
  return `${Math.round(ms / size)} ${unit}`
}

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
] as const
const AHEAD_MS = 60_000
const FUTURE = 'Nothing is read before then, and Spanner may refuse it. Leave start out to begin now.'
const START = 'Give a start before the end.'
const LATER_START = "Give a later start, leave it out to begin now, or set onGap: 'skip'."
const LOST =
  "The changes in between are lost to this pipeline. Set onGap: 'skip' to go on behind the gap, or begin anew with another name."
const YOUNGER = 'Give a start after its creation, or leave start out to begin now.'
const HURRY = 'Start soon, or keep more: ALTER CHANGE STREAM ... SET OPTIONS (retention_period = ...).'
