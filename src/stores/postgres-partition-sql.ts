/** The table of the PostgreSQL store: its schema, its statements and its rows. */
import type { Partition, PartitionState } from '../model/partition.ts'

export interface PartitionRow {
  readonly [column: string]: unknown
  readonly token: string
  readonly parents: string
  readonly start: string
  readonly ended_at: string | null
  readonly state: PartitionState
  readonly watermark: string
  readonly boundary_ids: string
  readonly owner: string | null
  /** A bigint comes as text. */
  readonly epoch: string
  readonly lease_until_ms: number
}

export function partitionOf(row: PartitionRow): Partition {
  return {
    token: row.token,
    parentTokens: JSON.parse(row.parents) as string[],
    start: row.start,
    endedAt: row.ended_at,
    state: row.state,
    watermark: row.watermark,
    boundaryIds: JSON.parse(row.boundary_ids) as string[],
    owner: row.owner,
    epoch: Number(row.epoch),
    leaseUntilMs: row.lease_until_ms,
  }
}

export type PartitionSql = Readonly<Record<keyof ReturnType<typeof statements>, string>>

/** `$1` is the pipeline in all of them. */
export function partitionSql(name: string): PartitionSql {
  return statements(name)
}

function statements(name: string) {
  const [schema] = name.includes('.') ? name.split('.') : []
  const table = name.replace(/\w+/g, '"$&"')
  const index = `"${name.split('.').at(-1)}_unfinished"`
  const held = 'pipeline = $1 AND token = $2 AND owner = $3 AND epoch = $4'
  return {
    find: `SELECT to_regclass('${table}')::text AS found`,
    mayWrite: `SELECT bool_and(has_table_privilege('${table}', name)) AS allowed
      FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS name`,
    // Fails if there is no such schema; without a name the default one counts, of which there may be none.
    mayMake: `SELECT has_schema_privilege(${schema === undefined ? 'current_schema()' : `'${schema}'`}, 'CREATE') AS allowed`,
    probe: `SELECT ${COLUMNS} FROM ${table} LIMIT 0`,
    // Times are compared byte by byte, whatever the language of the database. Leases may be fractions of a millisecond
    // on a replaced clock. Finished rows pile up over the years and are left out of the index.
    create: `
      CREATE TABLE IF NOT EXISTS ${table} (
        pipeline text COLLATE "C" NOT NULL,
        token text COLLATE "C" NOT NULL,
        parents text NOT NULL,
        start text COLLATE "C" NOT NULL,
        ended_at text COLLATE "C",
        state text NOT NULL,
        watermark text COLLATE "C" NOT NULL,
        boundary_ids text NOT NULL,
        owner text,
        epoch bigint NOT NULL,
        lease_until_ms double precision NOT NULL,
        PRIMARY KEY (pipeline, token)
      );
      CREATE INDEX IF NOT EXISTS ${index} ON ${table} (pipeline, owner) WHERE state <> 'FINISHED'`,
    list: `SELECT ${COLUMNS} FROM ${table} WHERE pipeline = $1`,
    unfinished: `SELECT ${COLUMNS} FROM ${table} WHERE pipeline = $1 AND state <> 'FINISHED'`,
    get: `SELECT ${COLUMNS} FROM ${table} WHERE pipeline = $1 AND token = $2`,
    held: `SELECT 1 FROM ${table} WHERE ${held}`,
    createRoot: `INSERT INTO ${table}
      (pipeline, token, parents, start, state, watermark, boundary_ids, owner, epoch, lease_until_ms)
      SELECT $1, $2, '[]', $3::text, 'CREATED', $3::text, '[]', $4, 1, $5
      WHERE NOT EXISTS (SELECT 1 FROM ${table} WHERE pipeline = $1) RETURNING token`,
    insert: `INSERT INTO ${table}
      (pipeline, token, parents, start, state, watermark, boundary_ids, owner, epoch, lease_until_ms)
      SELECT $1, token, parents, start, 'CREATED', start, '[]', $5, 1, $6
      FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS child (token, parents, start, place)
      ORDER BY place ON CONFLICT DO NOTHING RETURNING ${COLUMNS}`,
    claim: `UPDATE ${table} SET epoch = epoch + 1, owner = $2, lease_until_ms = $4
      WHERE pipeline = $1 AND state <> 'FINISHED' AND (owner IS NULL OR owner = $2 OR lease_until_ms <= $3)`,
    reopen: `UPDATE ${table} SET state = 'RUNNING', ended_at = NULL
      WHERE pipeline = $1 AND state = 'FINISHED' AND ended_at IS NOT NULL AND ($2::text IS NULL OR ended_at < $2)`,
    advance: `UPDATE ${table} SET state = $6 WHERE ${held} AND state = $5 RETURNING token`,
    // Renews every row of the owner; those that are written and have moved on get their progress with it. An equal
    // watermark counts as progress: the changes of one instant settle bit by bit. Returns the writes without a row.
    checkpoint: `WITH
      written AS (
        SELECT * FROM unnest($4::text[], $5::bigint[], $6::text[], $7::text[]) WITH ORDINALITY
          AS w (token, epoch, watermark, boundary_ids, place)
      ),
      renewed AS (
        UPDATE ${table} AS t SET
          lease_until_ms = $3,
          watermark = coalesce(w.watermark, t.watermark),
          boundary_ids = coalesce(w.boundary_ids, t.boundary_ids)
        FROM ${table} AS o LEFT JOIN written AS w
          ON w.token = o.token AND w.epoch = o.epoch AND o.state = 'RUNNING' AND o.watermark <= w.watermark
        WHERE t.pipeline = $1 AND t.owner = $2 AND t.state <> 'FINISHED'
          AND o.pipeline = t.pipeline AND o.token = t.token
        RETURNING t.token, t.epoch
      )
      SELECT token FROM written AS w
      WHERE NOT EXISTS (SELECT 1 FROM renewed AS r WHERE r.token = w.token AND r.epoch = w.epoch) ORDER BY place`,
    finish: `UPDATE ${table} SET state = 'FINISHED', ended_at = $7, owner = NULL, lease_until_ms = 0,
      boundary_ids = CASE WHEN watermark <= $5 THEN $6 ELSE boundary_ids END, watermark = greatest(watermark, $5)
      WHERE ${held} AND state = 'RUNNING' RETURNING token`,
    // By their watermark, which is no later than their end. Never the root, nor what a run with a later end reads on.
    forget: `DELETE FROM ${table} WHERE pipeline = $1 AND token IN (
      SELECT token FROM ${table} WHERE pipeline = $1 AND state = 'FINISHED' AND watermark < $2
        AND parents <> '[]' AND ended_at IS NULL LIMIT 10000)`,
    release: `UPDATE ${table} SET owner = NULL, lease_until_ms = 0 WHERE pipeline = $1 AND owner = $2`,
  }
}

const COLUMNS = 'token, parents, start, ended_at, state, watermark, boundary_ids, owner, epoch, lease_until_ms'
