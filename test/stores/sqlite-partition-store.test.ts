/** The store in a SQLite file passes the contract of all stores, across connections, processes and restarts. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { access, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { ClosedError, ConfigError, StoreError } from '../../src/core/errors.ts'
import { type PartitionStore, sqlitePartitionStore } from '../../src/stores/index.ts'
import { partitionStoreContract } from '../contracts/partition-store-contract.ts'

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sqlite-partition-store-'))
})

afterEach(() => rm(folder, { recursive: true, force: true }))

partitionStoreContract('sqlitePartitionStore: contract', (clock) => sqlitePartitionStore({ path: file(), clock }))

describe('sqlitePartitionStore', () => {
  test('names itself with its path', () => {
    expect(sqlitePartitionStore({ path: 'a/b.db' }).name).toBe('sqlitePartitionStore(a/b.db)')
  })

  test.each([[{}], [{ path: '' }], [{ path: ':memory:' }], [{ path: 'a.db', tabel: 'x' }], [undefined]])(
    'refuses the options %j',
    (options) => {
      expect(() => sqlitePartitionStore(options as { path: string })).toThrow(ConfigError)
    },
  )

  test('opens nothing before open, and then makes the folders of its path', async () => {
    const path = join(folder, 'deep', 'er', 'state.db')
    const store = sqlitePartitionStore({ path })
    await expect(access(join(folder, 'deep'))).rejects.toThrow('ENOENT')
    await store.open('orders')
    await access(path)
    await store.close()
  })

  test('a look makes no file and no folder, and leaves none of its own behind', async () => {
    const store = sqlitePartitionStore({ path: join(folder, 'deep', 'state.db') })
    expect(await store.peek?.('orders')).toBeUndefined()
    expect(await readdir(folder)).toEqual([])
    await withRoot(store)
    await store.close()
    expect(await store.peek?.('orders')).toHaveLength(1)
    expect(await readdir(join(folder, 'deep'))).toEqual(['state.db'])
  })

  test('P12: a look at what is no place for a store says why', async () => {
    await writeFile(file(), 'not a database, and long enough to be read as one'.repeat(50))
    const look = (path: string): Promise<unknown> | undefined => sqlitePartitionStore({ path }).peek?.('orders')
    await expect(look(file())).rejects.toMatchObject({
      name: 'StoreError',
      hint: expect.stringContaining('another path'),
    })
    await expect(look(join(file(), 'x'))).rejects.toMatchObject({ hint: expect.stringContaining('another path') })
    await expect(look(folder)).rejects.toMatchObject({ hint: expect.stringContaining('path of a file') })
  })

  test('keeps its rows through a restart', async () => {
    const first = sqlitePartitionStore({ path: file() })
    await withRoot(first)
    const rows = await (await first.open('orders')).list()
    await first.close()
    const second = sqlitePartitionStore({ path: file() })
    expect(await (await second.open('orders')).list()).toEqual(rows)
    await second.close()
  })

  test('keeps a write-ahead log', async () => {
    const store = sqlitePartitionStore({ path: file() })
    await withRoot(store)
    const header = await readFile(file())
    // Bytes 18 and 19 of a SQLite file say that it keeps a write-ahead log.
    expect([header[18], header[19]]).toEqual([2, 2])
    await store.close()
  })

  test('P10: two connections to one file obey each other', async () => {
    const [ann, bob] = [sqlitePartitionStore({ path: file() }), sqlitePartitionStore({ path: file() })]
    const [annTable, bobTable] = [await ann.open('orders'), await bob.open('orders')]
    expect(await annTable.createRoot(ROOT, 'ann', 60_000)).toBe(true)
    expect(await bobTable.createRoot(ROOT, 'bob', 60_000)).toBe(false)
    expect(await bobTable.claim('bob', 60_000)).toMatchObject([{ owner: 'ann', epoch: 1 }])
    await annTable.release('ann')
    expect(await bobTable.claim('bob', 60_000)).toMatchObject([{ owner: 'bob', epoch: 2 }])
    expect(await annTable.advance('root', { owner: 'ann', epoch: 1 }, 'CREATED', 'RUNNING')).toBe(false)
    expect(await annTable.get('root')).toMatchObject({ owner: 'bob', state: 'CREATED' })
    await ann.close()
    await bob.close()
  })

  test('P10: of several processes that race for a claim, exactly one wins', async () => {
    const seen = await race(`
      const rows = await table.claim(owner, 60_000)
      console.log(rows.filter((row) => row.owner === owner).length + ' ' + rows[0].epoch)
    `)
    expect(seen.toSorted()).toEqual(['0 2', '0 2', '0 2', '1 2'])
  })

  test('lets one of several processes make the root', async () => {
    const seen = await race(
      `console.log(await table.createRoot({ token: 'r', parentTokens: [], start: 's' }, owner, 60_000))`,
      'new-pipeline',
    )
    expect(seen.toSorted()).toEqual(['false', 'false', 'false', 'true'])
  })

  test('opens for all who come at the same moment to a file that does not exist', async () => {
    const turns = new Int32Array(new SharedArrayBuffer(4))
    const racers = [1, 2, 3].map(async () => {
      const worker = new Worker(OPEN_AT_ONCE, { eval: true, workerData: { turns, folder, stores: STORES.href } })
      const [failures] = await once(worker, 'message')
      return failures
    })
    expect(await Promise.all(racers)).toEqual([[], [], []])
  })

  test('P12: a file that is not a database is a StoreError that says so and leaves the file alone', async () => {
    const garbage = Buffer.alloc(8192, 'this is no database ')
    await writeFile(file(), garbage)
    const error = await failure(sqlitePartitionStore({ path: file() }))
    expect(error.message).toContain(file())
    expect(error.hint).toContain('not a SQLite database')
    expect(error.retryable).toBe(false)
    expect(await readFile(file())).toEqual(garbage)
  })

  test('P12: a path below a regular file is a StoreError that says so', async () => {
    await writeFile(join(folder, 'plain'), '')
    const error = await failure(sqlitePartitionStore({ path: join(folder, 'plain', 'sub', 'state.db') }))
    expect(error.message).toContain(join(folder, 'plain', 'sub', 'state.db'))
    expect(error.hint).toContain('is a file, not a folder')
  })

  test('P12: a path that is a folder is a StoreError that says so', async () => {
    const error = await failure(sqlitePartitionStore({ path: folder }))
    expect(error.hint).toContain('must be a file')
  })

  test.skipIf(process.getuid?.() === 0)('P12: a folder without write permission is a clear StoreError', async () => {
    await mkdir(join(folder, 'locked'), { mode: 0o555 })
    const error = await failure(sqlitePartitionStore({ path: join(folder, 'locked', 'state.db') }))
    expect(error.hint).toContain('may write the file and its folder')
  })

  test('P12: a file of a newer version is refused and left alone', async () => {
    const newer = new DatabaseSync(file())
    newer.exec('CREATE TABLE future (a); PRAGMA user_version = 99')
    newer.close()
    const error = await failure(sqlitePartitionStore({ path: file() }))
    expect(error.message).toContain('newer version (schema 99')
    expect(error.hint).toContain('Update millrace')
  })

  test('can be opened after what stood in the way is gone', async () => {
    await writeFile(file(), 'this is no database')
    const store = sqlitePartitionStore({ path: file() })
    await failure(store)
    await rm(file())
    await withRoot(store)
    await store.close()
  })

  test('a file that another process holds for long is a StoreError worth a retry', async () => {
    const store = sqlitePartitionStore({ path: file() })
    const table = await store.open('orders')
    const shell = new DatabaseSync(file())
    shell.exec('BEGIN IMMEDIATE')
    const error = await table.createRoot(ROOT, 'ann', 1000).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(StoreError)
    expect(error).toMatchObject({ retryable: true, hint: expect.stringContaining('Another process') })
    shell.exec('COMMIT')
    expect(await table.createRoot(ROOT, 'ann', 1000)).toBe(true)
    shell.close()
    await store.close()
  })

  test('a failure in the middle of a commit leaves all rows as they were', async () => {
    const store = sqlitePartitionStore({ path: file() })
    await withRoot(store)
    const table = await store.open('orders')
    const before = await table.list()
    const broken = [{ token: 'a', parentTokens: [], start: 's' }, { token: 'b', parentTokens: [] } as never]
    await expect(table.addChildren('root', { owner: 'ann', epoch: 1 }, broken, 1000)).rejects.toThrow(StoreError)
    expect(await table.list()).toEqual(before)
    await store.close()
  })

  test('use after close is a ClosedError', async () => {
    const store = sqlitePartitionStore({ path: file() })
    const table = await store.open('orders')
    await store.close()
    await expect(table.list()).rejects.toThrow(ClosedError)
    await expect(table.claim('ann', 1000)).rejects.toThrow(ClosedError)
  })
})

const STORES = new URL('../../src/stores/index.ts', import.meta.url)

// A lone process switches the file to its log in an instant: many rounds make sure that some meet in it.
const OPEN_AT_ONCE = `
  const { parentPort, workerData: { turns, folder, stores } } = require('node:worker_threads')
  import(stores).then(async ({ sqlitePartitionStore }) => {
    const failures = []
    for (let round = 1; round <= 60; round++) {
      Atomics.add(turns, 0, 1)
      while (Atomics.load(turns, 0) < round * 3) {}
      const store = sqlitePartitionStore({ path: folder + '/' + round + '/state.db' })
      await store.open('orders').catch((error) => failures.push(error.message))
      await store.close()
    }
    parentPort.postMessage(failures)
  })
`

const ROOT = { token: 'root', parentTokens: [], start: '2026-01-01T00:00:00.000000000Z' }

function file(): string {
  return join(folder, 'state.db')
}

async function withRoot(store: PartitionStore): Promise<void> {
  const table = await store.open('orders')
  expect(await table.createRoot(ROOT, 'ann', 60_000)).toBe(true)
}

async function failure(store: PartitionStore): Promise<StoreError> {
  const error = await store.open('orders').catch((thrown: unknown) => thrown)
  if (!(error instanceof StoreError)) throw new Error('the store was to fail with a StoreError', { cause: error })
  return error
}

/** Runs `body` in four processes on a free root, released at the same moment; returns what each printed. */
async function race(body: string, pipeline = 'orders'): Promise<string[]> {
  const store = sqlitePartitionStore({ path: file() })
  await withRoot(store)
  await (await store.open('orders')).release('ann')
  await store.close()
  const children = Array.from({ length: 4 }, () =>
    child(`
      const owner = 'process ' + process.pid
      const table = await sqlitePartitionStore({ path: process.argv[1] }).open('${pipeline}')
      console.log('ready')
      for await (const _ of process.stdin) {}
      ${body}
    `),
  )
  return released(children)
}

interface Child {
  next(): Promise<string>
  go(): void
}

function child(body: string): Child {
  const script = `import { sqlitePartitionStore } from './src/stores/index.ts'\n${body}`
  const running = spawn(process.execPath, ['--input-type=module-typescript', '-e', script, file()], {
    cwd: fileURLToPath(new URL('../../', import.meta.url)),
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const lines = createInterface(running.stdout)[Symbol.asyncIterator]()
  const exited = once(running, 'exit')
  return {
    async next() {
      const { value, done } = await lines.next()
      if (done) throw new Error(`the child ended early: ${await exited}`)
      return value
    },
    go: () => running.stdin.end(),
  }
}

/** Waits until all children are ready, lets them go, and returns what they say then. */
async function released(children: readonly Child[]): Promise<string[]> {
  for (const one of children) expect(await one.next()).toBe('ready')
  for (const one of children) one.go()
  return Promise.all(children.map((one) => one.next()))
}
