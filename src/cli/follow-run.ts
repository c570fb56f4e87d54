/** Tells how a run is doing: a progress line now and then, standby and drain as they happen. */
import type { Clock } from '../core/clock.ts'
import { timestampToMs } from '../model/commit-timestamp.ts'
import type { RunningPipeline, RunStatus, RunSummary } from '../runtime/index.ts'
import { count, duration, plural } from './human-units.ts'
import type { RunOutput } from './run-output.ts'

export interface Follower {
  stop(): void
}

/** Looks once a second; prints every ten seconds, every five while draining, and at each change between the two. */
export function followRun(run: RunningPipeline, output: RunOutput, drain: AbortSignal, clock: Clock): Follower {
  let timer = clock.after(LOOK_MS, look)
  let printedAt = clock.now()
  let printedWritten = 0
  let wasStandby = false

  function look(): void {
    timer = clock.after(LOOK_MS, look)
    const status = run.status()
    const isStandby = status.standbyFor !== undefined
    const due = clock.now() - printedAt >= (drain.aborted ? DRAIN_PRINT_MS : PRINT_MS)
    if (due || isStandby !== wasStandby) print(status)
    wasStandby = isStandby
  }

  function print(status: RunStatus): void {
    const now = clock.now()
    const elapsedMs = Math.max(1, now - printedAt)
    const perSecond = ((status.written - printedWritten) * 1000) / elapsedMs
    printedAt = now
    printedWritten = status.written
    if (drain.aborted) output.event('draining', drainLine(status), { inFlight: status.inFlight })
    else if (status.standbyFor !== undefined) {
      output.event('standby', standbyLine(status.standbyFor), { standbyFor: status.standbyFor })
    } else output.event('progress', progressLine(status, perSecond, now), progressFields(status, perSecond, now))
  }

  const draining = (): void => print(run.status())
  drain.addEventListener('abort', draining, { once: true })
  return {
    stop() {
      timer.cancel()
      drain.removeEventListener('abort', draining)
    },
  }
}

/** One line that fits in 80 columns. */
export function progressLine(status: RunStatus, perSecond: number, nowMs: number): string {
  const parts = [`written ${count(status.written)}`, `${count(perSecond)}/s`]
  if (status.lowWatermark !== undefined) parts.push(`lag ${duration(lagMs(status.lowWatermark, nowMs))}`)
  parts.push(`in flight ${count(status.inFlight)}`, `partitions ${count(status.partitions.length)}`)
  return parts.join('  ')
}

/** How it ended, for people. */
export function summaryLines(summary: RunSummary): string[] {
  const { outcome, written, elapsedMs, unsettled, rereads, skipped, lowWatermark } = summary
  const head = `${outcome === 'closed' ? '!' : '✓'} ${outcome}: ${count(written)} written in ${duration(elapsedMs)}`
  const lines = [unsettled > 0 ? `${head}, ${count(unsettled)} not settled: they come again at the next start` : head]
  const details = []
  if (skipped > 0) details.push(`skipped ${count(skipped)}`)
  if (rereads > 0) details.push(`read again ${plural(rereads, 'time')}`)
  if (lowWatermark !== undefined) details.push(`done up to ${lowWatermark}`)
  if (details.length > 0) lines.push(`  ${details.join(', ')}`)
  return lines
}

function drainLine(status: RunStatus): string {
  return `draining: ${count(status.inFlight)} in flight; a second signal stops at once`
}

function standbyLine(owner: string): string {
  return `standby: ${owner} runs this pipeline; waiting to take over`
}

function progressFields(status: RunStatus, perSecond: number, nowMs: number): Record<string, unknown> {
  const { written, delivered, inFlight, partitions, lowWatermark, rereads } = status
  const lag = lowWatermark === undefined ? {} : { lowWatermark, lagMs: Math.round(lagMs(lowWatermark, nowMs)) }
  const perSecondRounded = Math.round(perSecond)
  return { written, perSecond: perSecondRounded, delivered, inFlight, partitions: partitions.length, rereads, ...lag }
}

function lagMs(lowWatermark: string, nowMs: number): number {
  return Math.max(0, nowMs - timestampToMs(lowWatermark))
}

const LOOK_MS = 1000
const PRINT_MS = 10_000
const DRAIN_PRINT_MS = 5000
