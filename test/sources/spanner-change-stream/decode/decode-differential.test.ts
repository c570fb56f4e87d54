import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Dialect, PartitionMode } from '../../../../src/model/change-stream.ts'
import type { ChangeStreamRecord } from '../../../../src/model/data-change-record.ts'
import { SeededRandom } from '../../../../src/simulator/index.ts'
import { RecordCaches } from '../../../../src/sources/spanner-change-stream/decode/record-caches.ts'
import { RecordStream } from '../../../../src/sources/spanner-change-stream/decode/record-stream.ts'
import { toProto } from './proto-forms.ts'
import { randomMessages, randomRecord, randomSprinkle, times } from './random-results.ts'
import { DOCUMENTED_ORDER, randomOrder, structType, toJson, toStruct } from './record-forms.ts'
import { referenceDecode } from './reference-decoder.ts'
import { canonical, withoutBytes } from './reference-values.ts'
import { metadataBytes, resultBytes, type Wire, type WireType } from './wire-writer.ts'

interface Form {
  readonly name: string
  readonly dialect: Dialect
  readonly mode: PartitionMode
  readonly runs: number
  write(random: SeededRandom): { readonly type: WireType; readonly values: Wire[] }
}

const FORMS: readonly Form[] = [
  {
    name: 'structs',
    dialect: 'googlesql',
    mode: 'immutable',
    runs: 1500,
    write(random) {
      const order = random.chance(0.3) ? DOCUMENTED_ORDER : randomOrder(random)
      return { type: structType(order), values: records(random).map((record) => toStruct(record, order, random)) }
    },
  },
  {
    name: 'JSON',
    dialect: 'postgresql',
    mode: 'immutable',
    runs: 700,
    write: (random) => ({ type: 'JSON', values: records(random).map((record) => toJson(record, random)) }),
  },
  {
    name: 'protobuf messages',
    dialect: 'googlesql',
    mode: 'mutable',
    runs: 900,
    write: (random) => ({ type: 'PROTO', values: protoValues(random) }),
  },
  {
    name: 'protobuf messages as bytes',
    dialect: 'postgresql',
    mode: 'mutable',
    runs: 300,
    write: (random) => ({ type: 'BYTES', values: protoValues(random) }),
  },
]

function records(random: SeededRandom): ReturnType<typeof randomRecord>[] {
  return times(random.chance(0.05) ? 60 : 1 + random.int(6), () => randomRecord(random))
}

function protoValues(random: SeededRandom): Wire[] {
  return records(random).map((record) =>
    toProto(record, random, randomSprinkle(random, random.pick([0, 0.2]))).toString('base64'),
  )
}

describe('RecordStream decodes any result as protobufjs and a plain walk do', () => {
  test.each(FORMS)('$name', ({ dialect, mode, runs, write }) => {
    // One set of caches for all runs: what one result leaves behind must never show in the next.
    const caches = new RecordCaches()
    let decoded = 0
    let cut = 0
    fc.assert(
      fc.property(fc.integer({ min: 0 }), (seed) => {
        const random = new SeededRandom(seed)
        const { type, values } = write(random)
        const sprinkle = randomSprinkle(random, random.pick([0, 0, 0.02, 0.3]))
        const sent = randomMessages(random, metadataBytes(type, sprinkle), values)
        const messages = sent.map((message) => resultBytes(message, sprinkle))
        const expected = referenceDecode(messages, dialect, mode, 'token')
        expect(expected.unfinished).toBe(false)
        expect(expected.records).toHaveLength(values.length)

        const stream = new RecordStream(dialect, mode, 'token', caches)
        const found: ChangeStreamRecord[] = []
        for (let from = 0; from < messages.length; ) {
          const to = from + 1 + random.int(3)
          const part = stream.take(messages.slice(from, to))
          found.push(...part.records)
          const last = sent.slice(from, to).at(-1)!
          if (part.resumeToken !== undefined) expect(part.resumeToken).toEqual(last.resumeToken)
          else if (last.resumeToken?.length && !last.isChunked) expect(cutAt(sent, to)).toBe(true)
          if (cutAt(sent, to)) expect(part.resumeToken).toBeUndefined()
          from = to
        }
        expect(canonical(withoutBytes(found))).toBe(canonical(expected.records))
        decoded += found.length
        cut += sent.filter(({ isChunked }) => isChunked).length
      }),
      { numRuns: runs, seed: SEED },
    )
    console.log(`differential: ${decoded} records and ${cut} cuts in ${runs} results, seed ${SEED}`)
    expect(cut).toBeGreaterThan(runs / 4)
  })
})

/** Whether the last value that was sent before message `index` still waits for its rest. */
function cutAt(
  sent: readonly { readonly values?: readonly Wire[]; readonly isChunked?: boolean }[],
  index: number,
): boolean {
  const last = sent.slice(0, index).findLast(({ values = [] }) => values.length > 0)
  return last?.isChunked === true
}

const SEED = Number(process.env.MILLRACE_FUZZ_SEED ?? 1118)
