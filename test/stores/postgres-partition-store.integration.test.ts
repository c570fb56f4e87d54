/** The store in a PostgreSQL database passes the contract of all stores, on a real server that may be restarted. */
import { createServer } from 'node:net'
import { inspect } from 'node:util'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { ClosedError, ConfigError, EnvironmentError, StoreError, StreamError } from '../../src/core/errors.ts'
import { type PartitionStore, postgresPartitionStore } from '../../src/stores/index.ts'
import type { PostgresConnection } from '../../src/stores/postgres-database.ts'
import { partitionStoreContract } from '../contracts/partition-store-contract.ts'
import { openFailure, ROOT, runningRoot } from '../support/partition-tables.ts'
import { hasPostgres, PASSWORD, type PostgresServer, requirePostgres, startPostgres } from '../support/postgres.ts'
import { startTcpProxy } from '../support/tcp-proxy.ts'

requirePostgres('postgres-partition-store.integration.test.ts')

describe.skipIf(!hasPostgres)('postgresPartitionStore on a server', () => {
  let server: PostgresServer
  let shell: pg.Pool
  let tables = 0

  beforeAll(async () => {
    server = await startPostgres()
    shell = new pg.Pool({ connectionString: server.connectionString, max: 1 })
    shell.on('error', () => undefined)
  })

  afterAll(async () => {
    await server.stop()
    await shell.end()
  })

  /** A table of its own: a server that was running before may hold those of earlier runs. */
  function newTable(): string {
    return `t_${process.pid}_${Date.now()}_${++tables}`
  }

  function connect(table: string, options: { timeoutMs?: number } = {}): PartitionStore {
    return postgresPartitionStore({ connectionString: server.connectionString, table, ...options })
  }

  partitionStoreContract('contract', (clock) =>
    postgresPartitionStore({ connectionString: server.connectionString, table: newTable(), clock }),
  )

  test('makes its table once for all who come at the same moment', async () => {
    for (let round = 0; round < 5; round++) {
      const table = newTable()
      const stores = [1, 2, 3, 4].map(() => connect(table))
      const opened = await Promise.all(stores.map((store) => store.open('orders')))
      const made = await Promise.all(opened.map((one, n) => one.createRoot(ROOT, `process ${n}`, 60_000)))
      expect(made.filter(Boolean)).toHaveLength(1)
      for (const store of stores) await store.close()
    }
  })

  test('P10: of several that race for a claim, exactly one wins', async () => {
    const table = newTable()
    const stores = [1, 2, 3, 4].map(() => connect(table))
    const opened = await Promise.all(stores.map((store) => store.open('orders')))
    await opened[0]!.createRoot(ROOT, 'nobody', 0)
    const claims = await Promise.all(opened.map((one, n) => one.claim(`process ${n}`, 60_000)))
    const owner = (await opened[0]!.get('root'))?.owner
    expect(claims.map(([row]) => [row?.owner, row?.epoch])).toEqual(claims.map(() => [owner, 2]))
    for (const store of stores) await store.close()
  })

  test('stores the progress of 10,000 partitions in one statement', async () => {
    const store = connect(newTable())
    const table = await store.open('orders')
    const ann = await runningRoot(table)
    const tokens = Array.from({ length: 10_000 }, (_, n) => `p${n}`)
    const children = tokens.map((token) => ({ token, parentTokens: ['root'], start: ROOT.start }))
    expect((await table.addChildren('root', ann, children, 60_000))?.map(({ token }) => token)).toEqual(tokens)
    await Promise.all(tokens.slice(0, 1_000).map((token) => table.advance(token, ann, 'CREATED', 'RUNNING')))
    const watermark = '2026-01-02T00:00:00.000000001Z'
    const writes = tokens.map((token, n) => ({ token, epoch: n === 7 ? 2 : 1, watermark, boundaryIds: [token] }))
    expect(await table.checkpoint('ann', writes, 60_000)).toEqual(['p7'])
    expect((await table.list()).filter((row) => row.watermark === watermark)).toHaveLength(999)
    await store.close()
  })

  test('forgets what was finished long ago, but none that is unfinished or may be needed again', async () => {
    const clock = { now: () => Date.parse('2026-01-01T00:00:00Z'), after: systemClock.after }
    const { connectionString } = server
    const store = postgresPartitionStore({ connectionString, table: 'forgetful', clock })
    const table = await store.open('orders')
    const ann = await runningRoot(table)
    const children = ['old', 'recent', 'at the end', 'open'].map((token) => ({
      ...{ token, parentTokens: ['root'], start: ROOT.start },
    }))
    await table.addChildren('root', ann, children, 60_000)
    for (const { token } of children) await table.advance(token, ann, 'CREATED', 'RUNNING')
    const old = { watermark: ROOT.start, boundaryIds: [] }
    const recent = { watermark: '2026-02-01T00:00:00.000000000Z', boundaryIds: [] }
    await table.finish('root', ann, old, null)
    await table.finish('old', ann, old, null)
    await table.finish('recent', ann, recent, null)
    await table.finish('at the end', ann, old, ROOT.start)
    const later = { ...clock, now: () => Date.parse('2026-03-03T00:00:00Z') }
    const next = postgresPartitionStore({ connectionString, table: 'forgetful', clock: later })
    const left = (await (await next.open('orders')).list()).map(({ token }) => token)
    expect(left.toSorted()).toEqual(['at the end', 'open', 'recent', 'root'])
    await next.close()
    await store.close()
  })

  test('lives in another schema if the table is named so', async () => {
    const schema = newTable()
    const before = await openFailure(connect(`${schema}.progress`))
    expect(before).toBeInstanceOf(ConfigError)
    await shell.query(`CREATE SCHEMA "${schema}"`)
    const store = connect(`${schema}.progress`)
    await runningRoot(await store.open('orders'))
    const { rows } = await shell.query(`SELECT token FROM "${schema}".progress`)
    expect(rows).toEqual([{ token: 'root' }])
    await store.close()
  })

  test('uses connections of the caller and leaves them open', async () => {
    const pool = new pg.Pool({ connectionString: server.connectionString, max: 2 })
    const store = postgresPartitionStore({ pool, table: newTable() })
    await runningRoot(await store.open('orders'))
    await store.close()
    expect((await pool.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }])
    await pool.end()
  })

  test('goes on after the server was restarted', async ({ skip }) => {
    if (server.restart === undefined) return skip('the server is not ours to restart')
    const store = connect(newTable())
    const table = await store.open('orders')
    await runningRoot(table)
    const before = await table.list()
    await server.restart()
    // The connections of before are found broken one by one; each time the error says that a retry can help.
    const errors: unknown[] = []
    let after: unknown
    for (let attempt = 0; attempt < 10 && after === undefined; attempt++) {
      after = await table.list().catch((error: unknown) => void errors.push(error))
    }
    expect(after).toEqual(before)
    for (const error of errors) expect(error).toMatchObject({ name: 'StoreError', retryable: true })
    await store.close()
  })

  test('a write whose answer is lost is an error worth a retry, and is refused when it is sent again', async () => {
    const { hostname, port, host } = new URL(server.connectionString)
    await using proxy = await startTcpProxy(hostname, Number(port))
    const connectionString = server.connectionString.replace(host, `127.0.0.1:${proxy.port}`)
    const name = newTable()
    const store = postgresPartitionStore({ connectionString, table: name, timeoutMs: 1_000 })
    const table = await store.open('orders')
    await table.createRoot(ROOT, 'ann', 60_000)
    const advance = (): Promise<boolean> => table.advance('root', { owner: 'ann', epoch: 1 }, 'CREATED', 'RUNNING')
    proxy.mute()
    await expect(advance()).rejects.toMatchObject({ name: 'StoreError', retryable: true })
    const other = connect(name)
    expect(await (await other.open('orders')).get('root')).toMatchObject({ state: 'RUNNING', owner: 'ann', epoch: 1 })
    proxy.cut()
    expect(await vi.waitFor(advance, { timeout: 20_000 })).toBe(false)
    proxy.mute()
    const waiting = [table.list(), table.checkpoint('ann', [], 60_000)].map((call) => call.catch((error) => error))
    await store.close()
    for (const error of await Promise.all(waiting)) expect(error).toBeInstanceOf(StreamError)
    await other.close()
  })

  test('a row that somebody holds for long is an error worth a retry, and leaves nothing half done', async () => {
    const name = newTable()
    const store = connect(name, { timeoutMs: 300 })
    const table = await store.open('orders')
    await runningRoot(table)
    const before = await table.list()
    const other = await shell.connect()
    await other.query(`BEGIN; SELECT token FROM ${name} FOR UPDATE`)
    const error = await table.checkpoint('ann', [], 60_000).catch((thrown: unknown) => thrown)
    await other.query('ROLLBACK')
    other.release()
    expect(error).toMatchObject({ name: 'StoreError', retryable: true })
    expect(await table.list()).toEqual(before)
    expect(await table.checkpoint('ann', [], 60_000)).toEqual([])
    await store.close()
  })

  test('P12: a wrong password is an EnvironmentError that does not show it', async () => {
    const connectionString = server.connectionString.replace(PASSWORD, 'another-secret')
    const error = await openFailure(postgresPartitionStore({ connectionString }))
    expect(error).toBeInstanceOf(EnvironmentError)
    expect(error.hint).toContain('option connectionString')
    expect(inspect(error, { depth: 9 })).not.toContain('another-secret')
  })

  // The client knows no code for either, so they look like a server that does not answer.
  test.each([
    ['a password that is missing', (text: string) => text.replace(`:${PASSWORD}`, '')],
    ['an encryption that the server has not', (text: string) => `${text}?sslmode=verify-full`],
  ])('P12: the hint names the option behind %s', async (_, changed) => {
    const error = await openFailure(postgresPartitionStore({ connectionString: changed(server.connectionString) }))
    expect(error.hint).toMatch(/password and sslmode in connectionString/)
    expect(inspect(error, { depth: 9 })).not.toContain(PASSWORD)
  })

  test('P12: a database that does not exist is a ConfigError that says so', async () => {
    const connectionString = server.connectionString.replace(/[^/]*$/, 'nothing')
    const error = await openFailure(postgresPartitionStore({ connectionString }))
    expect(error).toBeInstanceOf(ConfigError)
    expect(error.hint).toContain('create the database first')
    expect(inspect(error, { depth: 9 })).not.toContain(PASSWORD)
  })

  test('P12: a table of somebody else is refused', async () => {
    const table = newTable()
    await shell.query(`CREATE TABLE ${table} (id text)`)
    const error = await openFailure(connect(table))
    expect(error).toBeInstanceOf(ConfigError)
    expect(error.hint).toContain('option table')
    await expect(connect(table).peek!('orders')).rejects.toMatchObject({ name: 'ConfigError', hint: error.hint })
  })

  test('a look makes no table, and leaves a store that is open as it is', async () => {
    const name = newTable()
    const store = connect(name)
    const isThere = async (): Promise<unknown> =>
      (await shell.query('SELECT to_regclass($1) IS NOT NULL AS found', [name])).rows
    expect(await store.peek!('orders')).toBeUndefined()
    expect(await isThere()).toEqual([{ found: false }])
    const table = await store.open('orders')
    await runningRoot(table)
    expect(await store.peek!('orders')).toEqual(await table.list())
    await store.close()
    expect(await store.peek!('orders')).toHaveLength(1)
  })

  test('P12: a look tells of rights that a run would miss, and of a schema that is not there', async () => {
    const [schema, role] = [newTable(), newTable()]
    const name = `${schema}.progress`
    const connectionString = server.connectionString.replace(/\/\/[^@]*@/, `//${role}:${PASSWORD}@`)
    const look = (): Promise<unknown> => postgresPartitionStore({ connectionString, table: name }).peek!('orders')
    await shell.query(`CREATE ROLE ${role} LOGIN PASSWORD '${PASSWORD}'`)
    await expect(look()).rejects.toMatchObject({
      name: 'ConfigError',
      hint: expect.stringContaining('Create the schema first'),
    })
    await shell.query(`CREATE SCHEMA ${schema}; GRANT USAGE ON SCHEMA ${schema} TO ${role}`)
    await expect(look()).rejects.toMatchObject({
      name: 'EnvironmentError',
      message: expect.stringContaining('may not create the table'),
      hint: expect.stringContaining('Grant this user'),
    })
    const store = connect(name)
    await store.open('orders')
    await store.close()
    await shell.query(`GRANT SELECT ON ${name} TO ${role}`)
    await expect(look()).rejects.toThrow('may not write the table')
    await shell.query(`GRANT INSERT, UPDATE ON ${name} TO ${role}`)
    expect(await look()).toEqual([])
    await shell.query(`DROP SCHEMA ${schema} CASCADE; DROP ROLE ${role}`)
  })

  test('use after close is a ClosedError', async () => {
    const store = connect(newTable())
    const table = await store.open('orders')
    await store.close()
    await expect(table.list()).rejects.toThrow(ClosedError)
    await expect(table.claim('ann', 1_000)).rejects.toThrow(ClosedError)
  })

  test('calls that wait for a connection when it is closed are a ClosedError, at once', async () => {
    const store = connect(newTable(), { timeoutMs: 60_000 })
    const table = await store.open('orders')
    const calls = Promise.allSettled(Array.from({ length: 20 }, () => table.list()))
    await store.close()
    const reasons = (await calls).flatMap((call) => (call.status === 'rejected' ? [call.reason] : []))
    expect(reasons.length).toBeGreaterThan(0)
    for (const reason of reasons) expect(reason).toBeInstanceOf(ClosedError)
  })
})

describe('postgresPartitionStore without a server', () => {
  const connectionString = `postgresql://millrace:${PASSWORD}@127.0.0.1:1/shop?sslmode=disable`

  test.each([
    [{}],
    [{ connectionString: '' }],
    [{ connectionString: `postgresql://millrace:${PASSWORD}@:bad:/x` }],
    [{ connectionString, table: 'a b' }],
    [{ connectionString, table: 'a"; DROP TABLE b; --' }],
    [{ connectionString, table: 'a.b.c' }],
    [{ connectionString, timeoutMs: 0 }],
    [{ connectionString, tabel: 'x' }],
    [undefined],
  ])('refuses the options %j and shows no secret', (options) => {
    let error: unknown
    try {
      postgresPartitionStore(options as { connectionString: string })
    } catch (thrown) {
      error = thrown
    }
    expect(error).toBeInstanceOf(ConfigError)
    expect(inspect(error, { depth: 9 })).not.toContain(PASSWORD)
  })

  test('P12: names itself with host and database, without user and password', () => {
    expect(postgresPartitionStore({ connectionString }).name).toBe('postgresPartitionStore(127.0.0.1:1/shop)')
  })

  test.each([
    'postgresql://user:123/secret@host/db',
    'postgresql://user:123?secret@host/db',
    'postgresql://user:123#secret@host/db',
    'postgresql://user:12/3/secret',
    'postgresql://:123/secret@host/db',
  ])('P12: names nothing of %s, of which host and password cannot be told apart', (odd) => {
    let shown: unknown
    try {
      shown = postgresPartitionStore({ connectionString: odd }).name
      expect(shown).toBe('postgresPartitionStore(connectionString)')
    } catch (error) {
      shown = error
    }
    expect(inspect(shown, { depth: 9 })).not.toMatch(/secret|123|user/)
  })

  test('a server that refuses connections is an error worth a retry', async () => {
    const error = await openFailure(postgresPartitionStore({ connectionString, timeoutMs: 2_000 }))
    expect(error).toBeInstanceOf(StoreError)
    expect(error.retryable).toBe(true)
    expect(inspect(error, { depth: 9 })).not.toContain(PASSWORD)
  })

  test.each(['25006', 'ENOTFOUND', 'ECONNREFUSED'])('%s, as after a failover, is worth a retry', async (code) => {
    const pool = { connect: () => Promise.reject(Object.assign(new Error('no'), { code })) }
    expect(await openFailure(postgresPartitionStore({ pool }))).toMatchObject({ name: 'StoreError', retryable: true })
  })

  test('a server that never answers is an error worth a retry, not a hang', async () => {
    const silent = createServer((socket) => socket.on('error', () => undefined))
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
    const { port } = silent.address() as { port: number }
    const error = await openFailure(
      postgresPartitionStore({ connectionString: connectionString.replace(':1/', `:${port}/`), timeoutMs: 300 }),
    )
    silent.close()
    expect(error).toBeInstanceOf(StoreError)
    expect(error.retryable).toBe(true)
  })

  test('a server that goes away in the moment it lets us in is an error worth a retry, and ends no process', async () => {
    const message = (type: string, body: string | Uint8Array): Buffer => {
      const length = Buffer.alloc(4)
      length.writeInt32BE(body.length + 4)
      return Buffer.concat([Buffer.from(type), length, Buffer.from(body)])
    }
    const goodbye = message('E', 'SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0')
    const welcome = Buffer.concat([message('R', new Uint8Array(4)), message('Z', 'I'), goodbye])
    const leaving = createServer((socket) =>
      socket.on('error', () => undefined).once('data', () => socket.end(welcome)),
    )
    await new Promise<void>((resolve) => leaving.listen(0, '127.0.0.1', resolve))
    const { port } = leaving.address() as { port: number }
    const uncaught = vi.fn()
    process.on('uncaughtException', uncaught)
    const error = await openFailure(
      postgresPartitionStore({ connectionString: connectionString.replace(':1/', `:${port}/`), timeoutMs: 2_000 }),
    )
    process.off('uncaughtException', uncaught)
    leaving.close()
    expect(error).toMatchObject({ name: 'StoreError', retryable: true })
    expect(uncaught).not.toHaveBeenCalled()
  })

  test('a pool of the caller that gives no connection is an error worth a retry, and what comes late goes back', async () => {
    const asked = Promise.withResolvers<PostgresConnection>()
    const pool = { connect: () => asked.promise }
    const error = await openFailure(postgresPartitionStore({ pool, timeoutMs: 300 }))
    expect(error).toMatchObject({ name: 'StoreError', retryable: true })
    const release = vi.fn()
    asked.resolve({ release } as unknown as PostgresConnection)
    await vi.waitFor(() => expect(release).toHaveBeenCalledExactlyOnceWith(false))
  })
})
