/** The store in a Spanner database passes the contract of all stores in both dialects, on the real emulator. */
import { createServer } from 'node:net'
import type { Database } from '@google-cloud/spanner'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { ClosedError, ConfigError, StoreError } from '../../src/core/errors.ts'
import { GRPC_CODES } from '../../src/model/grpc-code.ts'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { type PartitionStore, type PartitionTable, spannerPartitionStore } from '../../src/stores/index.ts'
import { sessionFailure } from '../../src/stores/spanner-store-errors.ts'
import { partitionStoreContract } from '../contracts/partition-store-contract.ts'
import { openFailure, ROOT, runningRoot } from '../support/partition-tables.ts'
import {
  hasSpannerEmulator,
  requireSpannerEmulator,
  type SpannerEmulator,
  startSpannerEmulator,
} from '../support/spanner-emulator.ts'
import { startTcpProxy } from '../support/tcp-proxy.ts'

requireSpannerEmulator('spanner-partition-store.integration.test.ts')

describe.skipIf(!hasSpannerEmulator)('spannerPartitionStore on the emulator', () => {
  let emulator: SpannerEmulator

  beforeAll(async () => {
    emulator = await startSpannerEmulator()
  })

  afterAll(() => emulator.stop())

  describe.each(['googlesql', 'postgresql'] as const)('in %s', (dialect) => {
    let database: Database
    let place: { readonly database: string; readonly emulatorHost: string }

    beforeAll(async () => {
      database = await emulator.createDatabase([], dialect)
      place = { database: database.formattedName_, emulatorHost: emulator.host }
    })

    describe('one store for all', () => {
      let clock: Clock
      let store: PartitionStore

      beforeAll(() => {
        store = spannerPartitionStore({ ...place, clock: { now: () => clock.now(), after: systemClock.after } })
      })

      afterAll(() => store.close())

      // Each test begins with the rows deleted, which is much faster than a store and a table of its own.
      const emptied = async (clockOfTest: Clock): Promise<PartitionStore> => {
        clock = clockOfTest
        await store.open('orders')
        await database.table('millrace_partitions').deleteRows(await keys())
        return store
      }
      partitionStoreContract('contract', emptied, { isShared: true })
    })

    async function keys(): Promise<[string, string][]> {
      const [rows] = await database.run({ sql: 'SELECT pipeline, token FROM millrace_partitions', json: true })
      return (rows as { pipeline: string; token: string }[]).map(({ pipeline, token }) => [pipeline, token])
    }

    test('makes its table once for all who come at the same moment', async () => {
      const stores = [1, 2, 3].map(() => spannerPartitionStore({ ...place, table: 'AtOnce' }))
      const tables = await Promise.all(stores.map((store) => store.open('orders')))
      const made = await Promise.all(tables.map((table, n) => table.createRoot(ROOT, `process ${n}`, 60_000)))
      expect(made.filter(Boolean)).toHaveLength(1)
      for (const store of stores) await store.close()
    })

    test('lets finished rows expire after 60 days, but none that is unfinished or may be needed again', async () => {
      const [ddl] = await database.getSchema()
      expect(ddl.join('\n')).toMatch(
        /OLDER_THAN\(finished_at, INTERVAL 60 DAY\)|TTL INTERVAL '(60 days|2 months)' ON finished_at/i,
      )
      const { store, table } = await opened('expiry')
      const ann = await runningRoot(table)
      const expiring = async (): Promise<string[]> => {
        const sql = `SELECT token FROM millrace_partitions WHERE pipeline = 'expiry' AND finished_at IS NOT NULL`
        const [rows] = await database.run({ sql, json: true })
        return (rows as { token: string }[]).map(({ token }) => token)
      }
      const children = ['a', 'b'].map((token) => ({ token, parentTokens: ['root'], start: ROOT.start }))
      await table.addChildren('root', ann, children, 60_000)
      for (const { token } of children) await table.advance(token, ann, 'CREATED', 'RUNNING')
      expect(await expiring()).toEqual([])
      const ended = { watermark: ROOT.start, boundaryIds: [] }
      // Without its root a pipeline would begin anew; what ended at a user's end is read on by a run with a later one.
      expect(await table.finish('root', ann, ended, null)).toBe(true)
      expect(await table.finish('b', ann, ended, ROOT.start)).toBe(true)
      expect(await expiring()).toEqual([])
      expect((await table.claim('ann', 60_000)).map(({ token }) => token)).toEqual(['a'])
      expect(await table.finish('a', { owner: 'ann', epoch: 2 }, ended, null)).toBe(true)
      expect(await expiring()).toEqual(['a'])
      expect(await table.claim('ann', 60_000)).toEqual([])
      await table.reopen(null)
      expect((await table.claim('ann', 60_000)).map(({ token }) => token)).toEqual(['b'])
      await store.close()
    })

    test('keeps more boundary ids than fit into a column as they are', async () => {
      const { store, table } = await opened('ties')
      await runningRoot(table)
      const boundaryIds = Array.from(
        { length: 80_000 },
        (_, n) => `dHJhbnNhY3Rpb24gaWQgb2YgdGhlIHNlcnZlcg/00000000/${n}`,
      )
      expect(JSON.stringify(boundaryIds).length).toBeGreaterThan(2_621_440)
      const write = { token: 'root', epoch: 1, watermark: ROOT.start, boundaryIds }
      expect(await table.checkpoint('ann', [write], 60_000)).toEqual([])
      expect((await table.get('root'))?.boundaryIds).toEqual(boundaryIds)
      await store.close()
    })

    test('P10: two processes that write at the same time obey each other', async () => {
      const [ann, bob] = [await opened('both'), await opened('both')]
      const made = await Promise.all([
        ann.table.createRoot(ROOT, 'ann', 60_000),
        bob.table.createRoot(ROOT, 'bob', 60_000),
      ])
      expect(made.toSorted()).toEqual([false, true])
      await Promise.all([ann.table.release('ann'), bob.table.release('bob')])
      const claims = await Promise.all([ann.table.claim('ann', 60_000), bob.table.claim('bob', 60_000)])
      const owner = (await ann.table.get('root'))?.owner
      expect(claims.map(([row]) => [row?.owner, row?.epoch])).toEqual([
        [owner, 2],
        [owner, 2],
      ])
      await ann.store.close()
      await bob.store.close()
    })

    test('makes a new session when the server has forgotten its own', async () => {
      const { store, table } = await opened('sessions')
      await runningRoot(table)
      await table.list()
      const [sessions] = await database.getSessions()
      for (const session of sessions) await session.delete().catch(() => undefined)
      expect(await table.list()).toHaveLength(1)
      expect(await table.checkpoint('ann', [], 60_000)).toEqual([])
      await store.close()
    })

    test.each([
      ['the whole database', 'FOR ALL'],
      ['its table', 'FOR millrace_partitions'],
    ])('refuses to sit under a stream that watches %s', async (_, watched) => {
      await change(`CREATE CHANGE STREAM watcher ${watched}`)
      const error = await openFailure(spannerPartitionStore(place))
      const atLook = await spannerPartitionStore(place).peek!('orders').catch((thrown: unknown) => thrown)
      await change('DROP CHANGE STREAM watcher')
      expect(atLook).toEqual(error)
      expect(error).toBeInstanceOf(ConfigError)
      expect(error.message).toContain("change stream 'watcher'")
      expect(error.hint).toMatch(/separate database.*named tables/)
    })

    test('sits beside a stream that watches other tables', async () => {
      const type = dialect === 'googlesql' ? ['STRING(36)', ') PRIMARY KEY (Id)'] : ['varchar', ', PRIMARY KEY (Id))']
      await change(`CREATE TABLE Orders (Id ${type[0]} NOT NULL${type[1]}`)
      await change('CREATE CHANGE STREAM order_changes FOR Orders')
      const { store } = await opened('beside')
      await store.close()
      await change('DROP CHANGE STREAM order_changes')
    })

    test('a look makes no table, and leaves a store that is open as it is', async () => {
      const store = spannerPartitionStore({ ...place, table: 'LookedAt' })
      const tables = async (): Promise<string> => (await database.getSchema())[0].join('\n')
      const before = await tables()
      expect(await store.peek!('orders')).toBeUndefined()
      expect(await tables()).toBe(before)
      const table = await store.open('orders')
      await runningRoot(table)
      expect(await store.peek!('orders')).toEqual(await table.list())
      await store.close()
      expect(await store.peek!('orders')).toHaveLength(1)
    })

    test('P12: a table of somebody else is refused by name', async () => {
      const type = dialect === 'googlesql' ? ['STRING(36)', ') PRIMARY KEY (id)'] : ['varchar', ', PRIMARY KEY (id))']
      await change(`CREATE TABLE customers (id ${type[0]} NOT NULL${type[1]}`)
      const error = await openFailure(spannerPartitionStore({ ...place, table: 'customers' }))
      expect(error).toBeInstanceOf(ConfigError)
      expect(error.message).toContain('customers that is not of this store: it has no column pipeline')
      await expect(spannerPartitionStore({ ...place, table: 'customers' }).peek!('orders')).rejects.toThrow(error)
    })

    test('use after close is a ClosedError', async () => {
      const { store, table } = await opened('closed')
      await store.close()
      await expect(table.list()).rejects.toThrow(ClosedError)
      await expect(table.claim('ann', 1_000)).rejects.toThrow(ClosedError)
    })

    async function opened(pipeline: string): Promise<{ store: PartitionStore; table: PartitionTable }> {
      const store = spannerPartitionStore(place)
      return { store, table: await store.open(pipeline) }
    }

    async function change(statement: string): Promise<void> {
      const [changing] = await database.updateSchema([statement])
      await changing.promise()
    }
  })

  // The emulator takes seconds for thousands of rows in a commit, so this runs in one dialect only.
  test('P1: stores the progress of more partitions in one tick than a page has, and says which are lost', async () => {
    const { formattedName_: database } = await emulator.createDatabase([])
    const store = spannerPartitionStore({ database, emulatorHost: emulator.host, timeoutMs: 30_000 })
    const table = await store.open('many')
    const ann = await runningRoot(table)
    const tokens = Array.from({ length: 4_100 }, (_, n) => `p${n}`)
    const children = tokens.map((token) => ({ token, parentTokens: ['root'], start: ROOT.start }))
    expect(await table.addChildren('root', ann, children, 60_000)).toHaveLength(4_100)
    const running = [...tokens.slice(0, 500), ...tokens.slice(-500)]
    await Promise.all(running.map((token) => table.advance(token, ann, 'CREATED', 'RUNNING')))
    const watermark = '2026-01-02T00:00:00.000000001Z'
    // The emulator takes many times longer for a commit of all of them.
    const writes = [...running, 'p2007'].map((token) => ({
      token,
      epoch: token === 'p7' || token === 'p2007' ? 2 : 1,
      watermark,
      boundaryIds: [token],
    }))
    expect(await table.checkpoint('ann', writes, 120_000)).toEqual(['p7', 'p2007'])
    const rows = await table.list()
    expect(rows).toHaveLength(4_101)
    expect(rows.filter((row) => row.watermark === watermark)).toHaveLength(999)
    expect(new Set(rows.map(({ leaseUntilMs }) => leaseUntilMs > Date.now() + 60_000))).toEqual(new Set([true]))
    // What another one holds stays with it, page for page.
    const held = await table.claim('bob', 60_000)
    expect([held.length, new Set(held.map(({ owner }) => owner))]).toEqual([4_101, new Set(['ann'])])
    await store.close()
  })

  test('P2: a commit whose answer is lost is an error worth a retry, and may be sent again', async () => {
    const { formattedName_: database } = await emulator.createDatabase([])
    const [host, port] = emulator.host.split(':')
    await using proxy = await startTcpProxy(host!, Number(port))
    let onAsked: (() => void) | undefined
    const now = (): number => {
      onAsked?.()
      return Date.now()
    }
    const emulatorHost = `127.0.0.1:${proxy.port}`
    const store = spannerPartitionStore({ database, emulatorHost, timeoutMs: 2_000, clock: { ...systemClock, now } })
    const table = await store.open('lost-answer')
    await runningRoot(table)
    const write = { token: 'root', epoch: 1, watermark: '2026-01-02T00:00:00.000000000Z', boundaryIds: ['x'] }
    // The time is asked for between the reading and the commit.
    onAsked = proxy.mute
    await expect(table.checkpoint('ann', [write], 60_000)).rejects.toMatchObject({
      name: 'StoreError',
      retryable: true,
    })
    onAsked = undefined
    const other = spannerPartitionStore({ database, emulatorHost: emulator.host })
    const { watermark, boundaryIds } = (await (await other.open('lost-answer')).get('root'))!
    expect({ watermark, boundaryIds }).toEqual({ watermark: write.watermark, boundaryIds: ['x'] })
    proxy.cut()
    // The connection of before may be found broken first.
    const again = await vi.waitFor(() => table.checkpoint('ann', [write], 60_000), { timeout: 20_000 })
    expect(again).toEqual([])
    expect(await table.finish('root', { owner: 'ann', epoch: 1 }, write, null)).toBe(true)
    await store.close()
    await other.close()
  })

  test('P12: a database that does not exist is a ConfigError that names the option', async () => {
    const database = 'projects/test-project/instances/nowhere/databases/nothing'
    const error = await openFailure(spannerPartitionStore({ database, emulatorHost: emulator.host }))
    expect(error).toBeInstanceOf(ConfigError)
    expect(error.message).toContain(database)
    expect(error.hint).toContain('option database')
    await expect(spannerPartitionStore({ database, emulatorHost: emulator.host }).peek!('orders')).rejects.toThrow(
      error,
    )
  })
})

describe('spannerPartitionStore without a server', () => {
  const database = 'projects/p/instances/i/databases/d'

  test.each([
    [{}],
    [{ database: 'd' }],
    [{ database, table: 'a b' }],
    [{ database, table: 'a`; DROP TABLE b' }],
    [{ database, keepFinishedDays: 30 }],
    [{ database, emulatorHost: 'localhost' }],
    [{ database, timeoutMs: 0 }],
    [{ database, tabel: 'x' }],
    [undefined],
  ])('refuses the options %j', (options) => {
    expect(() => spannerPartitionStore(options as { database: string })).toThrow(ConfigError)
  })

  test('names itself with its database and opens nothing before open', async () => {
    const store = spannerPartitionStore({ database })
    expect(store.name).toBe(`spannerPartitionStore(${database})`)
    await store.close()
  })

  test('an empty SPANNER_EMULATOR_HOST is none', () => {
    vi.stubEnv('SPANNER_EMULATOR_HOST', '')
    try {
      expect(spannerPartitionStore({ database }).name).toContain(database)
      expect(spannerChangeStream({ database, stream: 'S' }).defaultName).toBe('S')
    } finally {
      vi.unstubAllEnvs()
    }
  })

  test('a server that refuses connections is an error worth a retry', async () => {
    const server = createServer()
    const emulatorHost = await listening(server)
    await new Promise((resolve) => server.close(resolve))
    const error = await openFailure(spannerPartitionStore({ database, emulatorHost, timeoutMs: 2_000 }))
    expect(error).toMatchObject({ retryable: true, message: expect.stringContaining(emulatorHost) })
  })

  // A session that failed is made anew, so this is where a run meets a credential that is just being renewed.
  test.each([
    ['UNAUTHENTICATED', true],
    ['PERMISSION_DENIED', false],
  ] as const)('no session for %s: worth a retry is %s', async (code, retryable) => {
    const error = sessionFailure(Object.assign(new Error('no'), { code: GRPC_CODES[code] }), {
      database,
      emulatorHost: undefined,
    })
    expect(error).toMatchObject({ name: 'EnvironmentError', retryable, hint: expect.stringContaining('gcloud auth') })
  })

  test('a server that never answers is an error worth a retry, not a hang', async () => {
    const server = createServer((socket) => socket.on('error', () => undefined))
    const emulatorHost = await listening(server)
    const error = await openFailure(spannerPartitionStore({ database, emulatorHost, timeoutMs: 300 }))
    server.close()
    expect(error).toBeInstanceOf(StoreError)
    expect(error.retryable).toBe(true)
  })
})

async function listening(server: ReturnType<typeof createServer>): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return `127.0.0.1:${(server.address() as { port: number }).port}`
}
