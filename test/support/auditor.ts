/** Judges a run by the stream's ledger and the recorded history, never by Millrace's own counters. */
import type { CommitTimestamp } from '../../src/model/commit-timestamp.ts'
import { ROOT_TOKEN } from '../../src/model/partition.ts'
import {
  Coverage,
  type EventOf,
  type Facts,
  gatherFacts,
  type HistoryEvent,
  isFinish,
  isInRange,
  type JudgedChange,
  type Ledger,
  OpenDeliveries,
  type Progress,
  progressOf,
  type ReadRange,
  writesById,
} from './history.ts'

/** `recording` says that the history lacks what a promise is judged by: a check that sees nothing proves nothing. */
export type Promised =
  | ('P1' | 'P2' | 'P3' | 'P4' | 'P5' | 'P6' | 'P7' | 'P8' | 'P9' | 'P10' | 'P11')
  | ('liveness' | 'recording')

export interface Violation {
  readonly promise: Promised
  readonly message: string
  readonly event?: HistoryEvent
}

export interface AuditLimits {
  readonly maxInFlight: number
  readonly maxInFlightBytes: number
  /** The largest record: each partition that is read may hold one beyond the byte limit. */
  readonly maxRecordBytes: number
}

export interface AuditOptions extends ReadRange {
  readonly limits: AuditLimits
  /** After all faults were healed, the harness saw everything delivered within its simulated time. */
  readonly completed: boolean
  /** What the last low watermark must have reached: on an idle stream heartbeats alone must bring it there. */
  readonly finalLowWatermark?: CommitTimestamp
}

/** All violations of one history, O(n log n) in its events; an empty list is a pass. */
export function audit(
  ledger: Ledger,
  history: { readonly events: readonly HistoryEvent[] },
  options: AuditOptions,
): Violation[] {
  const facts = gatherFacts(ledger, history.events, options)
  return [
    ...checkRecording(facts, options),
    ...checkLiveness(options),
    ...checkNothingLost(facts, options),
    ...checkGaps(facts),
    ...checkGaplessCheckpoint(facts),
    ...checkOrderPerKey(facts, options),
    ...checkChildrenAfterParents(facts),
    ...checkMovesAfterTheirPast(facts),
    ...checkEndHasEvidence(facts),
    ...checkRestartRepeatsNothing(facts),
    ...checkBoundedMemory(facts, options),
    ...checkHonestLowWatermark(facts, options),
    ...checkExactTime(facts),
    ...checkOneOwner(facts),
    ...checkDrainSettlesAll(facts),
  ]
}

/** A harness that forgot to record one kind of event would pass every check that reads it. */
export function checkRecording(
  { events, inRange }: Facts,
  { completed }: Pick<AuditOptions, 'completed'>,
): Violation[] {
  if (!completed || inRange.length === 0) return []
  const seen = new Set(events.map((event) => (event.type === 'skipped' ? 'written' : event.type)))
  return NEEDED.filter((type) => !seen.has(type)).map((type) => ({
    promise: 'recording',
    message: `no '${type}' was recorded although the stream has changes`,
  }))
}

/** After healing, everything is delivered in bounded simulated time: silence is a failure too. */
export function checkLiveness({ completed }: Pick<AuditOptions, 'completed'>): Violation[] {
  return completed ? [] : [{ promise: 'liveness', message: 'the run was healed and still did not come to its end' }]
}

/** P1: every change in range is written or skipped at least once, and nothing is invented. */
export function checkNothingLost(facts: Facts, { completed }: Pick<AuditOptions, 'completed'>): Violation[] {
  const violations: Violation[] = []
  const fail = (message: string, event?: HistoryEvent): number =>
    violations.push(event ? { promise: 'P1', message, event } : { promise: 'P1', message })

  // A run that hangs is a matter of liveness: what is missing may still be under way.
  const missing = completed ? facts.inRange.filter((change) => change.settledAt === Number.POSITIVE_INFINITY) : []
  if (missing.length > 0) {
    const first = missing.slice(0, 5).map((change) => `${change.id} of ${change.partitionToken}`)
    fail(`${missing.length} of ${facts.inRange.length} changes never reached the sink, first ${first.join(', ')}`)
  }
  for (const event of facts.events) {
    if (event.type !== 'delivered' && event.type !== 'written' && event.type !== 'skipped') continue
    const change = facts.changes.get(event.id)
    if (change === undefined) fail(`${event.id} was ${event.type} but the stream never had it`, event)
    else if (!isInRange(change.commitTimestamp, facts.range)) fail(`${event.id} was ${event.type} out of range`, event)
    else if (event.type !== 'skipped' && event.key !== change.key) {
      fail(`${event.id} was ${event.type} with key ${event.key} instead of ${change.key}`, event)
    }
  }
  return violations
}

/** P1: what is given up as lost was really no longer kept, no more than that, and is counted. */
export function checkGaps({ events }: Facts): Violation[] {
  const violations: Violation[] = []
  const delivered = new Map<number, number>()
  for (const event of events) {
    const fail = (message: string): number => violations.push({ promise: 'P1', message, event })
    if (event.type === 'gap-delivered') {
      const { token, from, to, expiredBefore } = event
      delivered.set(event.run, (delivered.get(event.run) ?? 0) + 1)
      if (from >= to) fail(`a gap of ${token} ends at ${to}, before it begins`)
      // Clocks differ, so a reader may take for lost what is about to be.
      if (from >= expiredBefore) fail(`a gap of ${token} begins at ${from}, but the stream kept ${expiredBefore} on`)
    } else if (event.type === 'gap-count') {
      const count = delivered.get(event.run) ?? 0
      if (event.count < count) fail(`${count} gaps were delivered, but ${event.count} counted`)
    }
  }
  return violations
}

/** P2: a stored watermark never passes what was not settled when it was written, and never moves back. */
export function checkGaplessCheckpoint(facts: Facts): Violation[] {
  const violations: Violation[] = []
  const last = new Map<string, Progress>()
  for (const event of facts.events) {
    if (event.type !== 'store-write' || !event.accepted) continue
    const fail = (message: string): number => violations.push({ promise: 'P2', message, event })
    const askedAt = event.askedAt ?? event.number
    const timeline = facts.timelines.get(event.token)
    const openAtEnd = isFinish(event) ? timeline?.openBefore(null, askedAt) : undefined
    if (openAtEnd) fail(`${event.token} was finished while ${openAtEnd.id} was open`)
    const progress = progressOf(event)
    if (progress === undefined) continue

    const { watermark, boundaryIds } = progress
    const open = timeline?.openBefore(watermark, askedAt)
    if (open) fail(`${event.token} was stored at ${watermark} while ${open.id} of ${open.commitTimestamp} was open`)
    for (const id of boundaryIds) {
      if (id.startsWith('gap/')) continue
      const settledAt = facts.judged.get(id)?.settledAt
      if (settledAt === undefined) fail(`${event.token} was stored with boundary id ${id}, which is not of this stream`)
      else if (settledAt >= askedAt) fail(`${event.token} was stored with boundary id ${id}, which was open`)
    }
    const before = last.get(event.token)
    if (before && isBehind(progress, before)) {
      fail(`${event.token} moved back from ${before.watermark} to ${watermark}, or lost boundary ids there`)
    }
    last.set(event.token, progress)
  }
  return violations
}

/**
 * P3: the changes of a key are first written in commit order, and what is repeated is followed by all that came
 * after it. The second half is the same as: the last writes are in commit order too.
 */
export function checkOrderPerKey(facts: Facts, { completed }: Pick<AuditOptions, 'completed'>): Violation[] {
  const violations: Violation[] = []
  const writes = writesById(facts.events)
  const firstOf = new Map<string, LatestWrite>()
  const lastOf = new Map<string, LatestWrite>()
  for (const change of facts.inRange) {
    const { first, last } = writes.get(change.id) ?? {}
    if (first === undefined || last === undefined) continue
    const older = firstOf.get(change.key)
    if (older && older.event.number > first.number) {
      const message = `key ${change.key}: ${change.id} was written before ${older.id}, which was committed earlier`
      violations.push({ promise: 'P3', message, event: first })
    } else firstOf.set(change.key, { id: change.id, event: first })

    const repeated = lastOf.get(change.key)
    // What is lost cannot follow again: that is what its gap says.
    if (facts.isLost(change)) continue
    if (completed && repeated && repeated.event.number > last.number) {
      const message = `key ${change.key}: ${repeated.id} was repeated after ${change.id}, which did not follow again`
      violations.push({ promise: 'P3', message, event: repeated.event })
    } else lastOf.set(change.key, { id: change.id, event: last })
  }
  return violations
}

/** P4: a partition is first read when every parent is stored as finished and all of its changes are settled. */
export function checkChildrenAfterParents(facts: Facts): Violation[] {
  const violations: Violation[] = []
  const finished = new Set<string>()
  const started = new Set<string>()
  let lostBefore = ''
  for (const event of facts.events) {
    if (isFinish(event)) finished.add(event.token)
    if (event.type === 'gap-delivered' && event.to > lostBefore) lostBefore = event.to
    if (event.type !== 'query-started' || started.has(event.token)) continue
    started.add(event.token)
    for (const token of facts.partitions.get(event.token)?.parents ?? []) {
      const parent = facts.partitions.get(token)
      // A parent that ended before the start has nothing in range and is never read.
      if (parent === undefined || (parent.end !== null && parent.end <= facts.range.start)) continue
      // Neither is one that came and went in a gap: nobody has heard of it.
      if (!started.has(token) && parent.end !== null && parent.end <= lostBefore) continue
      const open = facts.timelines.get(token)?.openBefore(null, event.number)
      const reason = finished.has(token) ? open && `${open.id} of ${token} was open` : `${token} was not finished`
      if (reason)
        violations.push({ promise: 'P4', message: `${event.token} was read while its parent ${reason}`, event })
    }
  }
  return violations
}

/** P4: what a partition holds behind a move into it comes when everything up to the move is settled where it came from. */
export function checkMovesAfterTheirPast(facts: Facts): Violation[] {
  const violations: Violation[] = []
  const pending = Map.groupBy(facts.moves, (move) => move.to)
  for (const event of facts.events) {
    // Who lost the time of a move in a gap has not heard of it.
    if (event.type === 'gap-delivered') {
      const kept = pending.get(event.token)?.filter(({ timestamp }) => timestamp < event.from || timestamp >= event.to)
      if (kept) pending.set(event.token, kept)
    }
    const change = event.type === 'delivered' ? facts.changes.get(event.id) : undefined
    const moves = change && pending.get(change.partitionToken)
    if (change === undefined || moves === undefined) continue
    const passed = moves.filter(({ timestamp }) => timestamp < change.commitTimestamp)
    if (passed.length === 0) continue
    for (const { timestamp, from } of passed) {
      const open = facts.timelines.get(from)?.openUpTo(timestamp, event.number)
      if (open === undefined) continue
      const message = `${change.id} was delivered behind a move of ${timestamp} while ${open.id} of ${from} was open`
      violations.push({ promise: 'P4', message, event })
    }
    // What is settled stays so: each move is judged once.
    pending.set(
      change.partitionToken,
      moves.filter((move) => !passed.includes(move)),
    )
  }
  return violations
}

/** P5: a partition is finished only after child records and a clean end, an end record, a gap, or an answer past the user's end. */
export function checkEndHasEvidence(facts: Facts): Violation[] {
  const { end } = facts.range
  const violations: Violation[] = []
  const evidentSince = new Map<string, number>()
  const sawChildren = new Set<string>()
  for (const event of facts.events) {
    if (event.type === 'query-started' && !event.resumed) sawChildren.delete(`${event.run} ${event.token}`)
    if (event.type === 'query-returned') {
      if (event.kind === 'children') sawChildren.add(`${event.run} ${event.token}`)
      const isEnd = event.kind === 'end' && sawChildren.has(`${event.run} ${event.token}`)
      if ((isEnd || event.kind === 'last' || isPastEnd(event, end)) && !evidentSince.has(event.token))
        evidentSince.set(event.token, event.number)
    }
    if (event.type === 'gap-delivered' && !evidentSince.has(event.token)) evidentSince.set(event.token, event.number)
    if (!isFinish(event)) continue
    // What begins after the user's end has nothing to read, so it needs no answer either.
    const partition = facts.partitions.get(event.token)
    if (partition && end !== null && partition.start > end) continue
    const since = evidentSince.get(event.token)
    if (since !== undefined && since < (event.askedAt ?? event.number)) continue
    violations.push({ promise: 'P5', message: `${event.token} was finished without evidence of its end`, event })
  }
  return violations
}

/**
 * P6: what a drained or finished run wrote is not written by a later one; what a stored checkpoint covers does not
 * come again, crash or not; a finished partition is never read again.
 */
export function checkRestartRepeatsNothing(facts: Facts): Violation[] {
  const violations: Violation[] = []
  const fail = (message: string, event: HistoryEvent): number => violations.push({ promise: 'P6', message, event })
  const runs = new Map<number, { readonly start: number; readonly crashBefore: number; cleanEnd?: number }>()
  const stored = new Map<string, Progress>()
  const finished = new Map<string, HistoryEvent>()
  const queries = new Map<string, { readonly atFirst: Coverage; atLatest: Coverage }>()
  const lastWrites = new Map<string, HistoryEvent>()
  let lastCrash = -1

  for (const event of facts.events) {
    const run = runs.get(event.run)
    if (event.type === 'run-started') runs.set(event.run, { start: event.number, crashBefore: lastCrash })
    else if (event.type === 'run-crashed') lastCrash = event.number
    else if (event.type === 'run-ended') {
      if (run && event.outcome !== 'failed') run.cleanEnd = event.number
    } else if (event.type === 'store-write') {
      if (isFinish(event)) finished.set(event.token, event)
      const progress = progressOf(event)
      if (progress) stored.set(event.token, progress)
    } else if (event.type === 'query-started') {
      const end = finished.get(event.token)
      // A worker that was paused may be late to learn of it; a run that began afterwards, or did it itself, is not.
      const isLook = event.token === ROOT_TOKEN && event.start > facts.range.start
      // Which partitions there are behind a gap is asked as the first query of a stream is.
      if (end && !isLook && (end.run === event.run || (run && run.start > end.number))) {
        fail(`${event.token} was read again after it was finished`, event)
      }
      const coverage = new Coverage(stored.get(event.token))
      const query = queries.get(`${event.run} ${event.token}`)
      if (query) query.atLatest = coverage
      else queries.set(`${event.run} ${event.token}`, { atFirst: coverage, atLatest: coverage })
    } else if (event.type === 'delivered' || event.type === 'written') {
      const change = facts.changes.get(event.id)
      if (change === undefined) continue
      const query = queries.get(`${event.run} ${change.partitionToken}`)
      // A write may belong to an earlier query of its run, so it is measured by the first; a delivery by the latest.
      const isRepeat =
        event.type === 'written'
          ? query?.atFirst.has(change)
          : query?.atLatest !== query?.atFirst && query?.atLatest.has(change)
      const before = event.type === 'written' ? lastWrites.get(event.id) : undefined
      const beforeEnd = before && before.run !== event.run ? runs.get(before.run)?.cleanEnd : undefined
      if (isRepeat) fail(`${event.id} was ${event.type} again although a checkpoint covered it`, event)
      else if (before && run && beforeEnd !== undefined && beforeEnd < run.start && run.crashBefore < before.number) {
        fail(`${event.id} was written again although run ${before.run} had ended cleanly`, event)
      }
      if (event.type === 'written') lastWrites.set(event.id, event)
    }
  }
  return violations
}

/** P7: what is delivered and not settled never exceeds the limits, by our own count and by the samples. */
export function checkBoundedMemory(facts: Facts, { limits }: Pick<AuditOptions, 'limits'>): Violation[] {
  const violations: Violation[] = []
  const fail = (message: string, event: HistoryEvent): number => violations.push({ promise: 'P7', message, event })
  const runs = new Map<number, OpenDeliveries>()
  for (const event of facts.events) {
    const open = runs.get(event.run) ?? new OpenDeliveries()
    runs.set(event.run, open)
    if (event.type === 'query-started') {
      // A new query from an earlier time gives up what was delivered after it: that comes again.
      open.read(event.token, event.resumed ? null : event.start)
    } else if (event.type === 'delivered') {
      const change = facts.changes.get(event.id)
      if (change) open.add(change)
      if (open.count > limits.maxInFlight) fail(`${open.count} in flight, limit ${limits.maxInFlight}`, event)
    } else if (event.type === 'written' || event.type === 'skipped') {
      open.settle(facts.changes.get(event.id))
    } else if (event.type === 'in-flight') {
      const maxBytes = limits.maxInFlightBytes + open.partitions * limits.maxRecordBytes
      if (event.count > limits.maxInFlight) fail(`${event.count} in flight, limit ${limits.maxInFlight}`, event)
      if (event.bytes > maxBytes) fail(`${event.bytes} bytes in flight, limit ${maxBytes}`, event)
    } else if (event.type === 'store-write' && event.op === 'claim' && event.accepted) {
      for (const [run, other] of runs) if (run !== event.run) other.giveUp(event.token)
    } else if (isFinish(event)) open.finish(event.token)
  }
  return violations
}

/** P8: a low watermark is never above an open change of any partition, announced ones included, and never moves back. */
export function checkHonestLowWatermark(
  facts: Facts,
  { finalLowWatermark }: Pick<AuditOptions, 'finalLowWatermark'>,
): Violation[] {
  const violations: Violation[] = []
  const last = new Map<number, CommitTimestamp>()
  let final = ''
  for (const event of facts.events) {
    if (event.type !== 'low-watermark') continue
    const fail = (message: string): number => violations.push({ promise: 'P8', message, event })
    const open = facts.timeline.openBefore(event.value, event.number)
    if (open) fail(`low watermark ${event.value} is above ${open.id} of ${open.commitTimestamp}, which was open`)
    const before = last.get(event.run)
    if (before !== undefined && event.value < before) fail(`low watermark moved back from ${before} to ${event.value}`)
    last.set(event.run, event.value)
    final = event.value
  }
  if (finalLowWatermark !== undefined && final < finalLowWatermark) {
    const message = `low watermark ended at ${final || 'nothing'}, short of ${finalLowWatermark}`
    violations.push({ promise: 'P8', message })
  }
  return violations
}

/** P9: timestamps arrive byte for byte as committed, and every time that is stored or shown has nine digits. */
export function checkExactTime(facts: Facts): Violation[] {
  const violations: Violation[] = []
  for (const event of facts.events) {
    const time = timeIn(event)
    const committed = event.type === 'written' ? facts.changes.get(event.id)?.commitTimestamp : undefined
    if (time !== undefined && !NINE_DIGITS.test(time)) {
      violations.push({
        promise: 'P9',
        message: `${event.type} carries ${time}: not nine fraction digits in UTC`,
        event,
      })
    } else if (committed !== undefined && time !== committed) {
      violations.push({ promise: 'P9', message: `written as ${time}, committed as ${committed}`, event })
    }
  }
  return violations
}

/** P10: in one epoch of a partition one owner writes, no accepted write is older, and none takes what is held. */
export function checkOneOwner(facts: Facts): Violation[] {
  const violations: Violation[] = []
  const current = new Map<string, EventOf<'store-write'>>()
  for (const event of facts.events) {
    if (event.type !== 'store-write' || !event.accepted) continue
    const { token, owner, epoch, leaseLeftMs = 0 } = event
    const before = current.get(token)
    if (leaseLeftMs > 0) {
      const message = `${token}: ${owner} took what ${before?.owner} held for another ${leaseLeftMs} ms`
      violations.push({ promise: 'P10', message, event })
    }
    if (before === undefined || epoch > before.epoch) current.set(token, event)
    else if (epoch < before.epoch) {
      const message = `${token}: ${owner} wrote in epoch ${epoch} after ${before.owner} in epoch ${before.epoch}`
      violations.push({ promise: 'P10', message, event })
    } else if (owner !== before.owner) {
      const message = `${token}: ${before.owner} and ${owner} both wrote in epoch ${epoch}`
      violations.push({ promise: 'P10', message, event })
    }
  }
  return violations
}

/** P11: when a run has drained or finished, all that it delivered is settled and stored; ended anyhow, it writes no more. */
export function checkDrainSettlesAll(facts: Facts): Violation[] {
  const violations: Violation[] = []
  const stored = new Map<string, Progress>()
  const finished = new Set<string>()
  const delivered = new Map<number, Map<string, JudgedChange[]>>()
  const ended = new Set<number>()
  for (const event of facts.events) {
    if (event.type === 'run-ended') ended.add(event.run)
    if (event.type === 'written' && ended.has(event.run)) {
      violations.push({ promise: 'P11', message: `${event.id} was written after its run had ended`, event })
    }
    if (event.type === 'run-started') delivered.set(event.run, new Map())
    else if (event.type === 'delivered') {
      const change = facts.judged.get(event.id)
      const byToken = delivered.get(event.run)
      if (change === undefined || byToken === undefined) continue
      const changes = byToken.get(change.partitionToken)
      if (changes) changes.push(change)
      else byToken.set(change.partitionToken, [change])
    } else if (event.type === 'store-write' && event.accepted) {
      if (isFinish(event)) finished.add(event.token)
      const progress = progressOf(event)
      if (progress) stored.set(event.token, progress)
      // What another run has taken over is its duty from here on.
      if (event.op === 'claim')
        for (const [run, byToken] of delivered) if (run !== event.run) byToken.delete(event.token)
    } else if (event.type === 'run-ended' && event.outcome !== 'failed') {
      for (const [token, changes] of delivered.get(event.run) ?? []) {
        const coverage = new Coverage(stored.get(token))
        for (const change of changes) {
          const isStored = finished.has(token) || coverage.has(change)
          const lack = change.settledAt > event.number ? 'settled' : isStored ? undefined : 'stored'
          if (lack === undefined) continue
          violations.push({
            promise: 'P11',
            message: `run ended ${event.outcome}, ${change.id} was not ${lack}`,
            event,
          })
        }
      }
    }
  }
  return violations
}

interface LatestWrite {
  readonly id: string
  readonly event: HistoryEvent
}

function isBehind(now: Progress, before: Progress): boolean {
  if (now.watermark !== before.watermark) return now.watermark < before.watermark
  const kept = new Set(now.boundaryIds)
  return before.boundaryIds.some((id) => !kept.has(id))
}

/** A heartbeat at the end closes it: nothing comes at or before its time any more. Records must lie behind the end. */
function isPastEnd({ kind, timestamp }: EventOf<'query-returned'>, end: CommitTimestamp | null): boolean {
  if (end === null || timestamp === undefined) return false
  return timestamp > end || (kind === 'heartbeat' && timestamp === end)
}

function timeIn(event: HistoryEvent): string | undefined {
  if (event.type === 'written') return event.timestamp
  if (event.type === 'store-write') return event.watermark
  if (event.type === 'low-watermark') return event.value
  return event.type === 'query-started' ? event.start : undefined
}

const NINE_DIGITS = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$/
const NEEDED = [
  'run-started',
  'query-started',
  'query-returned',
  'delivered',
  'written',
  'store-write',
  'low-watermark',
] as const satisfies readonly HistoryEvent['type'][]
