/** The real gRPC client against the simulator's server: no service is needed. */
import { createServer } from 'node:net'
import { v1 } from '@google-cloud/spanner'
import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { ConfigError, EnvironmentError } from '../../src/core/errors.ts'
import type { Sink } from '../../src/core/types.ts'
import type { PartitionQuery } from '../../src/model/change-stream.ts'
import { type Change, changeId, rowKey } from '../../src/model/data-change-record.ts'
import { definePipeline, runPipeline } from '../../src/runtime/index.ts'
import { randomWorkload, type ServedStream, SimulatedStream, serveStream } from '../../src/simulator/index.ts'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { SpannerChangeStreamClient } from '../../src/sources/spanner-change-stream/connection/spanner-client.ts'
import { memoryPartitionStore } from '../../src/stores/index.ts'
import { checkNothingLost, checkOrderPerKey } from '../support/auditor.ts'
import { gatherFacts, History } from '../support/history.ts'

// The client would otherwise look for a metadata server on the network.
beforeAll(() => {
  vi.stubEnv('METADATA_SERVER_DETECTION', 'none')
})
afterAll(() => {
  vi.unstubAllEnvs()
})

interface Site extends AsyncDisposable {
  readonly stream: SimulatedStream
  readonly served: ServedStream
  client(options?: {
    readonly stream?: string
    readonly database?: string
    readonly host?: string
  }): SpannerChangeStreamClient
}

async function openSite(seed: number, chunkChance?: number): Promise<Site> {
  const stream = new SimulatedStream({ seed, latencyMs: [0, 2] })
  const served = await serveStream(stream, chunkChance === undefined ? {} : { chunkChance })
  const clients: SpannerChangeStreamClient[] = []
  return {
    stream,
    served,
    client({ stream = served.stream, database = served.database, host = served.host } = {}) {
      const client = new SpannerChangeStreamClient({
        database,
        stream,
        emulatorHost: host,
        databaseRole: undefined,
        priority: 'low',
        requestTag: 'test',
        directedRead: undefined,
      })
      clients.push(client)
      return client
    },
    async [Symbol.asyncDispose]() {
      for (const client of clients) await client.close()
      await served.close()
    },
  }
}

const never = new AbortController().signal

function rootQuery(stream: SimulatedStream): PartitionQuery {
  return { token: null, start: stream.createdAt, end: null, heartbeatMs: 100 }
}

function partitionQuery(stream: SimulatedStream): PartitionQuery {
  return { ...rootQuery(stream), token: stream.livePartitions()[0]!.token }
}

/** A port on which nobody listens. */
async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  await new Promise((resolve) => server.close(resolve))
  return port
}

/** Runs a pipeline over gRPC to the last change and judges what its sink got. */
async function carryAll(
  { stream, served }: Site,
  during: (written: number) => unknown = () => undefined,
): Promise<{ readonly violations: readonly unknown[]; readonly rereads: number }> {
  const end = stream.ledger.changes.at(-1)!.commitTimestamp
  const history = new History()
  let written = 0
  const sink: Sink<Change> = {
    name: 'history',
    maxBatchItems: 10,
    async write(items) {
      for (const change of items) {
        const { table, keys, commitTimestamp: timestamp } = change
        history.written(1, { id: changeId(change), key: rowKey(table, keys), timestamp })
      }
      written += items.length
      await during(written)
    },
    close: () => Promise.resolve(),
  }
  const { rereads } = await runPipeline(
    definePipeline({
      source: spannerChangeStream({
        database: served.database,
        stream: served.stream,
        start: stream.createdAt,
        end,
        heartbeatMs: 100,
        emulatorHost: served.host,
      }),
      sink,
      store: memoryPartitionStore(),
      maxInFlight: 20,
    }),
  )
  const ledger = { changes: stream.ledger.changes, partitions: [] }
  const facts = gatherFacts(ledger, history.events, { start: stream.createdAt, end })
  const violations = [...checkNothingLost(facts, { completed: true }), ...checkOrderPerKey(facts, { completed: true })]
  return { violations, rereads }
}

describe('SpannerChangeStreamClient.describe', () => {
  test('finds the stream and its retention', async () => {
    await using site = await openSite(1)
    expect(await site.client().describe(never)).toMatchObject({ retentionMs: 7 * 86_400_000 })
  })

  test('a missing stream gives a ConfigError that names the nearest one', async () => {
    await using site = await openSite(1)
    const described = site.client({ stream: 'ShopChange' }).describe(never)
    await expect(described).rejects.toBeInstanceOf(ConfigError)
    await expect(described).rejects.toMatchObject({
      message: expect.stringContaining("no change stream 'ShopChange'"),
      hint: "Did you mean 'ShopChanges'?",
    })
  })

  test('an unknown database gives a ConfigError that names it', async () => {
    await using site = await openSite(1)
    const database = 'projects/p/instances/i/databases/nowhere'
    const described = site.client({ database }).describe(never)
    await expect(described).rejects.toBeInstanceOf(ConfigError)
    await expect(described).rejects.toThrow(database)
  })

  test('a port on which nobody listens gives an EnvironmentError', { timeout: 15_000 }, async () => {
    await using site = await openSite(1)
    const host = `127.0.0.1:${await freePort()}`
    const described = site.client({ host }).describe(never)
    await expect(described).rejects.toBeInstanceOf(EnvironmentError)
    await expect(described).rejects.toThrow(host)
  })

  test('an abort ends it with the reason', async () => {
    await using site = await openSite(1)
    const reason = new Error('enough')
    await expect(site.client().describe(AbortSignal.abort(reason))).rejects.toBe(reason)
  })
})

describe('SpannerChangeStreamClient.query', () => {
  test('the first query returns the partitions to begin with', async () => {
    await using site = await openSite(2)
    const tokens: string[] = []
    for await (const { records } of site.client().query(rootQuery(site.stream), never)) {
      for (const item of records) {
        if (item.kind === 'children') tokens.push(...item.record.children.map(({ token }) => token))
      }
    }
    expect(tokens.toSorted()).toEqual(
      site.stream
        .livePartitions()
        .map(({ token }) => token)
        .toSorted(),
    )
  })

  test('ending the iteration early cancels the query at the server', async () => {
    await using site = await openSite(3)
    for await (const _ of site.client().query(partitionQuery(site.stream), never)) {
      expect(site.served.openQueries).toBe(1)
      break
    }
    await vi.waitFor(() => expect(site.served.openQueries).toBe(0), WAIT)
  })

  test('an abort cancels the query at the server and ends the iteration with its reason', async () => {
    await using site = await openSite(3)
    const abort = new AbortController()
    const reason = new Error('enough')
    const reading = (async () => {
      for await (const _ of site.client().query(partitionQuery(site.stream), abort.signal)) abort.abort(reason)
    })()
    await expect(reading).rejects.toBe(reason)
    await vi.waitFor(() => expect(site.served.openQueries).toBe(0), WAIT)
  })

  test('a session that the server forgot is replaced', async () => {
    await using site = await openSite(4)
    const client = site.client()
    await client.describe(never)
    await forgetSession(site.served, 1)
    // The first query finds it gone, which is a passing error; the second one has a new session.
    await expect(read(client, site.stream)).rejects.toMatchObject({ name: 'SourceError', retryable: true })
    expect(await read(client, site.stream)).toBeGreaterThan(0)
  })

  test('a token of another stream gives an error that no retry can cure', async () => {
    await using site = await openSite(5)
    const query = { ...rootQuery(site.stream), token: 'no such token' }
    const reading = (async () => {
      for await (const _ of site.client().query(query, never)) throw new Error('there is nothing to read')
    })()
    await expect(reading).rejects.toMatchObject({
      name: 'SourceError',
      retryable: false,
      partition: 'no such token',
      message: expect.stringContaining('INVALID_ARGUMENT'),
    })
  })

  test('a start before the history gives the status by which the reader decides', async () => {
    await using site = await openSite(5)
    const query = { ...rootQuery(site.stream), start: '2020-01-01T00:00:00.000000000Z' }
    const reading = (async () => {
      for await (const _ of site.client().query(query, never)) throw new Error('there is nothing to read')
    })()
    await expect(reading).rejects.toMatchObject({ code: 'SOURCE_READ', status: 'OUT_OF_RANGE', retryable: false })
  })
})

describe('a pipeline over gRPC', () => {
  test('P1 P3: equals the ledger with faults on and values in pieces', async () => {
    const seed = 1118
    await using site = await openSite(seed, 0.4)
    await randomWorkload(site.stream, { seed, transactions: 150, pauseMs: 3, topologyChance: 0.08 })
    site.stream.injectFaults({ errors: 0.06, earlyEnds: 0.03, duplicateTails: 0.3, kills: 0.01 })
    const { violations, rereads } = await carryAll(site)
    expect(violations, `seed ${seed}`).toEqual([])
    expect(rereads).toBeGreaterThan(0)
    await vi.waitFor(() => expect(site.served.openQueries).toBe(0), WAIT)
  })

  test('P1 P3: survives killed connections', async () => {
    await using site = await openSite(6)
    await randomWorkload(site.stream, { seed: 6, transactions: 120, pauseMs: 0, topologyChance: 0.05 })
    let kills = 0
    const { violations, rereads } = await carryAll(site, (written) => {
      if (kills === Math.floor(written / 60)) return
      kills++
      site.served.killConnections()
    })
    expect(violations).toEqual([])
    expect(kills).toBeGreaterThan(1)
    expect(rereads).toBeGreaterThan(0)
  })

  test('P1: survives a session that the server forgot', async () => {
    await using site = await openSite(7)
    await randomWorkload(site.stream, { seed: 7, transactions: 100, pauseMs: 0 })
    let isForgotten = false
    const { violations, rereads } = await carryAll(site, async (written) => {
      if (written < 50 || isForgotten) return
      isForgotten = true
      await forgetSession(site.served, 1)
      site.served.killConnections()
    })
    expect(violations).toEqual([])
    expect(rereads).toBeGreaterThan(0)
  })
})

/** Reads until the first part and says how many records it has. */
async function read(client: SpannerChangeStreamClient, stream: SimulatedStream): Promise<number> {
  for await (const { records } of client.query(rootQuery(stream), never)) return records.length
  return 0
}

/** The server numbers its sessions from 1. */
async function forgetSession({ host, database }: ServedStream, number: number): Promise<void> {
  const [address, port] = host.split(':')
  const admin = new v1.SpannerClient({
    servicePath: address!,
    apiEndpoint: address!,
    port: Number(port),
    sslCreds: credentials.createInsecure(),
    projectId: 'simulator',
  })
  try {
    await admin.deleteSession({ name: `${database}/sessions/${number}` })
  } finally {
    await admin.close()
  }
}

const WAIT = { timeout: 10_000, interval: 20 }
