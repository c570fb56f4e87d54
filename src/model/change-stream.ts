/** The small interface that a partition reader reads from: the real client and the simulator stand behind it. */
import type { CommitTimestamp } from './commit-timestamp.ts'
import type { ChangeStreamRecord, ValueCaptureType } from './data-change-record.ts'

export interface PartitionQuery {
  /** Null for the first query of a stream, which returns the tokens to begin with. */
  readonly token: string | null
  /** Inclusive. */
  readonly start: CommitTimestamp
  /** Inclusive; null reads until the partition ends, which only immutable partitions allow. */
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

export type Dialect = 'googlesql' | 'postgresql'

/**
 * Immutable: a partition keeps its key range and ends with child records. Mutable: ranges move between partitions
 * that live on, and every query needs an end that lies at most 30 minutes ahead.
 */
export type PartitionMode = 'immutable' | 'mutable'

/** What there is to know about a stream before reading it. */
export interface StreamDescription {
  readonly dialect: Dialect
  readonly mode: PartitionMode
  readonly valueCaptureType: ValueCaptureType
  readonly retentionMs: number
  /** Names of the watched tables; undefined if the stream watches the whole database. */
  readonly tables: readonly string[] | undefined
}

/** One change stream of one database. A query fails with a SourceError that carries the server's status. */
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
