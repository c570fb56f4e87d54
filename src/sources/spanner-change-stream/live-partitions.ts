/** Which partitions a stream has at a time, by a first query of its own. */
import type { ChangeStreamClient, PartitionQuery } from '../../model/change-stream.ts'

/** `query` has no token and starts at that time. */
export async function livePartitions(
  client: ChangeStreamClient,
  query: PartitionQuery,
  signal: AbortSignal,
): Promise<Set<string>> {
  const tokens = new Set<string>()
  for await (const { records } of client.query(query, signal)) {
    for (const { kind, record } of records) {
      if (kind === 'start') for (const token of record.tokens) tokens.add(token)
      if (kind === 'children') for (const { token } of record.children) tokens.add(token)
    }
  }
  return tokens
}
