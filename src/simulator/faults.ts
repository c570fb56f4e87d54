/** What can go wrong with a query, by script or by chance. */
import { ConfigError } from '../core/errors.ts'
import { GRPC_CODES, type GrpcCode, PASSING_CODES } from '../model/grpc-code.ts'
import type { SeededRandom } from './seeded-random.ts'

export type Fault =
  /** The query ends with this code. */
  | { readonly kind: 'error'; readonly code: GrpcCode }
  /** Nothing comes any more, not even heartbeats, until the reader cancels. */
  | { readonly kind: 'stall' }
  /**
   * A clean end without child records. Never after a child record, and in a query with an end never after that end
   * has passed: no reader could tell either from a true end.
   */
  | { readonly kind: 'early-end' }
  /**
   * A query that continues by its resume token returns the last data records again.
   * @default records 3
   */
  | { readonly kind: 'duplicate-tail'; readonly records?: number }
  /**
   * The first message takes this long.
   * @default delayMs 60,000
   */
  | { readonly kind: 'slow-start'; readonly delayMs?: number }
  /** All open queries end with UNAVAILABLE at once; over gRPC the sockets are destroyed. */
  | { readonly kind: 'kill-connection' }

export type FaultKind = Fault['kind']

/** One fault at one place; it happens once. */
export interface ScriptedFault {
  /**
   * Null for the first query of a stream.
   * @default any partition
   */
  readonly token?: string | null
  /**
   * Counts the queries of that token from 1, or the queries of the stream if no token is given.
   * @default the first query in which the fault is possible
   */
  readonly query?: number
  /**
   * The fault comes instead of this message, counted from 1; of the first message with a child record; of the rest of
   * a value that is sent in pieces (over gRPC only); or of the clean end. Without meaning for `duplicate-tail` and
   * `slow-start`.
   * @default the first message at which the fault is possible
   */
  readonly message?: number | 'children' | 'piece' | 'end'
  readonly fault: Fault
}

/** Chances from 0 to 1. A message stands for the clean end as well. */
export interface FaultChances {
  /** Per message. */
  readonly errors?: number
  /** @default the codes that a reader may retry */
  readonly codes?: readonly GrpcCode[]
  /** Per message. */
  readonly stalls?: number
  /** Per message. */
  readonly earlyEnds?: number
  /** Per query that continues by its resume token. */
  readonly duplicateTails?: number
  /** Per query. */
  readonly slowStarts?: number
  /** Per message. */
  readonly kills?: number
}

export type FaultPlan = readonly ScriptedFault[] | FaultChances

/** Where a query is when a fault may happen. */
export interface FaultPlace {
  readonly token: string | null
  readonly queryOfToken: number
  readonly queryOfStream: number
  readonly message: number
  readonly next: 'start' | 'message' | 'children' | 'piece' | 'end'
  /** For the start only: the query continues by its resume token. */
  readonly isResumed: boolean
  readonly mayEndEarly: boolean
}

/** The plans that are in force. */
export class FaultInjector {
  #script: ScriptedFault[] = []
  #chances: FaultChances[] = []

  inject(plan: FaultPlan): void {
    if (isScript(plan)) {
      this.#script.push(...plan)
      return
    }
    for (const [name, value] of Object.entries(plan)) {
      if (name !== 'codes' && !(typeof value === 'number' && value >= 0 && value <= 1)) {
        throw new ConfigError(`injectFaults: ${name} must be a chance from 0 to 1, got ${String(value)}`)
      }
    }
    for (const code of plan.codes ?? []) {
      if (!Object.hasOwn(GRPC_CODES, code)) throw new ConfigError(`injectFaults: there is no gRPC code ${code}`)
    }
    this.#chances.push(plan)
  }

  heal(): void {
    this.#script = []
    this.#chances = []
  }

  /** Whether a scripted fault waits for the first child record of this query. */
  awaitsChildren(place: FaultPlace): boolean {
    return this.#script.some((scripted) => scripted.message === 'children' && isQuery(scripted, place))
  }

  /** The fault that happens here. */
  draw(place: FaultPlace, random: SeededRandom): Fault | undefined {
    const index = this.#script.findIndex((scripted) => isPlace(scripted, place))
    if (index !== -1) return this.#script.splice(index, 1)[0]!.fault
    for (const chances of this.#chances) {
      const fault = byChance(chances, place, random)
      if (fault !== undefined) return fault
    }
    return undefined
  }
}

function byChance(chances: FaultChances, place: FaultPlace, random: SeededRandom): Fault | undefined {
  const { errors = 0, codes = PASSING_CODES, stalls = 0, earlyEnds = 0, kills = 0 } = chances
  const { duplicateTails = 0, slowStarts = 0 } = chances
  if (place.next === 'start') {
    if (place.isResumed && random.chance(duplicateTails)) return { kind: 'duplicate-tail', records: 1 + random.int(5) }
    if (random.chance(slowStarts)) return { kind: 'slow-start', delayMs: 1000 + random.int(120_000) }
    return undefined
  }
  if (random.chance(errors)) return { kind: 'error', code: random.pick(codes) }
  if (random.chance(stalls)) return { kind: 'stall' }
  if (place.mayEndEarly && random.chance(earlyEnds)) return { kind: 'early-end' }
  if (random.chance(kills)) return { kind: 'kill-connection' }
  return undefined
}

function isPlace(scripted: ScriptedFault, place: FaultPlace): boolean {
  if (!isQuery(scripted, place)) return false
  const { kind } = scripted.fault
  if (kind === 'duplicate-tail') return place.next === 'start' && place.isResumed
  if (kind === 'slow-start') return place.next === 'start'
  if (place.next === 'start' || (kind === 'early-end' && !place.mayEndEarly)) return false
  const { message } = scripted
  if (message === undefined) return place.next !== 'piece'
  return message === (typeof message === 'number' && place.next !== 'piece' ? place.message : place.next)
}

function isQuery({ token, query }: ScriptedFault, place: FaultPlace): boolean {
  if (token !== undefined && token !== place.token) return false
  return query === undefined || query === (token === undefined ? place.queryOfStream : place.queryOfToken)
}

function isScript(plan: FaultPlan): plan is readonly ScriptedFault[] {
  return Array.isArray(plan)
}
