/** 20 counters that are counted up 200 times each, read by workers that may be killed, and the verdict. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Partition } from '../../src/model/partition.ts'
import type { SeededRandom } from '../../src/simulator/index.ts'
import { type CounterLine, type CounterOrders, labelOf, openStore } from './counter-worker.ts'
import { CrashWorker } from './crash-harness.ts'

export const KEYS = 20
export const UPDATES = 200
export const KILLS = 3

/**
 * Counts all counters up in transactions of a few, in random order; every counter goes from 1 to `UPDATES`. Each gate
 * on the way, at equal distances, is waited for.
 */
export async function countUp(
  random: SeededRandom,
  commit: (values: ReadonlyMap<string, number>) => Promise<void> | void,
  gates: readonly Promise<void>[] = [],
): Promise<void> {
  const values = new Array<number>(KEYS).fill(0)
  for (let done = 0; done < KEYS * UPDATES; ) {
    const passed = Math.floor((done * (gates.length + 1)) / (KEYS * UPDATES))
    if (passed > 0) await gates[passed - 1]
    const open = [...values.keys()].filter((key) => values[key]! < UPDATES)
    const transaction = new Map<string, number>()
    for (let left = 1 + random.int(4); left > 0; left--) {
      const key = open[random.int(open.length)]!
      if (!transaction.has(String(key))) transaction.set(String(key), ++values[key]!)
    }
    done += transaction.size
    await commit(transaction)
  }
}

export interface CounterRun {
  /** In the order of writing, repeats included. */
  readonly lines: readonly CounterLine[]
  /** What the server sent, in the order of arrival. */
  readonly received: readonly string[]
  /** Who held the unfinished partitions at each kill. With a name of its own, the next worker must wait for the lease. */
  readonly deadOwners: readonly string[]
  readonly partitions: readonly Pick<Partition, 'token' | 'parentTokens'>[]
}

/**
 * Reads the counters in worker processes while `count` counts them up, then to the end that it returns. With
 * `killEveryMs` a worker is killed so long after its first write, `KILLS` times; without, the worker that reads meanwhile
 * is drained. The last one ends by itself, so that what is lost is told, not waited for. The counting halts at a gate
 * before each kill: opened just before it, it has the worker killed in the middle of work, and leaves work to the next,
 * which takes over when the lease of the dead one has run out.
 */
export async function readCounters(
  orders: Omit<CounterOrders, 'outPath' | 'receivedPath' | 'store' | 'end'>,
  store: (folder: string) => CounterOrders['store'],
  count: (gates: readonly Promise<void>[]) => Promise<string>,
  killEveryMs?: number,
): Promise<CounterRun> {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-counters-'))
  const full: CounterOrders = {
    ...orders,
    outPath: join(folder, 'out.jsonl'),
    receivedPath: join(folder, 'received.txt'),
    store: store(folder),
  }
  const gates = Array.from({ length: killEveryMs === undefined ? 0 : KILLS }, () => Promise.withResolvers<void>())
  const counted = count(gates.map(({ promise }) => promise))
  // Whoever awaits it hears of a failure; until then it must not end the process.
  counted.catch(() => undefined)
  const deadOwners: string[] = []
  const workers = new Workers(join(folder, 'cache'))
  try {
    for (const gate of gates) {
      await using worker = await workers.get(full, (started) => started.wrote(1))
      // The schedule of the test itself: so often the reader dies.
      await setTimeout(killEveryMs)
      const written = worker.written
      gate.resolve()
      await worker.wrote(written + 1)
      await worker.kill()
      deadOwners.push(...(await ownersOf(full)))
    }
    if (killEveryMs === undefined) {
      await using _ = await workers.get(full, async (worker) => {
        await counted
        await worker.wrote(1)
        worker.drain()
        await worker.heard('ended')
        await worker.exited
      })
    }
    await using _ = await workers.get({ ...full, end: await counted }, async (worker) => {
      await worker.heard('ended', ({ outcome }) => outcome === 'finished')
      await worker.exited
    })
    return {
      lines: linesOf(full.outPath),
      received: readFileSync(full.receivedPath, 'utf8').split('\n'),
      deadOwners,
      partitions: await partitionsOf(full),
    }
  } finally {
    for (const gate of gates) gate.resolve()
    await counted.catch(() => undefined)
    rmSync(folder, { recursive: true, force: true })
  }
}

/**
 * Gives workers that got somewhere. One that could not renew its lease in time, as on a very busy machine, ends by
 * itself and is replaced, as whatever runs it in real life would do; but not again and again.
 */
class Workers {
  readonly #compileCache: string
  #spares = MAX_REPLACED

  constructor(compileCache: string) {
    this.#compileCache = compileCache
  }

  async get(orders: CounterOrders, goal: (worker: CrashWorker) => Promise<void>): Promise<CrashWorker> {
    for (;;) {
      const worker = new CrashWorker(this.#compileCache, WORKER)
      worker.start(orders)
      try {
        await goal(worker)
        return worker
      } catch (error) {
        await worker.kill()
        const gaveUp = worker.reports.some((report) => report.kind === 'failed' && report.code === 'STORE_CONFLICT')
        if (!gaveUp || this.#spares-- === 0) throw error
      }
    }
  }
}

async function ownersOf(orders: CounterOrders): Promise<Set<string>> {
  const unfinished = (await partitionsOf(orders)).filter(({ state }) => state !== 'FINISHED')
  return new Set(unfinished.map(({ owner }) => owner).filter((owner) => owner !== null))
}

async function partitionsOf(orders: CounterOrders): Promise<Partition[]> {
  const store = openStore(orders.store)
  try {
    return [...((await store.peek!('counters')) ?? [])]
  } finally {
    await store.close()
  }
}

/** What is lost or invented; empty if nothing is. */
export function misses({ lines, received }: CounterRun): string[] {
  const expected = new Set<string>()
  for (let key = 0; key < KEYS; key++) {
    for (let value = 1; value <= UPDATES; value++) expected.add(`${key}=${value}`)
  }
  const seen = new Set(lines.map(labelOf))
  const ids = new Map<string, string>()
  const doubles = lines.filter((line) => {
    const known = ids.get(labelOf(line)) ?? line.id
    ids.set(labelOf(line), known)
    return known !== line.id
  })
  return [
    ...[...expected].filter((label) => !seen.has(label)).map((label) => `lost ${label}, ${howItCame(label, received)}`),
    ...[...seen].filter((label) => !expected.has(label)).map((label) => `invented ${label}`),
    // A repeat has the id of the first one; the same update as another change was never made.
    ...doubles.map((line) => `invented ${line.id} for ${labelOf(line)}`),
  ]
}

/** What the server sent around a change, or that it did not send it. */
function howItCame(label: string, received: readonly string[]): string {
  const at = received.findIndex((line) => line.includes(` ${label} `))
  return at === -1
    ? 'which the server never sent'
    : `which the server sent: ${received.slice(at - 3, at + 4).join(' | ')}`
}

/** Changes of one key that were first written out of their order inside a partition. */
export function disorderInPartitions({ lines }: CounterRun): string[] {
  return disorder(lines, ({ partition, key }) => `${partition} ${key}`)
}

/** Changes of one key that were first written out of order, wherever they came from: for streams that place keys. */
export function disorderOfKeys({ lines }: CounterRun): string[] {
  return disorder(lines, ({ key }) => key)
}

/** Changes of a partition that were first written after one of a partition that descends from it. */
export function childrenBeforeParents({ lines, partitions }: CounterRun): string[] {
  const parents = new Map(partitions.map(({ token, parentTokens }) => [token, parentTokens]))
  const begun = new Set<string>()
  const broken: string[] = []
  for (const { partition, id } of firstWrites(lines)) {
    // Without its parents nothing could be said.
    if (!parents.has(partition)) broken.push(`${id} came from ${partition}, which is not stored`)
    for (const other of begun) {
      if (descends(other, partition, parents)) broken.push(`${id} of ${partition} came after its descendant ${other}`)
    }
    begun.add(partition)
  }
  return broken
}

function descends(token: string, ancestor: string, parents: ReadonlyMap<string, readonly string[]>): boolean {
  if (token === ancestor) return false
  const open = [...(parents.get(token) ?? [])]
  const seen = new Set<string>()
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (next === ancestor) return true
    if (seen.has(next)) continue
    seen.add(next)
    open.push(...(parents.get(next) ?? []))
  }
  return false
}

function disorder(lines: readonly CounterLine[], groupOf: (line: CounterLine) => string): string[] {
  const last = new Map<string, CounterLine>()
  const broken: string[] = []
  for (const line of firstWrites(lines)) {
    const before = last.get(groupOf(line))
    if (before !== undefined && before.value > line.value) {
      broken.push(`${labelOf(line)} was written after ${labelOf(before)} (${line.partition})`)
    }
    last.set(groupOf(line), line)
  }
  return broken
}

function firstWrites(lines: readonly CounterLine[]): CounterLine[] {
  const seen = new Set<string>()
  return lines.filter(({ id }) => !seen.has(id) && seen.add(id))
}

function linesOf(path: string): CounterLine[] {
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n')
  return lines.map((line) => JSON.parse(line) as CounterLine)
}

const WORKER = fileURLToPath(new URL('./counter-worker.ts', import.meta.url))
const MAX_REPLACED = 2
