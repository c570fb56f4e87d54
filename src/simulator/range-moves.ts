/** How key ranges move between the partitions of a stream with mutable key ranges, and what its records say of it. */
import { ConfigError } from '../core/errors.ts'
import type { PartitionMode } from '../model/change-stream.ts'
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import type { LedgerTopologyEvent } from './ledger.ts'
import type { LogEntry } from './partition-log.ts'
import type { PartitionTree, TreeNode } from './partition-tree.ts'
import type { SeededRandom } from './seeded-random.ts'
import { recordSequence } from './transaction-records.ts'

export interface MoveTime {
  readonly at: CommitTimestamp
  readonly sequence: number
}

export interface MovesContext {
  readonly mode: PartitionMode
  readonly tree: PartitionTree
  readonly random: SeededRandom
  /**
   * The time of a move, and the number of its first record at that time: behind all commits so far, of which the last
   * may share it. What is committed from now on is later still.
   */
  nextTime(): MoveTime
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
    const time = nextTime()
    const { at } = time
    const created: TreeNode[] = []
    for (let i = 1; i < ways; i++) {
      const part = tree.cutOff(source)
      if (part === undefined) throw new ConfigError(`SimulatedStream: the partition cannot be split into ${ways}`)
      const node = tree.create(part, at)
      tree.take(part, node)
      created.push(node)
    }
    this.#write(source, time, { started: created, to: created })
    for (const node of created) this.#write(node, time, { from: [source] })
    note('split', at, [source], created)
    return created.map((node) => node.token)
  }

  move(token: string): string {
    const { tree, nextTime, note } = this.#context
    const source = tree.assertLive(token)
    const time = nextTime()
    const { at } = time
    const node = tree.create(source.range, at)
    tree.giveAll(source, node)
    tree.end(source, at)
    this.#write(source, time, { started: [node], to: [node], isEnd: true })
    this.#write(node, time, { from: [source] })
    note('move', at, [source], [node])
    return node.token
  }

  merge(tokenA: string, tokenB: string): string {
    const { tree, nextTime, note } = this.#context
    const [target, source] = this.#two(tokenA, tokenB)
    const time = nextTime()
    tree.giveAll(source, target)
    tree.end(source, time.at)
    this.#write(source, time, { to: [target], isEnd: true })
    this.#write(target, time, { from: [source] })
    note('merge', time.at, [source], [target])
    return target.token
  }

  moveRange(from: string, to: string): void {
    const { tree, nextTime, note } = this.#context
    const [source, target] = this.#two(from, to)
    const part = tree.cutOff(source)
    if (part === undefined) return
    const time = nextTime()
    tree.take(part, target)
    this.#write(source, time, { to: [target] })
    this.#write(target, time, { from: [source] })
    note('moveRange', time.at, [source], [target])
  }

  rotateRanges(tokens: readonly string[]): void {
    const { tree, nextTime, note } = this.#context
    this.#assertMutable()
    if (tokens.length < 2 || new Set(tokens).size < tokens.length) {
      throw new ConfigError('SimulatedStream: ranges move between two or more partitions')
    }
    const nodes = tokens.map((token) => tree.assertLive(token))
    const parts = nodes.map((node) => tree.cutOff(node))
    if (parts.includes(undefined)) return
    const time = nextTime()
    for (const [index, node] of nodes.entries()) {
      const before = nodes.at(index - 1)!
      const behind = nodes[(index + 1) % nodes.length]!
      tree.take(parts[index]!, behind)
      this.#write(node, time, { from: [before], to: [behind] })
    }
    note('rotateRanges', time.at, nodes, [...nodes.slice(1), nodes[0]!])
  }

  #two(tokenA: string, tokenB: string): [TreeNode, TreeNode] {
    const { tree } = this.#context
    this.#assertMutable()
    if (tokenA === tokenB) throw new ConfigError('SimulatedStream: ranges move between two partitions')
    return [tree.assertLive(tokenA), tree.assertLive(tokenB)]
  }

  #assertMutable(): void {
    if (this.#context.mode === 'mutable') return
    throw new ConfigError("SimulatedStream: ranges move in mode 'mutable' only")
  }

  /** The records of one partition at one time, numbered across their kinds. */
  #write(
    { token, log }: TreeNode,
    { at, sequence }: MoveTime,
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
    const entries = startEntries(tokensOf(started), { at, sequence }, random, visibleAtMs)
    const event = {
      commitTimestamp: at,
      recordSequence: recordSequence(sequence + entries.length),
      token,
      moveInFrom: tokensOf(from),
      moveOutTo: tokensOf(to),
    }
    entries.push({ timestamp: at, visibleAtMs, record: { kind: 'event', record: event } })
    if (isEnd) {
      const end = { endTimestamp: at, recordSequence: recordSequence(sequence + entries.length), token }
      entries.push({ timestamp: at, visibleAtMs, record: { kind: 'end', record: end } })
    }
    log.insert(log.end, entries)
  }
}

/** One or several records that name new partitions, all with the same start. */
export function startEntries(
  tokens: readonly string[],
  { at: startTimestamp, sequence }: MoveTime,
  random: SeededRandom,
  visibleAtMs: number,
): LogEntry[] {
  const entries: LogEntry[] = []
  for (let from = 0; from < tokens.length; ) {
    const to = from + 1 + random.int(tokens.length - from)
    const number = recordSequence(sequence + entries.length)
    const record = { startTimestamp, recordSequence: number, tokens: tokens.slice(from, to) }
    entries.push({ timestamp: startTimestamp, visibleAtMs, record: { kind: 'start', record } })
    from = to
  }
  return entries
}

function tokensOf(nodes: readonly TreeNode[]): string[] {
  return nodes.map((node) => node.token)
}
