/** The partitions of a simulated stream: who owns which part of the key space, and who came from whom. */
import { ConfigError } from '../core/errors.ts'
import type { CommitTimestamp } from '../model/commit-timestamp.ts'
import { hashText } from './hash-text.ts'
import { PartitionLog } from './partition-log.ts'
import type { SeededRandom } from './seeded-random.ts'

/** Every row key is a point from 0 to just below this. */
export const KEY_SPACE: number = 2 ** 32

/** Half open: `lo` belongs to it, `hi` does not. */
export interface KeyRange {
  readonly lo: number
  readonly hi: number
}

export interface SimulatedPartition {
  readonly token: string
  /** Empty with mutable key ranges: there, what moves between partitions says where it came from. */
  readonly parents: readonly string[]
  /** What it was made with; with mutable key ranges it may have lost and gained parts since. */
  readonly range: KeyRange
  /** It holds what was committed from here on ... */
  readonly start: CommitTimestamp
  /** ... to just before here; null while it is live. */
  readonly end: CommitTimestamp | null
  readonly children: readonly string[]
}

/** A partition with its records. */
export interface TreeNode extends SimulatedPartition {
  end: CommitTimestamp | null
  children: readonly string[]
  readonly log: PartitionLog
  /** How often it was read. */
  queries: number
}

/** A part of the key space and whose it is. */
export interface Segment extends KeyRange {
  readonly node: TreeNode
}

/** The ranges of the live partitions tile the whole key space: each key is in exactly one of them. */
export class PartitionTree {
  readonly #random: SeededRandom
  readonly #nodes = new Map<string, TreeNode>()
  /** By the range with which they were made. */
  #live: TreeNode[] = []
  /** Which part of the key space belongs to whom: side by side, from one end to the other. */
  #segments: Segment[] = []

  constructor(random: SeededRandom, count: number, start: CommitTimestamp) {
    this.#random = random
    this.#live = cut({ lo: 0, hi: KEY_SPACE }, count, random).map((range) => this.#add([], range, start))
    this.#segments = this.#live.map((node) => ({ ...node.range, node }))
  }

  /** By range. */
  get live(): readonly TreeNode[] {
    return this.#live
  }

  /** All partitions that are kept, parents before children. */
  get all(): TreeNode[] {
    return [...this.#nodes.values()]
  }

  get(token: string): TreeNode | undefined {
    return this.#nodes.get(token)
  }

  /** The live partition that holds a row key. */
  holderOf(rowKey: string): TreeNode {
    const point = pointOf(rowKey)
    let low = 0
    let high = this.#segments.length - 1
    while (low < high) {
      const middle = (low + high) >> 1
      if (point < this.#segments[middle]!.hi) high = middle
      else low = middle + 1
    }
    return this.#segments[low]!.node
  }

  /** The partitions that were live at a time: a partition is live at its start, and at its end if data may be there. */
  liveAt(timestamp: CommitTimestamp, includesEnd: boolean): TreeNode[] {
    const isBefore = (end: CommitTimestamp): boolean => timestamp < end || (includesEnd && timestamp === end)
    return this.all
      .filter((node) => node.start <= timestamp && (node.end === null || isBefore(node.end)))
      .sort((a, b) => a.range.lo - b.range.lo)
  }

  assertLive(token: string): TreeNode {
    const node = this.#nodes.get(token)
    if (node === undefined) throw new ConfigError(`SimulatedStream: there is no partition ${shortToken(token)}`)
    if (node.end !== null) throw new ConfigError(`SimulatedStream: partition ${shortToken(token)} has ended already`)
    return node
  }

  /** Ends one partition and lets `ways` others share its range. */
  split(token: string, ways: number, at: CommitTimestamp): TreeNode[] {
    const parent = this.assertLive(token)
    const { lo, hi } = parent.range
    if (!Number.isSafeInteger(ways) || ways < 1 || hi - lo < ways) {
      throw new ConfigError(`SimulatedStream: partition ${shortToken(token)} cannot be split into ${ways}`)
    }
    const children = cut(parent.range, ways, this.#random).map((range) => this.#add([token], range, at))
    this.#replace([parent], children, at)
    return children
  }

  /** Ends two partitions that lie side by side and lets one other take their ranges. */
  merge(tokenA: string, tokenB: string, at: CommitTimestamp): TreeNode {
    const parents = [this.assertLive(tokenA), this.assertLive(tokenB)].sort((a, b) => a.range.lo - b.range.lo)
    const [left, right] = parents as [TreeNode, TreeNode]
    if (left.range.hi !== right.range.lo) {
      throw new ConfigError(
        `SimulatedStream: partitions ${shortToken(tokenA)} and ${shortToken(tokenB)} are not side by side`,
      )
    }
    const child = this.#add([left.token, right.token], { lo: left.range.lo, hi: right.range.hi }, at)
    this.#replace(parents, [child], at)
    return child
  }

  /** Makes a partition that has nothing yet; what it is to have is given to it. */
  create(range: KeyRange, start: CommitTimestamp): TreeNode {
    const node = this.#add([], range, start)
    this.#live.push(node)
    return node
  }

  /** Ends a partition that has given everything away. */
  end(node: TreeNode, at: CommitTimestamp): void {
    node.end = at
    this.#live.splice(this.#live.indexOf(node), 1)
  }

  /** Gives all that a partition has to another one. */
  giveAll(from: TreeNode, to: TreeNode): void {
    this.#segments = this.#segments.map((segment) => (segment.node === from ? { ...segment, node: to } : segment))
  }

  /** Cuts off a part of what a partition has, about half of one piece, for `take`. Undefined if there is no room. */
  cutOff(from: TreeNode): Segment | undefined {
    const pieces = this.#segments.filter(({ node, lo, hi }) => node === from && hi - lo > 1)
    if (pieces.length === 0) return undefined
    const piece = pieces[this.#random.int(pieces.length)]!
    const [left, right] = cut(piece, 2, this.#random).map((range) => ({ ...range, node: from })) as [Segment, Segment]
    this.#segments.splice(this.#segments.indexOf(piece), 1, left, right)
    return right
  }

  take(segment: Segment, to: TreeNode): void {
    this.#segments[this.#segments.indexOf(segment)] = { ...segment, node: to }
  }

  /** Drops the records before a time, and the partitions that ended before it. */
  forgetBefore(timestamp: CommitTimestamp): void {
    for (const node of this.#nodes.values()) {
      if (node.end !== null && node.end < timestamp) this.#nodes.delete(node.token)
      else node.log.forgetBefore(timestamp)
    }
  }

  #replace(parents: readonly TreeNode[], children: readonly TreeNode[], at: CommitTimestamp): void {
    for (const parent of parents) {
      parent.end = at
      parent.children = children.map((child) => child.token)
    }
    const first = this.#live.indexOf(parents[0]!)
    this.#live.splice(first, parents.length, ...children)
    this.#segments = this.#live.map((node) => ({ ...node.range, node }))
  }

  #add(parents: readonly string[], range: KeyRange, start: CommitTimestamp): TreeNode {
    const token = this.#newToken()
    const node: TreeNode = {
      token,
      parents,
      range,
      start,
      end: null,
      children: [],
      log: new PartitionLog(),
      queries: 0,
    }
    this.#nodes.set(token, node)
    return node
  }

  #newToken(): string {
    const length = 60 + this.#random.int(81)
    let token = '__8BAYEG'
    while (token.length < length) token += TOKEN_LETTERS[this.#random.int(TOKEN_LETTERS.length)]
    return token
  }
}

/** Where a row key lies in the key space. */
export function pointOf(rowKey: string): number {
  return hashText(rowKey)
}

/** A plain copy for callers: changes in the tree do not show in it. */
export function snapshot({ token, parents, range, start, end, children }: TreeNode): SimulatedPartition {
  return { token, parents, range, start, end, children }
}

/** Enough of a token to tell it from others in a message. */
export function shortToken(token: string): string {
  return token.length > 16 ? `…${token.slice(-12)}` : token
}

/** Cuts a range into so many parts, none of them empty, none of them tiny if there is room. */
function cut({ lo, hi }: KeyRange, count: number, random: SeededRandom): KeyRange[] {
  const ranges: KeyRange[] = []
  let from = lo
  for (let left = count; left > 1; left--) {
    const even = (hi - from) / left
    const to = Math.min(hi - left + 1, Math.max(from + 1, Math.floor(from + even * (0.5 + random.next()))))
    ranges.push({ lo: from, hi: to })
    from = to
  }
  ranges.push({ lo: from, hi })
  return ranges
}

const TOKEN_LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-'
