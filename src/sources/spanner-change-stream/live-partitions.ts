/** Which partitions a stream has at a time, by a first query of its own. */
import type { PartitionQuery } from '../../model/change-stream.ts'
import { type QueryOutcome, type WatchContext, watchedQuery } from './watched-query.ts'

/**
 * `query` has no token and starts at that time. Without evidence there are no tokens: a query that broke, or ended
 * before it named any, does not say that there are none.
 */
export async function livePartitions(
  query: PartitionQuery,
  context: WatchContext,
  signal: AbortSignal,
): Promise<{ readonly outcome: QueryOutcome; readonly tokens: Set<string> | undefined }> {
  const tokens = new Set<string>()
  const outcome = await watchedQuery(
    query,
    context,
    async ({ records }) => {
      for (const { kind, record } of records) {
        if (kind === 'start') for (const token of record.tokens) tokens.add(token)
        if (kind === 'children') for (const { token } of record.children) tokens.add(token)
      }
      return 'go on'
    },
    signal,
  )
  return { outcome, tokens: outcome.kind === 'ended' && tokens.size > 0 ? tokens : undefined }
}
