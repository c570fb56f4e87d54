/** A PostgreSQL database as the store uses it: connections that come back, writes in turn, every failure explained. */
import { ClosedError, ConfigError, EnvironmentError, StoreError, StreamError } from '../core/errors.ts'
import { abortable } from '../core/signals.ts'

export const OWNER = 'postgresPartitionStore'

/** What the store needs of a `Pool` of the package pg. */
export interface PostgresPool {
  connect(): Promise<PostgresConnection>
}

/** What the store needs of a `PoolClient` of the package pg. */
export interface PostgresConnection {
  query(query: {
    readonly text: string
    readonly values: unknown[]
    readonly query_timeout: number
  }): Promise<{ readonly rows: unknown[] }>
  on(event: 'error', listener: () => void): unknown
  off(event: 'error', listener: () => void): unknown
  release(isBroken: boolean): void
}

type Row = Readonly<Record<string, unknown>>

export interface PostgresDatabaseOptions {
  /** Made by the caller, who also ends it. */
  readonly pool: PostgresPool | undefined
  readonly connectionString: string | undefined
  /** For messages; holds no secret. */
  readonly place: string
  readonly timeoutMs: number
}

export interface Statement {
  readonly text: string
  readonly values: readonly unknown[]
}

export class PostgresDatabase {
  readonly #options: PostgresDatabaseOptions
  readonly #pool: PostgresPool & { end?(): Promise<void> }
  readonly #closing = new AbortController()

  private constructor(options: PostgresDatabaseOptions, pool: PostgresPool) {
    this.#options = options
    this.#pool = pool
  }

  static async open(options: PostgresDatabaseOptions): Promise<PostgresDatabase> {
    return new PostgresDatabase(options, options.pool ?? (await makePool(options)))
  }

  /** One statement, a commit of its own. */
  async run<R extends Row>(doing: 'open' | 'read' | 'write', statement: Statement): Promise<R[]> {
    return this.#connected(doing, (client) => this.#query<R>(client, statement))
  }

  /**
   * One commit for several statements, one at a time for each lock: writers of many rows would otherwise take their
   * rows in different orders and wait for each other. The lock goes with the transaction, however that ends.
   */
  async transact<R>(
    doing: 'open' | 'write',
    lock: readonly [number, number],
    work: (query: <T extends Row>(statement: Statement) => Promise<T[]>) => Promise<R>,
  ): Promise<R> {
    const { timeoutMs } = this.#options
    return this.#connected(doing, async (client) => {
      await this.#query(client, {
        // In one message. A process that is stopped in the middle must not keep the others waiting.
        text: `BEGIN; SET LOCAL lock_timeout = ${timeoutMs}; SET LOCAL idle_in_transaction_session_timeout = ${timeoutMs};
          SELECT pg_advisory_xact_lock(${lock[0]}, ${lock[1]})`,
        values: [],
      })
      const result = await work((statement) => this.#query(client, statement))
      await this.#query(client, { text: 'COMMIT', values: [] })
      return result
    })
  }

  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return
    this.#closing.abort(new ClosedError(`${OWNER}: ${this.#options.place} is closed`))
    if (this.#options.pool === undefined) await this.#pool.end?.()
  }

  async #connected<R>(doing: 'open' | 'read' | 'write', work: (client: PostgresConnection) => Promise<R>): Promise<R> {
    this.#closing.signal.throwIfAborted()
    let client: PostgresConnection | undefined
    let isBroken = true
    try {
      client = await this.#connection()
      // A connection that breaks while it is lent out says so here as well; the query under way fails anyway.
      client.on('error', ignore)
      const result = await work(client)
      isBroken = false
      return result
    } catch (error) {
      throw this.#failure(doing, error)
    } finally {
      client?.off('error', ignore)
      // One that has failed is not used again: its transaction ends with it.
      client?.release(isBroken)
    }
  }

  /** A pool lets those wait for a connection whom its end finds waiting; one of the caller may do so for ever. */
  async #connection(): Promise<PostgresConnection> {
    const asked = this.#pool.connect()
    try {
      const inTime = abortable(asked, AbortSignal.timeout(this.#options.timeoutMs))
      return await abortable(inTime, this.#closing.signal)
    } catch (error) {
      // What comes too late goes back unused.
      asked.then((late) => late.release(false), ignore)
      throw error
    }
  }

  /** The limit is kept here: one that the caller's pool has may be longer, or none. */
  async #query<R extends Row>(client: PostgresConnection, { text, values }: Statement): Promise<R[]> {
    const query = { text, values: [...values], query_timeout: this.#options.timeoutMs }
    return (await client.query(query)).rows as R[]
  }

  #failure(doing: string, cause: unknown): StreamError {
    if (cause instanceof StreamError) return cause
    const { place } = this.#options
    const code = codeOf(cause)
    // Its cause would show the whole text, with the password in it.
    if (code === 'ERR_INVALID_URL') return badConnectionString()
    const what = `${OWNER}: cannot ${doing} ${place} (${code ?? 'no answer'})`
    const lasting = code === undefined ? undefined : LASTING[code]
    if (lasting?.isConfig) return new ConfigError(what, { cause, hint: lasting.hint })
    if (lasting !== undefined) return new EnvironmentError(what, { cause, hint: lasting.hint })
    if (code === undefined || isPassing(code)) {
      return new StoreError(what, {
        cause,
        retryable: true,
        hint: 'Is PostgreSQL up, and are address, password and sslmode in connectionString right? Nothing is lost: what is not stored comes again.',
      })
    }
    return new StoreError(what, {
      cause,
      hint: 'Is it the table that this store made? See the code in the PostgreSQL manual.',
    })
  }
}

export function badConnectionString(): ConfigError {
  return new ConfigError(`${OWNER}: connectionString cannot be read`, {
    hint: 'It looks like postgresql://user:password@host:5432/database. Special characters in the password are written as %40 and the like.',
  })
}

async function makePool({ connectionString, timeoutMs }: PostgresDatabaseOptions): Promise<PostgresPool> {
  const { Pool } = await import('pg').then(({ default: pg }) => pg)
  const pool = new Pool({
    connectionString: connectionString!,
    max: 4,
    connectionTimeoutMillis: timeoutMs,
    keepAlive: true,
    application_name: 'millrace',
    // A connection at rest must not keep a process alive that is done.
    allowExitOnIdle: true,
  })
  // A connection at rest that breaks, as at a restart of the server, is replaced at the next use.
  pool.on('error', ignore)
  // One that breaks while it is handed over has nobody yet to hear of it: that would end the process.
  pool.on('connect', (client) => client.on('error', ignore))
  return pool
}

function ignore(): void {}

function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null)?.code
  return typeof code === 'string' ? code : undefined
}

/** Classes of SQLSTATE: connection, rollback, resources, intervention of the operator, system; and what has no class. */
function isPassing(code: string): boolean {
  return (
    /^(08|40|53|57|58)/.test(code) ||
    code === '55P03' ||
    code === '25P03' ||
    code === READ_ONLY ||
    /^E[A-Z_]+$/.test(code)
  )
}

/** After a failover the old primary may answer for a while. */
const READ_ONLY = '25006'

export const NO_RIGHTS_HINT: string =
  'Grant this user the right to create the table in its schema, or create it beforehand and grant all rights on it.'

const LASTING: Readonly<Record<string, { readonly hint: string; readonly isConfig?: boolean }>> = {
  '28P01': { hint: 'The password is wrong: check the option connectionString.' },
  '28000': { hint: 'The server does not let this user in: check the option connectionString and pg_hba.conf.' },
  '42501': { hint: NO_RIGHTS_HINT },
  '3D000': { hint: 'Check the option connectionString, and create the database first.', isConfig: true },
  '3F000': { hint: 'Create the schema first, or name another one in the option table.', isConfig: true },
  '42703': {
    hint: 'There is such a table, but it is not of this store: give another name in the option table.',
    isConfig: true,
  },
}
