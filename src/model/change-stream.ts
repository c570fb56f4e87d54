/** The small interface that a partition reader reads from: the real client and the simulator stand behind it. */
import type { CommitTimestamp } from './commit-timestamp.ts'
import type { ChangeStreamRecord } from './data-change-record.ts'

export interface PartitionQuery {
  /** Null for the first query of a stream, which returns the tokens to begin with. */
  readonly token: string | null
  /** Inclusive. */
  readonly start: CommitTimestamp
  /** Inclusive; null reads until the partition ends. */
  readonly end: CommitTimestamp | null
  readonly heartbeatMs: number
  /** Continues an interrupted query with the same arguments behind the part that carried this token. */
  readonly resumeToken?: Uint8Array
}

/** Records that arrived together. */
export interface QueryPart {
  readonly records: readonly ChangeStreamRecord[]
  /** Present if the query can be continued behind this part. */
  readonly resumeToken?: Uint8Array
}

/** What there is to know about a stream before reading it. */
export interface StreamDescription {
  readonly retentionMs: number
}

/** One change stream of one database. Errors are StreamErrors that say whether a retry can help. */
export interface ChangeStreamClient {
  /** Checks that the stream can be read. Throws a ConfigError or EnvironmentError that says what to do. */
  describe(signal: AbortSignal): Promise<StreamDescription>
  /**
   * Runs one query. Nothing is sent before the first `next()`, and nothing is read ahead of the consumer beyond a
   * small buffer. Ending the iteration or aborting cancels the query at the server.
   */
  query(query: PartitionQuery, signal: AbortSignal): AsyncIterable<QueryPart>
  /** Ends connections. Safe to call twice. */
  close(): Promise<void>
}
