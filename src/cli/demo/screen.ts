/** The demo's live screen: a pure function from what is known to text that fits the terminal. */
import { stripVTControlCharacters, styleText } from 'node:util'
import { count, duration } from '../human-units.ts'
import type { Verdict } from './judge.ts'

export interface DemoState {
  readonly seed: number
  readonly phase: string
  readonly elapsedMs: number
  /** How long changes are made; undefined without end. */
  readonly totalMs: number | undefined
  readonly verdict: Verdict
  /** Deliveries per second, oldest first, one value a sample. */
  readonly throughput: readonly number[]
  readonly lagMs: number | undefined
  readonly inFlight: number
  readonly crashes: number
  readonly topology: TopologyCounts
  /** By kind. */
  readonly faults: Readonly<Record<string, number>>
  readonly partitions: readonly PartitionRow[]
  /** Oldest first. */
  readonly events: readonly DemoEvent[]
}

export interface TopologyCounts {
  readonly split: number
  readonly move: number
  readonly merge: number
}

export interface PartitionRow {
  readonly name: string
  /** Its share of all keys, 0 to 1. */
  readonly from: number
  readonly to: number
  readonly state: string
  readonly behindMs: number | undefined
  readonly inFlight: number
  readonly parents: readonly string[]
}

export interface DemoEvent {
  readonly atMs: number
  readonly text: string
}

export interface ScreenSize {
  readonly columns: number
  readonly rows: number
}

/** At most `rows - 1` lines of at most `columns` characters: the last row is the cursor's. */
export function renderScreen(state: DemoState, { columns, rows }: ScreenSize, hasColour: boolean): string {
  const paint: Paint = (style, text) => (hasColour ? styleText(style, text, { validateStream: false }) : text)
  const head = [title(state, columns, paint), '', throughputLine(state, columns, paint), ...numbers(state, paint), '']
  const free = Math.max(0, rows - 1 - head.length - 2) // without the table's header and the line below it
  const partitionRows = Math.min(state.partitions.length, free - Math.min(free, MIN_EVENT_ROWS))
  const eventRows = free - partitionRows
  const lines = [
    ...head,
    ...partitionTable(state.partitions, columns, partitionRows, paint),
    '',
    ...state.events
      .slice(Math.max(0, state.events.length - eventRows))
      .map((event) => `  ${paint('dim', clock(event.atMs))}  ${event.text}`),
  ]
  return lines
    .slice(0, Math.max(1, rows - 1))
    .map((line) => clip(line, columns))
    .join('\n')
}

/** The same in one line, for a log. */
export function renderLine({ elapsedMs, verdict, lagMs, inFlight, crashes }: DemoState): string {
  const parts = [
    clock(elapsedMs),
    `committed ${count(verdict.committed)}`,
    `delivered ${count(verdict.delivered)}`,
    `lag ${lagMs === undefined ? '-' : duration(lagMs)}`,
    `in flight ${count(inFlight)}`,
  ]
  if (crashes > 0) parts.push(`crashes ${count(crashes)}`)
  return parts.join('  ')
}

/** `01:07` */
export function clock(ms: number): string {
  const seconds = Math.floor(ms / 1000)
  return `${String(Math.floor(seconds / 60)).padStart(2, '0')}:${String(seconds % 60).padStart(2, '0')}`
}

type Paint = (style: Parameters<typeof styleText>[0], text: string) => string

function title({ seed, phase, elapsedMs, totalMs }: DemoState, columns: number, paint: Paint): string {
  const time =
    totalMs === undefined || elapsedMs > totalMs ? clock(elapsedMs) : `${clock(elapsedMs)} of ${clock(totalMs)}`
  const left = `millrace demo  seed ${seed}  ${time}  ${phase}`
  const right = 'Ctrl-C ends'
  const gap = columns - left.length - right.length
  return gap < 2 ? paint('bold', left) : `${paint('bold', left)}${' '.repeat(gap)}${paint('dim', right)}`
}

function throughputLine({ throughput }: DemoState, columns: number, paint: Paint): string {
  const width = Math.max(10, columns - 26)
  const now = `${count(throughput.at(-1) ?? 0)}/s`
  return `  delivered/s ${paint('cyan', sparkline(throughput, width))} ${now.padStart(8)}`
}

function sparkline(values: readonly number[], width: number): string {
  const shown = values.slice(-width)
  const top = Math.max(1, ...shown)
  const bars = shown.map((value) => BARS[Math.round((value / top) * (BARS.length - 1))])
  return bars.join('').padEnd(width, ' ')
}

function numbers({ verdict, lagMs, inFlight, crashes, topology, faults }: DemoState, paint: Paint): string[] {
  const { committed, delivered, repeated, outOfOrder } = verdict
  const lag = lagMs === undefined ? '-' : duration(lagMs)
  const faultCount = Object.values(faults).reduce((sum, value) => sum + value, 0)
  const order = paint(outOfOrder === 0 ? 'green' : 'red', `out of order ${count(outOfOrder)}`)
  const crashed = paint(crashes === 0 ? 'dim' : 'yellow', `worker crashes ${count(crashes)}`)
  return [
    `  committed ${paint('bold', count(committed))}  delivered ${paint('bold', count(delivered))}  lag ${lag}  in flight ${count(inFlight)}`,
    `  ${order}  repeated ${count(repeated)}  faults ${count(faultCount)}  ${crashed}`,
    `  splits ${topology.split}  moves ${topology.move}  merges ${topology.merge}`,
  ]
}

function partitionTable(partitions: readonly PartitionRow[], columns: number, rows: number, paint: Paint): string[] {
  if (rows < 1) return []
  const barWidth = Math.max(8, Math.min(40, columns - 56))
  const header = `  ${'partition'.padEnd(9)}  ${'keys'.padEnd(barWidth)}  ${'state'.padEnd(9)}  ${'behind'.padStart(8)}  in flight  from`
  const sorted = [...partitions].sort((a, b) => a.from - b.from || a.to - b.to)
  const shown = sorted.length <= rows ? sorted : sorted.slice(0, rows - 1)
  const lines = shown.map(({ name, from, to, state, behindMs, inFlight, parents }) => {
    const behind = behindMs === undefined ? '-' : duration(behindMs)
    const colour = state === 'RUNNING' ? 'green' : state === NO_READER ? 'red' : 'yellow'
    return `  ${name.padEnd(9)}  ${rangeBar(from, to, barWidth)}  ${paint(colour, state.padEnd(9))}  ${behind.padStart(8)}  ${count(inFlight).padStart(9)}  ${parents.join(' ')}`
  })
  if (shown.length < sorted.length) lines.push(`  … and ${count(sorted.length - shown.length)} more`)
  return [paint('dim', header), ...lines]
}

function rangeBar(from: number, to: number, width: number): string {
  const first = Math.min(width - 1, Math.floor(from * width))
  const last = Math.max(first + 1, Math.round(to * width))
  return `${'·'.repeat(first)}${'█'.repeat(last - first)}${'·'.repeat(Math.max(0, width - last))}`
}

/** Cuts a line that is too long; such a line loses its colours, since a cut must not fall into one of them. */
function clip(line: string, columns: number): string {
  const plain = stripVTControlCharacters(line)
  return plain.length <= columns ? line : `${plain.slice(0, columns - 1)}…`
}

/** The state of a partition while no worker is there to read it. */
export const NO_READER = 'no reader'
const MIN_EVENT_ROWS = 4
const BARS = '▁▂▃▄▅▆▇█'
