/** One query under watch: a stream that goes silent is cut, and how it ended is said in one word. */
import type { Clock } from '../../core/clock.ts'
import { linkSignals } from '../../core/signals.ts'
import type { ChangeStreamClient, PartitionQuery, QueryPart } from '../../model/change-stream.ts'
import { StallWatchdog } from './stall-watchdog.ts'

/** How one query went; it is left by us when what follows is not to be read now. */
export type QueryOutcome =
  | { readonly kind: 'ended' | 'left' | 'stalled' }
  | { readonly kind: 'failed'; readonly error: unknown }

export interface WatchContext {
  readonly client: ChangeStreamClient
  readonly clock: Clock
  /** How long it may be silent; time in `take` does not count. */
  readonly stallLimitMs: number
}

/** Hands over part after part until `take` says that it is enough. Rejects never: a failure is an outcome. */
export async function watchedQuery(
  query: PartitionQuery,
  { client, clock, stallLimitMs }: WatchContext,
  take: (part: QueryPart) => Promise<'go on' | 'leave'>,
  signal: AbortSignal,
): Promise<QueryOutcome> {
  const cut = new AbortController()
  const { signal: either, unlink } = linkSignals(signal, cut.signal)
  const watchdog = new StallWatchdog(clock, stallLimitMs, () => cut.abort(STALLED))
  try {
    watchdog.arm()
    for await (const part of client.query(query, either)) {
      watchdog.disarm()
      if ((await take(part)) === 'leave') return { kind: 'left' }
      watchdog.arm()
    }
    // A client may end its iteration when it is cut, instead of throwing: that is no end of the stream.
    return cut.signal.aborted ? { kind: 'stalled' } : { kind: 'ended' }
  } catch (error) {
    return cut.signal.aborted ? { kind: 'stalled' } : { kind: 'failed', error }
  } finally {
    watchdog.close()
    unlink()
  }
}

const STALLED = new Error('no sign of life')
