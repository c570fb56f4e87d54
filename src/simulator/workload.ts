/** Random life in a small shop: commits, splits, moves and merges, the same for the same seed. */
import { sleep } from '../core/clock.ts'
import { positiveInteger } from '../core/options.ts'
import type { Row } from '../model/data-change-record.ts'
import { SeededRandom } from './seeded-random.ts'
import type { SimulatedStream } from './simulated-stream.ts'
import type { RowWrite, TableDefinition } from './table-rows.ts'

export interface RandomWorkloadOptions {
  readonly seed: number
  /** How many; `Infinity` goes on until the signal says stop. */
  readonly transactions: number
  /**
   * Most rows in one transaction.
   * @default 4
   */
  readonly rowsPerTransaction?: number
  /**
   * Different primary keys per table: few make many changes of the same row.
   * @default 40
   */
  readonly keys?: number
  /**
   * Longest pause between two transactions; about a third of them follow without one.
   * @default 20
   */
  readonly pauseMs?: number
  /**
   * How often a split, a move or a merge comes before a transaction.
   * @default 0.03
   */
  readonly topologyChance?: number
  /**
   * No splits beyond so many live partitions.
   * @default 8
   */
  readonly maxPartitions?: number
  /** Ends the workload between two transactions, without an error. */
  readonly signal?: AbortSignal
}

/** The tables that `randomWorkload` writes to. */
export const shopTables: readonly TableDefinition[] = [
  {
    name: 'Customers',
    columns: [
      { name: 'CustomerId', type: 'STRING', isPrimaryKey: true },
      { name: 'Name', type: 'STRING' },
      { name: 'IsActive', type: 'BOOL' },
    ],
  },
  {
    name: 'Orders',
    columns: [
      { name: 'CustomerId', type: 'STRING', isPrimaryKey: true },
      { name: 'OrderId', type: 'INT64', isPrimaryKey: true },
      { name: 'Status', type: 'STRING' },
      { name: 'Total', type: 'NUMERIC' },
      { name: 'PlacedAt', type: 'TIMESTAMP' },
      { name: 'Tags', type: { code: 'ARRAY', array_element_type: { code: 'STRING' } } },
    ],
  },
  {
    name: 'Items',
    columns: [
      { name: 'ItemId', type: 'INT64', isPrimaryKey: true },
      { name: 'Title', type: 'STRING' },
      { name: 'Stock', type: 'INT64' },
      { name: 'Weight', type: 'FLOAT64' },
    ],
  },
]

/**
 * Commits random transactions on the stream's clock and changes its partitions now and then. Declares its tables if
 * need be. Resolves after the last transaction, or when the signal says stop.
 */
export async function randomWorkload(stream: SimulatedStream, options: RandomWorkloadOptions): Promise<void> {
  const { transactions, rowsPerTransaction = 4, keys = 40, pauseMs = 20, signal } = options
  const { topologyChance = 0.03, maxPartitions = 8 } = options
  const random = new SeededRandom(`workload ${options.seed}`)
  positiveInteger('randomWorkload', 'rowsPerTransaction', rowsPerTransaction)
  positiveInteger('randomWorkload', 'keys', keys)
  for (const table of shopTables) if (!stream.hasTable(table.name)) stream.defineTable(table)
  for (let done = 0; done < transactions && !signal?.aborted; done++) {
    if (random.chance(topologyChance)) changePartitions(stream, random, maxPartitions)
    const writes = randomWrites(stream, random, 1 + random.int(rowsPerTransaction), keys)
    stream.commit(writes, random.chance(0.2) ? { tag: `app=shop,run=${done}` } : {})
    if (pauseMs > 0 && random.chance(0.7)) await pause(stream, 1 + random.int(pauseMs), signal)
  }
}

function changePartitions(stream: SimulatedStream, random: SeededRandom, maxPartitions: number): void {
  const live = stream.livePartitions()
  const at = random.int(live.length)
  const { token } = live[at]!
  const neighbour = live[at + 1]
  const kind = random.int(5)
  if (kind < 2 && live.length < maxPartitions) stream.split(token, random.chance(0.2) ? 3 : 2)
  else if (kind < 4 && neighbour !== undefined) stream.merge(token, neighbour.token)
  else stream.move(token)
}

function randomWrites(stream: SimulatedStream, random: SeededRandom, count: number, keys: number): RowWrite[] {
  const writes: RowWrite[] = []
  // A row may be written twice in one transaction: what exists then depends on the writes before.
  const exists = new Map<string, boolean>()
  while (writes.length < count) {
    const table = random.pick(shopTables)
    const rowKeys = randomKeys(table.name, random, keys)
    const key = `${table.name}${JSON.stringify(rowKeys)}`
    const isThere = exists.get(key) ?? stream.row(table.name, rowKeys) !== undefined
    const op = isThere ? (random.chance(0.2) ? 'delete' : 'update') : 'insert'
    exists.set(key, op !== 'delete')
    const values = op === 'delete' ? {} : randomValues(table, op, random)
    writes.push({ table: table.name, op, keys: rowKeys, values })
  }
  return writes
}

function randomKeys(table: string, random: SeededRandom, keys: number): Row {
  const n = random.int(keys)
  if (table === 'Items') return { ItemId: String(n) }
  if (table === 'Customers') return { CustomerId: `customer-${n}` }
  return { CustomerId: `customer-${n % 7}`, OrderId: String(n) }
}

function randomValues(table: TableDefinition, op: 'insert' | 'update', random: SeededRandom): Row {
  const columns = table.columns.filter((column) => !column.isPrimaryKey)
  const chosen = op === 'insert' ? columns : columns.filter(() => random.chance(0.5))
  const values: Record<string, unknown> = {}
  for (const { name, type } of chosen.length > 0 ? chosen : [random.pick(columns)]) {
    values[name] = random.chance(0.05) ? null : randomValue(typeof type === 'string' ? type : type.code, random)
  }
  return values
}

function randomValue(code: string, random: SeededRandom): unknown {
  switch (code) {
    case 'BOOL':
      return random.chance(0.5)
    case 'INT64':
      return String(random.int(1000))
    case 'NUMERIC':
      return `${random.int(1000)}.${String(random.int(100)).padStart(2, '0')}`
    case 'FLOAT64':
      return random.int(1000) / 8
    case 'TIMESTAMP':
      return `2026-0${1 + random.int(9)}-15T12:00:00.${String(random.int(1e9)).padStart(9, '0')}Z`
    case 'ARRAY':
      return Array.from({ length: random.int(4) }, () => random.pick(WORDS))
    default:
      return Array.from({ length: 1 + random.int(6) }, () => random.pick(WORDS)).join(' ')
  }
}

async function pause(stream: SimulatedStream, ms: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await sleep(stream.clock, ms, signal)
  } catch (error) {
    if (!signal?.aborted) throw error
  }
}

const WORDS: readonly string[] = [
  'open',
  'paid',
  'sent',
  'back',
  'größer',
  '注文',
  'gift 🎁',
  '"quoted"',
  'line\nbreak',
  '',
]
