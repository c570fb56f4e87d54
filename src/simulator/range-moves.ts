/** How key ranges move between the partitions of a stream with mutable key ranges, and what its records say of it. */
import { ConfigError } from '../core/errors.ts'
import type { PartitionMode } from '../model/change-stream.ts'
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import type { LedgerTopologyEvent } from './ledger.ts'
import type { LogEntry } from './partition-log.ts'
import type { PartitionTree, TreeNode } from './partition-tree.ts'
import type { SeededRandom } from './seeded-random.ts'
import { recordSequence } from './transaction-records.ts'

export interface MovesContext {
  readonly mode: PartitionMode
  readonly tree: PartitionTree
  readonly random: SeededRandom
  /** A time later than everything so far; what is committed from now on is later still. */
  nextTime(): CommitTimestamp
  visibleAtMs(): number
  note(kind: LedgerTopologyEvent['kind'], at: CommitTimestamp, from: readonly TreeNode[], to: readonly TreeNode[]): void
}

/** Partitions live on while ranges come and go; they start by a record in another one and end by one of their own. */
export class RangeMoves {
  readonly #context: MovesContext

  constructor(context: MovesContext) {
    this.#context = context
  }

  split(token: string, ways: number): string[] {
    const { tree, nextTime, note } = this.#context
    const source = tree.assertLive(token)
    const at = nextTime()
    const created: TreeNode[] = []
    for (let i = 1; i < ways; i++) {
      const part = tree.cutOff(source)
      if (part === undefined) throw new ConfigError(`SimulatedStream: the partition cannot be split into ${ways}`)
      const node = tree.create(part, at)
      tree.take(part, node)
      created.push(node)
    }
    this.#write(source, at, { started: created, to: created })
    for (const node of created) this.#write(node, at, { from: [source] })
    note('split', at, [source], created)
    return created.map((node) => node.token)
  }

  move(token: string): string {
    const { tree, nextTime, note } = this.#context
    const source = tree.assertLive(token)
    const at = nextTime()
    const node = tree.create(source.range, at)
    tree.giveAll(source, node)
    tree.end(source, at)
    this.#write(source, at, { started: [node], to: [node], isEnd: true })
    this.#write(node, at, { from: [source] })
    note('move', at, [source], [node])
    return node.token
  }

  merge(tokenA: string, tokenB: string): string {
    const { tree, nextTime, note } = this.#context
    const [target, source] = this.#two(tokenA, tokenB)
    const at = nextTime()
    tree.giveAll(source, target)
    tree.end(source, at)
    this.#write(source, at, { to: [target], isEnd: true })
    this.#write(target, at, { from: [source] })
    note('merge', at, [source], [target])
    return target.token
  }

  moveRange(from: string, to: string): void {
    const { tree, nextTime, note } = this.#context
    const [source, target] = this.#two(from, to)
    const part = tree.cutOff(source)
    if (part === undefined) return
    const at = nextTime()
    tree.take(part, target)
    this.#write(source, at, { to: [target] })
    this.#write(target, at, { from: [source] })
    note('moveRange', at, [source], [target])
  }

  swapRanges(tokenA: string, tokenB: string): void {
    const { tree, nextTime, note } = this.#context
    const [a, b] = this.#two(tokenA, tokenB)
    const ofA = tree.cutOff(a)
    const ofB = tree.cutOff(b)
    if (ofA === undefined || ofB === undefined) return
    const at = nextTime()
    tree.take(ofA, b)
    tree.take(ofB, a)
    this.#write(a, at, { from: [b], to: [b] })
    this.#write(b, at, { from: [a], to: [a] })
    note('swapRanges', at, [a, b], [a, b])
  }

  #two(tokenA: string, tokenB: string): [TreeNode, TreeNode] {
    const { mode, tree } = this.#context
    if (mode !== 'mutable') throw new ConfigError("SimulatedStream: ranges move in mode 'mutable' only")
    if (tokenA === tokenB) throw new ConfigError('SimulatedStream: ranges move between two partitions')
    return [tree.assertLive(tokenA), tree.assertLive(tokenB)]
  }

  /** The records of one partition at one time, numbered across their kinds. */
  #write(
    { token, log }: TreeNode,
    at: CommitTimestamp,
    {
      started = [],
      from = [],
      to = [],
      isEnd = false,
    }: {
      readonly started?: readonly TreeNode[]
      readonly from?: readonly TreeNode[]
      readonly to?: readonly TreeNode[]
      readonly isEnd?: boolean
    },
  ): void {
    const { random, visibleAtMs: visible } = this.#context
    const visibleAtMs = visible()
    const entries = startEntries(tokensOf(started), at, random, visibleAtMs)
    const event = {
      commitTimestamp: at,
      recordSequence: recordSequence(entries.length),
      token,
      moveInFrom: tokensOf(from),
      moveOutTo: tokensOf(to),
    }
    entries.push({ timestamp: at, visibleAtMs, record: { kind: 'event', record: event } })
    if (isEnd) {
      const end = { endTimestamp: at, recordSequence: recordSequence(entries.length), token }
      entries.push({ timestamp: at, visibleAtMs, record: { kind: 'end', record: end } })
    }
    log.insert(log.end, entries)
  }
}

/** One or several records that name new partitions, all with the same start. */
export function startEntries(
  tokens: readonly string[],
  startTimestamp: CommitTimestamp,
  random: SeededRandom,
  visibleAtMs: number,
): LogEntry[] {
  const entries: LogEntry[] = []
  for (let from = 0; from < tokens.length; ) {
    const to = from + 1 + random.int(tokens.length - from)
    const record = { startTimestamp, recordSequence: recordSequence(entries.length), tokens: tokens.slice(from, to) }
    entries.push({ timestamp: startTimestamp, visibleAtMs, record: { kind: 'start', record } })
    from = to
  }
  return entries
}

function tokensOf(nodes: readonly TreeNode[]): string[] {
  return nodes.map((node) => node.token)
}
