/** The conformance cases' server: the simulator over gRPC, one server a stream, whose partitions change each second. */
import type { Dialect, PartitionMode } from '../../src/model/change-stream.ts'
import type { ValueCaptureType } from '../../src/model/data-change-record.ts'
import { SeededRandom, SimulatedStream, serveStream } from '../../src/simulator/index.ts'
import { RawProbe } from './raw-probe.ts'
import { CAPTURES, type Site, type StreamUnderTest, streamOf, tableOf } from './site.ts'

export async function simulatorSite(dialect: Dialect, mode: PartitionMode = 'immutable'): Promise<Site> {
  const closers: (() => Promise<void>)[] = []
  const streams: [ValueCaptureType, StreamUnderTest][] = []
  for (const [seed, capture] of CAPTURES.entries()) {
    const table = tableOf(capture)
    const stream = new SimulatedStream({
      seed,
      dialect,
      mode,
      stream: streamOf(capture),
      valueCaptureType: capture,
      tables: [table],
      tieChance: 0,
    })
    stream.defineTable({
      name: table,
      columns: [
        { name: 'id', type: 'INT64', isPrimaryKey: true },
        { name: 'name', type: 'STRING' },
        { name: 'count', type: 'INT64' },
      ],
    })
    const served = await serveStream(stream)
    const probe = new RawProbe(served.host, served.database, dialect, mode)
    const random = new SeededRandom(seed)
    const churn = setInterval(() => changePartitions(stream, random), 500)
    streams.push([
      capture,
      {
        name: stream.name,
        table,
        capture,
        probe,
        start: stream.now(),
        commit: async (writes) =>
          stream.commit(writes.map(({ op, id, ...values }) => ({ table, op, keys: { id: String(id) }, values }))),
      },
    ])
    closers.push(async () => {
      clearInterval(churn)
      await probe.close()
      await served.close()
    })
  }
  return {
    dialect,
    streams: Object.fromEntries(streams) as unknown as Site['streams'],
    close: async () => {
      for (const close of closers) await close()
    },
  }
}

/** A split of one, a merge of two, a move: whatever there is room for. */
function changePartitions(stream: SimulatedStream, random: SeededRandom): void {
  const live = stream.livePartitions()
  if (live.length === 2) stream.split(live[0]!.token)
  else stream.merge(live[0]!.token, live[1]!.token)
  const last = stream.livePartitions().at(-1)!
  if (random.chance(0.7)) stream.move(last.token)
}
