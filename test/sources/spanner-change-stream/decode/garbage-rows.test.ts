import { describe, expect, test } from 'vitest'
import { SourceError } from '../../../../src/core/errors.ts'
import type { Dialect, PartitionMode } from '../../../../src/model/change-stream.ts'
import type { ChangeStreamRecord } from '../../../../src/model/data-change-record.ts'
import { SeededRandom } from '../../../../src/simulator/index.ts'
import { PartialResults } from '../../../../src/sources/spanner-change-stream/decode/partial-results.ts'
import { RecordCaches } from '../../../../src/sources/spanner-change-stream/decode/record-caches.ts'
import { RecordStream } from '../../../../src/sources/spanner-change-stream/decode/record-stream.ts'
import { MARKER, mutateBytes, mutateFields, mutateJson, mutateText, mutateWire } from './mutate-results.ts'
import { toProto } from './proto-forms.ts'
import { jsonText, type RandomRecord, randomMessages, randomRecord, times } from './random-results.ts'
import { DOCUMENTED_ORDER, FIELDS, randomOrder, structType, toJson, toStruct } from './record-forms.ts'
import { referenceDecode } from './reference-decoder.ts'
import { canonical, withoutBytes } from './reference-values.ts'
import { lengthed, metadataBytes, resultBytes, type Wire, type WireType } from './wire-writer.ts'

interface Garbage {
  readonly messages: Buffer[]
  /** Whether the messages themselves are whole, so that protobufjs reads them as we do. */
  readonly isWellFormed: boolean
}

interface Form {
  readonly name: string
  readonly dialect: Dialect
  readonly mode: PartitionMode
  readonly inputs: number
  /** Fields that refusals must have named in the end: the garbage reaches them all. */
  readonly fields: readonly string[]
  make(random: SeededRandom): Garbage
}

/** Both dialects send the same messages, under another type. */
const PROTO: Omit<Form, 'name' | 'dialect' | 'make'> = {
  mode: 'mutable',
  inputs: 3000,
  fields: [
    'ChangeRecord',
    'commit_timestamp',
    'mod_type',
    'value_capture_type',
    'keys',
    'new_values',
    'old_values',
    'column_metadata.name',
    'partition_tokens',
  ],
}

function makeProto(type: WireType, random: SeededRandom): Garbage {
  const values: Wire[] = records(random).map((record) => {
    const bytes = toProto(record, random)
    const change = random.next()
    if (change < 0.3) return mutateBytes(bytes, random).toString('base64')
    if (change < 0.6) return mutateFields(bytes, random).toString('base64')
    // Inside of the record: the tag and the length of the outer message are written anew.
    if (change < 0.9) return lengthed(bytes[0]! >> 3, mutateFields(contentsOf(bytes), random)).toString('base64')
    return mutateWire(bytes.toString('base64'), random)
  })
  // Broken fields are no matter for protobufjs, which reads them whatever their wire type says.
  return { ...send(random, type, values, random.chance(0.2)), isWellFormed: false }
}

const FORMS: readonly Form[] = [
  {
    name: 'structs',
    dialect: 'googlesql',
    mode: 'immutable',
    inputs: 4000,
    fields: [
      'ChangeRecord',
      ...FIELDS.record,
      ...FIELDS.data,
      ...FIELDS.mod,
      ...FIELDS.columnType.map((name) => `column_types.${name}`),
      ...FIELDS.children,
      ...FIELDS.child,
      'timestamp',
    ],
    make(random) {
      const order = random.chance(0.7) ? DOCUMENTED_ORDER : randomOrder(random)
      const values = records(random).map((record) => toStruct(record, order, random))
      const at = random.int(values.length)
      if (random.chance(0.7)) values[at] = mutateWire(values[at]!, random)
      return send(random, structType(order), values, random.chance(0.35))
    },
  },
  {
    name: 'JSON',
    dialect: 'postgresql',
    mode: 'immutable',
    inputs: 3000,
    fields: ['ChangeRecord', ...FIELDS.record, ...FIELDS.data, ...FIELDS.child, 'keys', 'timestamp'],
    make(random) {
      const values = records(random).map((record) => toJson(record, random))
      const at = random.int(values.length)
      if (random.chance(0.6)) values[at] = JSON.stringify(mutateJson(JSON.parse(values[at]!), random))
      else if (random.chance(0.5)) values[at] = mutateText(values[at]!, random)
      return send(random, 'JSON', values, random.chance(0.2))
    },
  },
  { ...PROTO, name: 'protobuf messages', dialect: 'googlesql', make: (random) => makeProto('PROTO', random) },
  {
    ...PROTO,
    name: 'protobuf messages as bytes',
    dialect: 'postgresql',
    make: (random) => makeProto('BYTES', random),
  },
]

function records(random: SeededRandom): RandomRecord[] {
  return times(1 + random.int(3), () => {
    const record = randomRecord(random)
    if (record.kind !== 'data') return record
    const mods = [
      ...record.mods,
      { keys: jsonText([['Id', MARKER]]), newValues: jsonText([['Name', [MARKER]]]), oldValues: '{}' },
    ]
    return { ...record, mods, tag: MARKER }
  })
}

/** The contents of a message with one field. */
function contentsOf(bytes: Buffer): Buffer {
  let at = 1
  while (bytes[at]! >= 0x80) at++
  return bytes.subarray(at + 1)
}

function send(random: SeededRandom, type: WireType, values: readonly Wire[], isBroken: boolean): Garbage {
  let messages = randomMessages(random, metadataBytes(type), values).map((message) => resultBytes(message))
  if (!isBroken) return { messages, isWellFormed: true }
  const at = random.int(messages.length)
  if (random.chance(0.2)) messages = messages.toSpliced(at, 1)
  else if (random.chance(0.1)) messages = messages.toSpliced(at, 0, messages[at]!)
  else messages = messages.with(at, mutateBytes(messages[at]!, random))
  return { messages, isWellFormed: false }
}

type Outcome = { readonly records: ChangeStreamRecord[] } | { readonly error: SourceError }

function decode(messages: readonly Buffer[], dialect: Dialect, mode: PartitionMode, caches: RecordCaches): Outcome {
  const stream = new RecordStream(dialect, mode, 'the-token', caches)
  const records: ChangeStreamRecord[] = []
  try {
    for (const message of messages) {
      records.push(...stream.take([message]).records)
      stream.assertWell()
    }
    stream.end()
    return { records }
  } catch (error) {
    if (!(error instanceof SourceError)) throw error
    return { error }
  }
}

/** Everything that an error says, its causes too. */
function textOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return `${error.message}\n${(error as { hint?: string }).hint ?? ''}\n${error.stack}\n${error.cause === undefined ? '' : textOf(error.cause)}`
}

/** How many whole values the messages hold. */
function valueCount(messages: readonly Buffer[]): number {
  const results = new PartialResults()
  let count = 0
  for (const message of messages) results.take(message, () => count++)
  return count
}

/** Undefined if the reference refuses them; 'too deep' if protobufjs gives up on what nobody would have read. */
function reference(
  messages: readonly Buffer[],
  dialect: Dialect,
  mode: PartitionMode,
): unknown[] | 'too deep' | undefined {
  try {
    const { records, unfinished } = referenceDecode(messages, dialect, mode, 'the-token')
    return unfinished ? undefined : [...records]
  } catch (error) {
    return String(error).includes('nesting depth') ? 'too deep' : undefined
  }
}

describe('more than 10,000 inputs of garbage are read as the reference says, or refused with partition and field', () => {
  test.each(FORMS)('$name', ({ dialect, mode, inputs, fields, make }) => {
    const caches = new RecordCaches()
    const refused = new Map<string, number>()
    let accepted = 0
    for (let input = 0; input < inputs; input++) {
      const label = `${dialect} ${mode} input ${input} of seed ${SEED}`
      const { messages, isWellFormed } = make(new SeededRandom(`${SEED}/${mode}/${dialect}/${input}`))
      const outcome = decode(messages, dialect, mode, caches)
      if ('records' in outcome) {
        accepted++
        expect(outcome.records.length, label).toBeGreaterThanOrEqual(valueCount(messages))
        if (mode === 'mutable') expect(outcome.records, label).toHaveLength(valueCount(messages))
        const expected = reference(messages, dialect, mode)
        if (isWellFormed && expected !== 'too deep')
          expect(canonical(withoutBytes(outcome.records)), label).toBe(canonical(expected))
        continue
      }
      const { error } = outcome
      if (error.retryable) {
        // The query ended in the middle of a value: it is read again.
        expect(error, label).toMatchObject({ code: 'SOURCE_READ', partition: 'the-token' })
        expect(error.message, label).toContain('ended in the middle of a change record')
        continue
      }
      expect(error, label).toMatchObject({ code: 'SOURCE_MALFORMED', partition: 'the-token', retryable: false })
      expect(error.hint, label).toBeTruthy()
      expect(textOf(error), label).not.toContain(MARKER)
      const said = /documented form: (the message is not valid|the metadata of the result|a value|[\w.]+) /.exec(
        error.message,
      )
      expect(said, `${label}: ${error.message}`).not.toBeNull()
      refused.set(said![1]!, (refused.get(said![1]!) ?? 0) + 1)
      // What the reference reads whole must not be refused.
      if (isWellFormed) {
        expect([undefined, 'too deep'], `${label}: ${error.message}`).toContain(reference(messages, dialect, mode))
      }
    }
    console.log(
      `garbage: ${accepted} of ${inputs} inputs accepted, seed ${SEED}; refused: ${JSON.stringify(Object.fromEntries(refused))}`,
    )
    expect(accepted).toBeGreaterThan(inputs / 20)
    // With another seed a rare field may have been spared.
    if (SEED === STANDING_SEED)
      expect([...refused.keys()]).toEqual(expect.arrayContaining([...fields, 'the message is not valid']))
  })
})

describe('P7: five million levels of JSON', () => {
  const deep = '['.repeat(5_000_000) + ']'.repeat(5_000_000)
  const decodeText = (json: string): Outcome =>
    decode(
      [resultBytes({ metadata: metadataBytes('JSON'), values: [json] })],
      'postgresql',
      'immutable',
      new RecordCaches(),
    )

  test('as a record are refused', () => {
    expect(decodeText(deep)).toMatchObject({ error: { code: 'SOURCE_MALFORMED' } })
  })

  test('in a field that nobody reads are passed over', () => {
    const json = `{"heartbeat_record":{"timestamp":"2026-11-18T09:30:00Z","new_field":${deep}}}`
    expect(decodeText(json)).toMatchObject({ records: [{ kind: 'heartbeat' }] })
  })
})

const STANDING_SEED = 1118
const SEED = Number(process.env.MILLRACE_FUZZ_SEED ?? STANDING_SEED)
