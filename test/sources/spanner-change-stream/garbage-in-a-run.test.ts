import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { systemClock } from '../../../src/core/clock.ts'
import { SeededRandom } from '../../../src/simulator/index.ts'
import type { SpannerChangeStreamClient } from '../../../src/sources/spanner-change-stream/connection/spanner-client.ts'
import { memoryPartitionStore, type PartitionStore } from '../../../src/stores/index.ts'
import { type RawCall, RawSpannerServer } from '../../support/raw-spanner-server.ts'
import type { RandomData } from './decode/random-results.ts'
import { DOCUMENTED_ORDER, structType, toStruct } from './decode/record-forms.ts'
import { metadataBytes, resultBytes, type Wire } from './decode/wire-writer.ts'
import { at, Probe } from './scripted-stream.ts'

const order = DOCUMENTED_ORDER
const random = new SeededRandom(1)

const record = (nanos: number, name: string, modType = 'INSERT'): Wire => {
  const data: RandomData = {
    kind: 'data',
    time: at(nanos),
    sequence: '00000000',
    transaction: name,
    isLast: true,
    table: 'Orders',
    capture: 'NEW_VALUES',
    columns: [],
    mods: [{ keys: `{"Id":"${name}"}`, newValues: '{"Note":"PLANTED"}', oldValues: null }],
    modType,
    records: 1,
    partitions: 1,
    tag: '',
    isSystem: false,
  }
  return toStruct(data, order, random)
}

const roots = toStruct(
  { kind: 'children', time: at(0), sequence: '0', children: [{ token: 'a', parents: [] }] },
  order,
  random,
)

let server: RawSpannerServer
let middle: Wire
let store: PartitionStore
let delivered: PromiseWithResolvers<void>
const clients: SpannerChangeStreamClient[] = []

/** Three records, the second as the test says; each in a message of its own. */
function answer(call: RawCall, token: string | null): void {
  const metadata = metadataBytes(structType(order))
  if (token === null) {
    call.write(resultBytes({ metadata, values: [roots] }))
    call.end()
    return
  }
  call.write(resultBytes({ metadata, values: [record(10, 'first')] }))
  // Not before the first one is settled, so that the stop has something to keep.
  void delivered.promise.then(() => {
    call.write(resultBytes({ values: [middle] }))
    call.write(resultBytes({ values: [record(30, 'third')] }))
  })
}

function run(): Probe {
  const client = server.client()
  clients.push(client)
  return new Probe(systemClock, client, { store })
}

beforeEach(async () => {
  store = memoryPartitionStore()
  delivered = Promise.withResolvers()
  server = await RawSpannerServer.start({ answer })
})
afterEach(async () => {
  for (const client of clients.splice(0)) await client.close()
  await server[Symbol.asyncDispose]()
})

describe('a garbage record in the middle of a partition', () => {
  test.each<[string, string, Wire]>([
    ['an unknown kind of change', 'mod_type', record(20, 'second', 'UPSERT')],
    ['a value that is not a record', 'ChangeRecord', 'PLANTED'],
    ['a record of no known kind', 'ChangeRecord', [[[], [], []]]],
    ['bytes that are no value', 'the message is not valid', { bytes: Buffer.from([0x32, 0x7f, 0x01]) }],
  ])('P2: %s stops the run there, and a restart comes to the same record', async (_, field, garbage) => {
    middle = garbage
    for (let start = 0; start < 2; start++) {
      const probe = run()
      if (start === 0) probe.until(() => probe.taken.length > 0).then(delivered.resolve, delivered.reject)
      const error: unknown = await probe.ended.catch((thrown: unknown) => thrown)
      expect(error).toMatchObject({ name: 'SourceError', code: 'SOURCE_MALFORMED', partition: 'a', retryable: false })
      expect((error as Error).message).toContain(`documented form: ${field}`)
      expect(`${(error as Error).message} ${String((error as Error).cause)}`).not.toContain('PLANTED')
      expect(probe.ids).toEqual(start === 0 ? ['first'] : [])
      const partition = await (await probe.table()).get('a')
      expect(partition!.state).not.toBe('FINISHED')
      expect(partition!.watermark <= at(20)).toBe(true)
      await probe.run.close()
    }
    // As soon as the record is readable, the run goes on with it.
    middle = record(20, 'second')
    const probe = run()
    await probe.until(() => probe.taken.length > 1)
    expect(probe.ids).toEqual(['second', 'third'])
    await probe.run.close()
  })
})
