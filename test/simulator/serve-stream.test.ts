import { once } from 'node:events'
import { type protos, v1 } from '@google-cloud/spanner'
import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { PartitionQuery } from '../../src/model/change-stream.ts'
import type { ChangeStreamRecord } from '../../src/model/data-change-record.ts'
import {
  type GrpcCode,
  randomWorkload,
  type ServedStream,
  type ServeStreamOptions,
  SimulatedStream,
  type SimulatedStreamOptions,
  serveStream,
} from '../../src/simulator/index.ts'
import { neverAborted } from './patient-reader.ts'
import { decodeRow, plain, ValueAssembler } from './wire-decoder.ts'

type Message = protos.google.spanner.v1.IPartialResultSet
type Call = ReturnType<v1.SpannerClient['executeStreamingSql']>

/** A served stream with history in it, and the real client, connected. */
class Scene {
  readonly stream: SimulatedStream
  readonly served: ServedStream
  readonly client: v1.SpannerClient
  readonly start: string
  session = ''

  private constructor(stream: SimulatedStream, served: ServedStream, start: string) {
    this.stream = stream
    this.served = served
    this.start = start
    const [servicePath, port] = served.host.split(':') as [string, string]
    this.client = new v1.SpannerClient({
      servicePath,
      apiEndpoint: servicePath,
      port: Number(port),
      sslCreds: credentials.createInsecure(),
      projectId: 'simulator',
    })
  }

  static async open(options: Partial<SimulatedStreamOptions> = {}, serve: ServeStreamOptions = {}): Promise<Scene> {
    const stream = new SimulatedStream({ seed: 11, latencyMs: [0, 0], resumeTokenChance: 0.7, ...options })
    const start = stream.now()
    await randomWorkload(stream, { seed: 11, transactions: 200, pauseMs: 0, topologyChance: 0.03 })
    const scene = new Scene(stream, await serveStream(stream, { chunkChance: 0.3, ...serve }), start)
    const { database } = scene.served
    const [session] = await scene.client.createSession({ database, session: { multiplexed: true } })
    expect(session.multiplexed).toBe(true)
    scene.session = session.name!
    return scene
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client.close()
    await this.served.close()
    await this.served.close()
  }

  /** An ended partition that holds data. */
  endedQuery(): PartitionQuery {
    const busy = new Set(this.stream.ledger.changes.map((change) => change.partitionToken))
    const { token, start } = this.stream
      .lineage()
      .find((partition) => partition.end !== null && busy.has(partition.token))!
    return { token, start, end: null, heartbeatMs: 1000 }
  }

  liveQuery(): PartitionQuery {
    const { token, start } = this.stream.livePartitions()[0]!
    return { token, start, end: null, heartbeatMs: 1000 }
  }

  sql(sql: string, request: protos.google.spanner.v1.IExecuteSqlRequest = {}): Call {
    return this.client.executeStreamingSql(
      { session: this.session, sql, transaction: { singleUse: { readOnly: { strong: true } } }, ...request },
      { retryRequestOptions: { noResponseRetries: 0, retries: 0 }, timeout: 30_000 },
    )
  }

  read({ token, start, end, heartbeatMs, resumeToken }: PartitionQuery, request = {}): Call {
    const text = (value: string | null) =>
      value === null ? { nullValue: 'NULL_VALUE' as const } : { stringValue: value }
    return this.sql(
      `SELECT ChangeRecord FROM READ_${this.served.stream}(start_timestamp => @start, end_timestamp => @end, ` +
        'partition_token => @token, heartbeat_milliseconds => @heartbeat, read_options => NULL)',
      {
        params: {
          fields: { start: text(start), end: text(end), token: text(token), heartbeat: text(String(heartbeatMs)) },
        },
        paramTypes: {
          start: { code: 'TIMESTAMP' },
          end: { code: 'TIMESTAMP' },
          token: { code: 'STRING' },
          heartbeat: { code: 'INT64' },
        },
        ...(resumeToken && { resumeToken }),
        ...request,
      },
    )
  }

  /** What the first door returns for the same query. */
  async inProcess(query: PartitionQuery): Promise<ChangeStreamRecord[]> {
    const records: ChangeStreamRecord[] = []
    for await (const part of this.stream.client().query(query, neverAborted)) records.push(...part.records)
    return records
  }
}

async function messagesOf(call: Call): Promise<Message[]> {
  const messages: Message[] = []
  for await (const message of call) messages.push(message as Message)
  return messages
}

/** Messages until the call ends, and the code it ended with. */
async function outcome(call: Call): Promise<{ messages: Message[]; code: number }> {
  const messages: Message[] = []
  call.on('data', (message: Message) => messages.push(message))
  const code = await new Promise<number>((resolve) => {
    call.on('end', () => resolve(0))
    call.on('error', (error: { code?: number }) => resolve(error.code ?? -1))
  })
  return { messages, code }
}

function decode(messages: readonly Message[], token: string | null): ChangeStreamRecord[] {
  const assembler = new ValueAssembler()
  const values = messages.flatMap((message) => assembler.take(message))
  expect(assembler.cut).toBeUndefined()
  return values.map((value) => decodeRow(value, token ?? ''))
}

/** The size in memory does not travel. */
const withoutBytes = (records: readonly ChangeStreamRecord[]): unknown[] =>
  records.map(({ kind, record }) => ({ kind, record }))

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve))
}

describe('serveStream', () => {
  let savedDetection: string | undefined
  beforeAll(() => {
    // Otherwise the client asks the network whether it runs at Google.
    savedDetection = process.env.METADATA_SERVER_DETECTION
    process.env.METADATA_SERVER_DETECTION = 'none'
  })
  afterAll(() => {
    if (savedDetection === undefined) delete process.env.METADATA_SERVER_DETECTION
    else process.env.METADATA_SERVER_DETECTION = savedDetection
  })

  test('lets the real client read partitions to their end, values in pieces put together', async () => {
    await using scene = await Scene.open()
    let chunked = 0
    let chunkedWithToken = 0
    let severalRows = 0
    for (const { token, start, end } of scene.stream.lineage()) {
      if (end === null) continue
      const query = { token, start, end: null, heartbeatMs: 1000 }
      const messages = await messagesOf(scene.read(query))
      expect(messages.map((message) => Boolean(message.metadata))).toEqual(messages.map((_, index) => index === 0))
      expect(withoutBytes(decode(messages, token))).toEqual(withoutBytes(await scene.inProcess(query)))
      for (const { chunkedValue, resumeToken, values } of messages) {
        if (chunkedValue) chunked++
        if (chunkedValue && resumeToken!.length > 0) chunkedWithToken++
        if (values!.length > 1) severalRows++
      }
    }
    expect(chunked).toBeGreaterThan(5)
    expect(chunkedWithToken).toBeGreaterThan(0)
    expect(severalRows).toBeGreaterThan(5)
    expect(scene.served.openQueries).toBe(0)
  })

  test('answers the first query with the partitions live at its start', async () => {
    await using scene = await Scene.open()
    const query = { token: null, start: scene.start, end: null, heartbeatMs: 1000 }
    const records = decode(await messagesOf(scene.read(query)), null)
    expect(records).toEqual(await scene.inProcess(query))
  })

  test('describes its row as Spanner does', async () => {
    await using scene = await Scene.open()
    const [first] = await messagesOf(scene.read(scene.endedQuery()))
    const [field] = first!.metadata!.rowType!.fields!
    expect(field).toMatchObject({ name: 'ChangeRecord', type: { code: 'ARRAY', arrayElementType: { code: 'STRUCT' } } })
    const struct = field!.type!.arrayElementType!.structType!.fields!
    const namesOf = (index: number) =>
      struct[index]!.type!.arrayElementType!.structType!.fields!.map(({ name, type }) => `${name} ${type!.code}`)
    expect(struct.map(({ name }) => name)).toEqual([
      'data_change_record',
      'heartbeat_record',
      'child_partitions_record',
    ])
    expect(namesOf(0)).toEqual([
      'commit_timestamp TIMESTAMP',
      'record_sequence STRING',
      'server_transaction_id STRING',
      'is_last_record_in_transaction_in_partition BOOL',
      'table_name STRING',
      'column_types ARRAY',
      'mods ARRAY',
      'mod_type STRING',
      'value_capture_type STRING',
      'number_of_records_in_transaction INT64',
      'number_of_partitions_in_transaction INT64',
      'transaction_tag STRING',
      'is_system_transaction BOOL',
    ])
    expect(namesOf(1)).toEqual(['timestamp TIMESTAMP'])
    expect(namesOf(2)).toEqual(['start_timestamp TIMESTAMP', 'record_sequence STRING', 'child_partitions ARRAY'])
  })

  test('continues by any resume token, also in the middle of a value', async () => {
    await using scene = await Scene.open({ resumeTokenChance: 1 }, { chunkChance: 0.5 })
    const query = scene.endedQuery()
    const whole = await messagesOf(scene.read(query))
    const expected = decode(whole, query.token)
    for (const [index, { resumeToken }] of whole.entries()) {
      const rest = await messagesOf(scene.read({ ...query, resumeToken: resumeToken as Uint8Array }))
      expect(decode([...whole.slice(0, index + 1), ...rest], query.token)).toEqual(expected)
    }
  })

  test('sends live changes and heartbeats', async () => {
    await using scene = await Scene.open({ initialPartitions: 1 })
    const { token } = scene.stream.livePartitions()[0]!
    const call = scene.read({ token, start: scene.stream.now(), end: null, heartbeatMs: 100 })
    const seen: ChangeStreamRecord[] = []
    const assembler = new ValueAssembler()
    for await (const message of call) {
      seen.push(...assembler.take(message as Message).map((value) => decodeRow(value, token)))
      if (seen.at(-1)?.kind !== 'heartbeat') continue
      if (seen.some((entry) => entry.kind === 'data')) break
      const keys = { ItemId: String(1_000_000 + seen.length) }
      if (scene.stream.partitionOf('Items', keys) === token)
        scene.stream.commit([{ table: 'Items', op: 'insert', keys }])
    }
    call.cancel()
    expect(seen.map((entry) => entry.kind)).toContain('data')
  })

  test('ends a query at the server when the client cancels it', async () => {
    await using scene = await Scene.open()
    const call = scene.read(scene.liveQuery())
    call.on('error', () => undefined)
    call.resume()
    await until(() => scene.served.openQueries === 1)
    expect(scene.stream.openQueries).toBe(1)
    call.cancel()
    await until(() => scene.served.openQueries === 0)
    expect(scene.stream.openQueries).toBe(0)
  })

  test('reads no further than a slow client takes, and ends the rest when it cancels', async () => {
    await using scene = await Scene.open({ initialPartitions: 1, maxPartRecords: 1 })
    const { token } = scene.stream.livePartitions()[0]!
    const start = scene.stream.now()
    const Title = 'x'.repeat(100_000)
    let last = ''
    for (let i = 0; i < 200; i++) {
      const keys = { ItemId: String(2_000_000 + i) }
      if (scene.stream.partitionOf('Items', keys) === token)
        last = scene.stream.commit([{ table: 'Items', op: 'insert', keys, values: { Title } }])
    }
    expect(last).not.toBe('')
    const call = scene.read({ token, start, end: last, heartbeatMs: 1000 })
    call.on('error', () => undefined)
    await once(call, 'readable')
    // The server would be through within these turns if nothing held it back.
    for (let turn = 0; turn < 2000; turn++) await new Promise((resolve) => setImmediate(resolve))
    expect(scene.served.openQueries).toBe(1)
    call.cancel()
    await until(() => scene.served.openQueries === 0)
  })

  test.each([
    ['UNAVAILABLE', 14],
    ['RESOURCE_EXHAUSTED', 8],
    ['DATA_LOSS', 15],
  ] as [GrpcCode, number][])('ends a call with %s where a fault says so', async (code, number) => {
    await using scene = await Scene.open({ maxPartRecords: 1 }, { chunkChance: 0 })
    scene.stream.injectFaults([{ message: 3, fault: { kind: 'error', code } }])
    const result = await outcome(scene.read(scene.endedQuery()))
    expect(result.code).toBe(number)
    expect(result.messages.length).toBeLessThanOrEqual(2)
  })

  test('breaks a value in the middle where a fault says so', async () => {
    await using scene = await Scene.open({}, { chunkChance: 1 })
    scene.stream.injectFaults([{ message: 'piece', fault: { kind: 'kill-connection' } }])
    const query = scene.endedQuery()
    expect((await outcome(scene.read(query))).code).toBe(14)
    expect(scene.stream.ledger.faultCounts['kill-connection']).toBe(1)
    await messagesOf(scene.read(query))
  })

  test('ends early without child records where a fault says so', async () => {
    await using scene = await Scene.open()
    scene.stream.injectFaults([{ message: 1, fault: { kind: 'early-end' } }])
    const { messages, code } = await outcome(scene.read(scene.endedQuery()))
    expect(code).toBe(0)
    expect(decode(messages, null)).toEqual([])
  })

  test('destroys the sockets on a kill: all calls end with UNAVAILABLE, later ones succeed', async () => {
    await using scene = await Scene.open({ initialPartitions: 3 })
    for (const kill of [() => scene.stream.killConnections(), () => scene.served.killConnections()]) {
      const calls = scene.stream.livePartitions().map(({ token, start }) => {
        const call = scene.read({ token, start, end: null, heartbeatMs: 300_000 })
        const ended = new Promise<number | undefined>((resolve) => {
          call.on('error', (error: { code?: number }) => resolve(error.code))
          call.on('end', () => resolve(0))
        })
        call.resume()
        return ended
      })
      await until(() => scene.served.openQueries === calls.length)
      kill()
      for (const code of await Promise.all(calls)) expect(code).toBe(14)
      await until(() => scene.served.openQueries === 0)
      await messagesOf(scene.read(scene.endedQuery()))
    }
  })

  test('answers sessions and plain selects, and refuses what is unknown', async () => {
    await using scene = await Scene.open()
    const { client, served } = scene
    const { database } = served
    const [batch] = await client.batchCreateSessions({ database, sessionCount: 3 })
    expect(batch.session).toHaveLength(3)
    const [{ name }] = batch.session as [{ name: string }]
    expect((await client.getSession({ name }))[0].name).toBe(name)
    await client.deleteSession({ name })
    await expect(client.getSession({ name })).rejects.toMatchObject({ code: 5 })
    await expect(client.createSession({ database: `${database}x` })).rejects.toMatchObject({ code: 5 })

    const [result] = await client.executeSql({
      session: scene.session,
      sql: 'SELECT OPTION_VALUE FROM information_schema.change_stream_options WHERE OPTION_NAME = @option',
      params: { fields: { option: { stringValue: 'retention_period' } } },
      paramTypes: { option: { code: 'STRING' } },
    })
    expect(result.rows!.map((row) => row.values!.map(plain))).toEqual([['7d']])
    const streams = await messagesOf(scene.sql('SELECT change_stream_name FROM information_schema.change_streams'))
    expect(streams.flatMap((message) => message.values!.map(plain))).toEqual(['ShopChanges'])

    const query = scene.endedQuery()
    const codes: [Call, number][] = [
      [scene.sql('DROP TABLE Orders'), 12],
      [scene.read(query, { session: name }), 5],
      [scene.read(query, { sql: 'SELECT ChangeRecord FROM READ_Nope(@start, @end, @token, @heartbeat, NULL)' }), 3],
      [scene.read(query, { transaction: { begin: { readOnly: { strong: true } } } }), 3],
      [scene.read(query, { transaction: { singleUse: { readOnly: { exactStaleness: { seconds: 5 } } } } }), 3],
      [scene.read(query, { paramTypes: {} }), 3],
      [scene.read({ ...query, token: 'nobody' }), 3],
      [scene.read({ ...query, start: '2020-01-01T00:00:00Z' }), 11],
      [scene.read({ ...query, heartbeatMs: 5 }), 11],
    ]
    for (const [call, code] of codes) expect((await outcome(call)).code).toBe(code)
    expect(served.openQueries).toBe(0)
  })

  test('gives up its port and its calls on close', async () => {
    const scene = await Scene.open()
    const call = scene.read(scene.liveQuery())
    call.on('error', () => undefined)
    call.resume()
    await until(() => scene.served.openQueries === 1)
    await scene.served.close()
    expect(scene.stream.openQueries).toBe(0)
    await using again = await Scene.open({}, { port: Number(scene.served.host.split(':')[1]) })
    expect(again.served.host).toBe(scene.served.host)
    await scene.client.close()
  })
})
