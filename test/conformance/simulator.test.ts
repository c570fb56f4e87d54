/** The conformance cases on the simulator, over gRPC. */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { describeChangeStreams } from './change-stream-cases.ts'
import { codeName, dataOf } from './scene.ts'
import { simulatorSite } from './simulator-site.ts'
import type { Site, StreamUnderTest } from './site.ts'
import { walk } from './walk.ts'

describe('conformance', () => {
  beforeAll(() => {
    // The client would otherwise look for a metadata server on the network.
    vi.stubEnv('METADATA_SERVER_DETECTION', 'none')
  })
  afterAll(() => {
    vi.unstubAllEnvs()
  })

  describeChangeStreams('the simulator', ['immutable', 'mutable'], simulatorSite)

  // The rows of the table in docs/simulator.md, from the other side.
  describe('what the simulator does otherwise than the emulator', () => {
    let site: Site
    let stream: StreamUnderTest
    beforeAll(async () => {
      site = await simulatorSite('googlesql')
      stream = site.streams.OLD_AND_NEW_VALUES
    })
    afterAll(() => site.close())

    test('it puts each key into the partition that holds its range', async () => {
      const ids = Array.from({ length: 40 }, (_, id) => id)
      const time = await stream.commit(ids.map((id) => ({ op: 'insert', id })))
      const { partitions } = await walk({ ...stream, start: time }, time, 1000)
      const busy = [...partitions.values()].filter(({ records }) => dataOf(records).length > 0)
      expect(busy.length).toBeGreaterThan(1)
      const keys = busy.flatMap(({ records }) => dataOf(records).flatMap(({ mods }) => mods.map(({ keys }) => keys.id)))
      expect(keys.toSorted()).toEqual(ids.map(String).toSorted())
    })

    test('it wants a type for every parameter, as readers of the service have found', async () => {
      const { start } = stream
      const { code } = await stream.probe.read(stream.name, { start, end: start, token: { value: null } })
      expect(codeName(code)).toBe('INVALID_ARGUMENT')
    })

    test('it lists every option, those that were not set with their defaults', async () => {
      const sql = 'SELECT option_name, option_value FROM information_schema.change_stream_options'
      const { rows } = await stream.probe.query(sql)
      expect(rows).toEqual([
        ['retention_period', '7d'],
        ['value_capture_type', 'OLD_AND_NEW_VALUES'],
        ['partition_mode', 'IMMUTABLE_KEY_RANGE'],
      ])
    })
  })
})
