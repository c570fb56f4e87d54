/** Resume tokens: where a query stands, as a few bytes that only fit the query that they came from. */
import { type CommitTimestamp, MIN_TIMESTAMP } from '../model/commit-timestamp.ts'
import { QueryStatusError } from './grpc-status.ts'
import { hashText } from './hash-text.ts'

export interface QueryPosition {
  /** Position of the next entry in the partition's log. */
  readonly entry: number
  /** Pieces of that entry that were sent already, for doors that send large values in pieces. */
  readonly piece: number
  /** The latest time that was returned: heartbeats go on from here. */
  readonly progress: CommitTimestamp
}

/** The arguments that a query and its continuation have in common. */
export interface QueryArguments {
  readonly token: string | null
  readonly start: CommitTimestamp
  readonly end: CommitTimestamp | null
}

export function encodePosition({ entry, piece, progress }: QueryPosition, of: QueryArguments): Uint8Array {
  return new TextEncoder().encode(`${fingerprint(of)}:${entry}:${piece}:${progress}`)
}

export function decodePosition(bytes: Uint8Array, of: QueryArguments): QueryPosition {
  const match = FORM.exec(new TextDecoder().decode(bytes))
  if (match === null) throw new QueryStatusError('INVALID_ARGUMENT', 'The resume token cannot be read')
  const [, print, entry, piece, progress = MIN_TIMESTAMP] = match
  if (print !== fingerprint(of)) {
    throw new QueryStatusError('INVALID_ARGUMENT', 'The resume token belongs to a query with other arguments')
  }
  return { entry: Number(entry), piece: Number(piece), progress }
}

function fingerprint({ token, start, end }: QueryArguments): string {
  return hashText(JSON.stringify([token, start, end])).toString(36)
}

const FORM = /^([0-9a-z]+):(\d+):(\d+):(.+)$/
