/** Both dialects and both modes over gRPC, decoded by the rules of the API's documentation. */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import type { PartitionQuery } from '../../src/model/change-stream.ts'
import type { ChangeStreamRecord } from '../../src/model/data-change-record.ts'
import { randomWorkload, type ServedStream, SimulatedStream, serveStream } from '../../src/simulator/index.ts'
import { bindings, RawProbe, readCall } from '../conformance/raw-probe.ts'
import { collect } from './patient-reader.ts'
import { decodeJsonRow, decodeProtoRow, decodeRow } from './wire-decoder.ts'

const COMBINATIONS = [
  ['googlesql', 'immutable', decodeRow, 'ARRAY'],
  ['googlesql', 'mutable', decodeProtoRow, 'PROTO'],
  ['postgresql', 'immutable', decodeJsonRow, 'JSON'],
  ['postgresql', 'mutable', decodeProtoRow, 'BYTES'],
] as const

beforeAll(() => {
  vi.stubEnv('METADATA_SERVER_DETECTION', 'none')
})
afterAll(() => {
  vi.unstubAllEnvs()
})

describe.each(COMBINATIONS)('serveStream in %s with %s key ranges', (dialect, mode, decode, code) => {
  let stream: SimulatedStream
  let served: ServedStream
  let probe: RawProbe

  beforeAll(async () => {
    stream = new SimulatedStream({ seed: 7, dialect, mode, latencyMs: [0, 0] })
    await randomWorkload(stream, { seed: 7, transactions: 150, pauseMs: 0, topologyChance: 0.1 })
    served = await serveStream(stream, { chunkChance: 0.3 })
    probe = new RawProbe(served.host, served.database, dialect)
  })
  afterAll(async () => {
    await probe.close()
    await served.close()
  })

  const over = async ({ token, start, end, heartbeatMs }: PartitionQuery): Promise<ChangeStreamRecord[]> => {
    const given = { start, heartbeat: heartbeatMs, ...(end !== null && { end }), ...(token !== null && { token }) }
    const { code: status, fields, values } = await probe.query(readCall(dialect, stream.name, mode), bindings(given))
    expect(status).toBe(0)
    expect(fields.map(({ type }) => String(type.code))).toEqual([code])
    return values.map((value) => decode(value, token ?? ''))
  }

  test('every partition says the same through both doors', async () => {
    const end = stream.now()
    const kinds = new Set<string>()
    for (const { token, start } of [{ token: null, start: stream.createdAt }, ...stream.lineage()]) {
      const query = { token, start, end, heartbeatMs: 100_000 }
      const expected = await collect(stream.client(), query)
      for (const { kind } of expected) kinds.add(kind)
      expect(withoutBytes(await over(query))).toEqual(withoutBytes(expected))
    }
    expect([...kinds].toSorted()).toEqual(mode === 'mutable' ? ['data', 'end', 'event', 'start'] : ['children', 'data'])
  })

  test('the information schema tells the mode', async () => {
    const sql = "SELECT option_value FROM information_schema.change_stream_options WHERE option_name = 'partition_mode'"
    expect((await probe.query(sql)).rows).toEqual([[`${mode.toUpperCase()}_KEY_RANGE`]])
  })
})

/** The size in memory does not travel; objects without a prototype compare as plain ones. */
function withoutBytes(records: readonly ChangeStreamRecord[]): unknown {
  return JSON.parse(JSON.stringify(records.map(({ kind, record }) => ({ kind, record }))))
}
