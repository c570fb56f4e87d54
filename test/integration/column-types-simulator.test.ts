/** What the emulator cannot show: every column type in both dialects and modes, from the simulator over gRPC. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Sink } from '../../src/core/types.ts'
import type { Dialect, PartitionMode } from '../../src/model/change-stream.ts'
import type { TypedChange } from '../../src/model/typed-values.ts'
import { typed } from '../../src/operators/index.ts'
import { definePipeline, runPipeline } from '../../src/runtime/index.ts'
import { SimulatedStream, serveStream } from '../../src/simulator/index.ts'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { memoryPartitionStore } from '../../src/stores/index.ts'
import { EVERY_TYPE } from '../support/typed-samples.ts'

const KINDS: readonly (readonly [Dialect, PartitionMode])[] = [
  ['googlesql', 'immutable'],
  ['googlesql', 'mutable'],
  ['postgresql', 'immutable'],
  ['postgresql', 'mutable'],
]

describe.each(KINDS)('over gRPC, %s, %s', (dialect, mode) => {
  test('P1: values of every type arrive exact, under keys named as parts of JavaScript objects', async () => {
    const stream = new SimulatedStream({ seed: SEED, dialect, mode })
    const [proto, maker] = ['__proto__', 'constructor']
    stream.defineTable({
      name: 'T',
      columns: [
        { name: proto, type: 'INT64', isPrimaryKey: true },
        { name: maker, type: 'STRING', isPrimaryKey: true },
        ...EVERY_TYPE.map(({ type }, index) => ({ name: `c${index}`, type })),
      ],
    })
    const columns = EVERY_TYPE.map(({ samples }) => fc.sample(samples, { seed: SEED, numRuns: ROWS }))
    const rows = Array.from({ length: ROWS }, (_, row) => columns.map((values) => values[row]!))
    for (const [row, cells] of rows.entries()) {
      const keys = Object.fromEntries([[proto, String(MAX_INT64 - BigInt(row))] as const, [maker, 'k'] as const])
      const values = Object.fromEntries(cells.map(({ wire }, index) => [`c${index}`, wire]))
      stream.commit([{ table: 'T', op: 'insert', keys, values }])
    }
    const changes = (await readAll(stream, 0.3)).toSorted((a, b) => (idOf(a) > idOf(b) ? -1 : 1))
    expect(changes.map(({ keys }) => Object.entries(keys).toSorted())).toEqual(
      rows.map((_, row) => [
        [proto, MAX_INT64 - BigInt(row)],
        [maker, 'k'],
      ]),
    )
    for (const [row, { newValues }] of changes.entries()) {
      for (const [index, { value, wire }] of rows[row]!.entries()) {
        expect(newValues[`c${index}`], `column ${index}: ${String(wire)}`).toStrictEqual(value)
      }
    }
  })

  test.each([0, 1])('P1: a record over 4 MiB is read whole (in pieces: %i)', async (chunkChance) => {
    const stream = new SimulatedStream({ seed: SEED, dialect, mode })
    stream.defineTable({
      name: 'T',
      columns: [
        { name: 'Id', type: 'INT64', isPrimaryKey: true },
        { name: 'Text', type: 'STRING' },
      ],
    })
    // Two bytes a letter in UTF-8: cut anywhere, a letter may lie on the border.
    const Text = 'ä'.repeat(2_600_000)
    stream.commit([{ table: 'T', op: 'insert', keys: { Id: '1' }, values: { Text } }])
    const changes = await readAll(stream, chunkChance)
    expect(changes.map(({ newValues }) => newValues.Text === Text)).toEqual([true])
  })
})

/** Everything that was committed, through the real client and `typed()`. */
async function readAll(stream: SimulatedStream, chunkChance: number): Promise<TypedChange[]> {
  const changes: TypedChange[] = []
  const sink: Sink<TypedChange> = {
    name: 'list',
    async write(items) {
      changes.push(...items)
    },
    close: () => Promise.resolve(),
  }
  const { host: emulatorHost, database, close } = await serveStream(stream, { chunkChance })
  try {
    const [start, end] = [stream.createdAt, stream.now()]
    const source = spannerChangeStream({ database, stream: stream.name, start, end, heartbeatMs: 100, emulatorHost })
    await runPipeline(definePipeline({ source, steps: (s) => s.pipe(typed()), sink, store: memoryPartitionStore() }))
    return changes
  } finally {
    await close()
  }
}

function idOf({ keys }: TypedChange): bigint {
  return Object.entries(keys).find(([name]) => name === '__proto__')![1] as bigint
}

const SEED = 1118
const ROWS = 60
const MAX_INT64 = 2n ** 63n - 1n
