/** Whether the stream may be read, and the statements that allow it. */
import type { Check } from '../../../core/check.ts'
import { SourceError } from '../../../core/errors.ts'
import type { ChangeStreamClient, StreamDescription } from '../../../model/change-stream.ts'
import { type CommitTimestamp, timestampFromMs, timestampToMs } from '../../../model/commit-timestamp.ts'

export interface Access {
  readonly database: string
  readonly stream: string
  readonly databaseRole: string | undefined
  readonly heartbeatMs: number
}

type Layout = Pick<StreamDescription, 'dialect' | 'mode'>

/** Runs a first query, which ends by itself: it returns the partitions to begin with, and no row content. */
export async function probe(
  client: ChangeStreamClient,
  { mode }: Layout,
  start: CommitTimestamp,
  heartbeatMs: number,
  signal: AbortSignal,
): Promise<void> {
  const end = mode === 'mutable' ? timestampFromMs(timestampToMs(start) + WINDOW_MS) : null
  for await (const { records } of client.query({ token: null, start, end, heartbeatMs }, signal)) {
    if (records.length > 0) return
  }
}

export async function checkGrants(
  client: ChangeStreamClient,
  access: Access,
  layout: Layout,
  now: CommitTimestamp,
  signal: AbortSignal,
): Promise<Check> {
  const { databaseRole, heartbeatMs } = access
  const who = databaseRole === undefined ? 'this account' : `the role ${databaseRole}`
  try {
    await probe(client, layout, now, heartbeatMs, signal)
    return { name: 'grants', status: 'ok', message: `${who} may read the stream` }
  } catch (error) {
    if (!(error instanceof SourceError) || error.status !== 'PERMISSION_DENIED') throw error
    const fix = databaseRole === undefined ? iamGrant(access) : roleGrants(access, databaseRole, layout)
    return { name: 'grants', status: 'failure', message: `${who} may not read the stream (PERMISSION_DENIED)`, fix }
  }
}

/** Both are needed; without the first, the role does not even see that the stream exists. */
export function roleGrants({ stream }: Pick<Access, 'stream'>, role: string, { dialect, mode }: Layout): string {
  if (dialect === 'googlesql') {
    return `GRANT SELECT ON CHANGE STREAM ${stream} TO ROLE ${role};\nGRANT EXECUTE ON TABLE FUNCTION READ_${stream} TO ROLE ${role};`
  }
  const read = mode === 'mutable' ? 'read_proto_bytes_' : 'read_json_'
  return `GRANT SELECT ON CHANGE STREAM "${stream}" TO "${role}";\nGRANT EXECUTE ON FUNCTION spanner."${read}${stream}" TO "${role}";`
}

export function iamGrant({ database }: Pick<Access, 'database'>): string {
  const [, project, , instance, , name] = database.split('/')
  return `gcloud spanner databases add-iam-policy-binding ${name} --instance=${instance} --project=${project} --member=<who> --role=roles/spanner.databaseReader`
}

/** Queries of mutable partitions need an end. */
const WINDOW_MS = 100
