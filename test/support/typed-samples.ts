/** Values of every column type: as on the wire, and as JavaScript values. */
import fc from 'fast-check'
import { timestampFromNanos } from '../../src/model/commit-timestamp.ts'
import type { ColumnType, ColumnTypeCode, DataChangeRecord, Mod } from '../../src/model/data-change-record.ts'

/** A value, and the way the service writes it. */
interface Sample {
  readonly wire: unknown
  readonly value: unknown
}

interface SampledType {
  readonly type: ColumnTypeCode
  readonly samples: fc.Arbitrary<Sample>
}

const same = (wire: unknown): Sample => ({ wire, value: wire })
const digits = (length: number): fc.Arbitrary<string> => fc.stringMatching(new RegExp(`^\\d{1,${length}}$`))
const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })
const bytes = fc.uint8Array({ maxLength: 40 }).map((value) => {
  const buffer = Buffer.from(value)
  return { wire: buffer.toString('base64'), value: buffer }
})
const float = (numbers: fc.Arbitrary<number>): fc.Arbitrary<Sample> =>
  numbers.map((value) => ({ wire: Number.isFinite(value) ? value : String(value), value }))
const { json } = fc.letrec<{ json: unknown; leaf: unknown }>((tie) => ({
  leaf: fc.oneof(
    fc.constantFrom(null, true, false, '', 1.5, 1e300, -1e-7),
    fc.string({ unit: 'binary' }),
    fc.maxSafeInteger().map((value) => value || 0),
    fc.bigInt({ min: 2n ** 53n, max: 2n ** 64n }),
    fc.bigInt({ min: -(2n ** 63n), max: -(2n ** 53n) }),
  ),
  json: fc.oneof(
    { maxDepth: 3 },
    tie('leaf'),
    fc.array(tie('json'), { maxLength: 4 }),
    fc.dictionary(fc.string(), tie('json'), { maxKeys: 4, noNullPrototype: true }),
  ),
}))
const jsonText = json.map((value) => ({ wire: wireText(value), value }))

/** Types without ARRAY. */
const SCALARS: readonly SampledType[] = [
  { type: { code: 'BOOL' }, samples: fc.boolean().map(same) },
  { type: { code: 'INT64' }, samples: int64.map((value) => ({ wire: String(value), value })) },
  {
    type: { code: 'INT64', type_annotation: 'PG_OID' },
    samples: fc.bigInt({ min: 0n, max: 2n ** 32n - 1n }).map((value) => ({ wire: String(value), value })),
  },
  { type: { code: 'FLOAT32' }, samples: float(fc.float()) },
  { type: { code: 'FLOAT64' }, samples: float(fc.double()) },
  { type: { code: 'STRING' }, samples: fc.string({ unit: 'binary' }).map(same) },
  { type: { code: 'BYTES' }, samples: bytes },
  { type: { code: 'PROTO', proto_type_fqn: 'shop.Item' }, samples: bytes },
  {
    type: { code: 'TIMESTAMP' },
    samples: fc
      .bigInt({ min: -62_135_596_800n * 10n ** 9n, max: 253_402_300_800n * 10n ** 9n - 1n })
      .map(timestampFromNanos)
      // Zeros at the end of the fraction are left out on the wire.
      .map((value) => ({ wire: value.replace(/\.?0+Z$/, 'Z'), value })),
  },
  {
    type: { code: 'DATE' },
    samples: fc
      .date({ min: new Date('0001-01-01'), max: new Date('9999-12-31'), noInvalidDate: true })
      .map((date) => same(date.toISOString().slice(0, 10))),
  },
  {
    type: { code: 'NUMERIC' },
    samples: fc.tuple(fc.constantFrom('', '-'), digits(29), digits(9)).map(([sign, a, b]) => same(`${sign}${a}.${b}`)),
  },
  {
    type: { code: 'NUMERIC', type_annotation: 'PG_NUMERIC' },
    samples: fc.oneof(fc.constant('NaN'), digits(200)).map(same),
  },
  { type: { code: 'JSON' }, samples: jsonText },
  { type: { code: 'JSON', type_annotation: 'PG_JSONB' }, samples: jsonText },
  { type: { code: 'UUID' }, samples: fc.uuid().map(same) },
  {
    type: { code: 'INTERVAL' },
    samples: fc.constantFrom('P1Y2M3DT4H5M6.789S', 'P0Y', 'PT-1.5S', 'P-10000Y').map(same),
  },
  {
    type: { code: 'ENUM', proto_type_fqn: 'shop.Kind' },
    samples: fc.integer().map((value) => ({ wire: String(value), value })),
  },
]

const ARRAYS: readonly SampledType[] = SCALARS.map(({ type, samples }) => ({
  type: { code: 'ARRAY', array_element_type: type },
  samples: fc
    .array(fc.option(samples, { nil: same(null) }), { maxLength: 5 })
    .map((items) => ({ wire: items.map(({ wire }) => wire), value: items.map(({ value }) => value) })),
}))

export const EVERY_TYPE: readonly SampledType[] = [...SCALARS, ...ARRAYS]

/** A value as Spanner writes it in JSON. JSON.stringify would lose the sign of zero, and refuses a bigint. */
export function wireText(wire: unknown): string {
  if (typeof wire === 'bigint') return String(wire)
  if (Array.isArray(wire)) return `[${wire.map(wireText).join()}]`
  if (typeof wire === 'object' && wire !== null) {
    return `{${Object.entries(wire).map(([key, value]) => `${JSON.stringify(key)}:${wireText(value)}`)}}`
  }
  return Object.is(wire, -0) ? '-0.0' : JSON.stringify(wire)
}

/** A record of one table with these columns; the first is the key. */
export function recordOf(columns: readonly (readonly [string, ColumnTypeCode])[], ...mods: Mod[]): DataChangeRecord {
  return {
    partitionToken: 'token',
    commitTimestamp: '2026-01-02T03:04:05.123456789Z',
    recordSequence: '00000001',
    serverTransactionId: 'tx',
    isLastRecordInTransactionInPartition: true,
    tableName: 'Orders',
    valueCaptureType: 'OLD_AND_NEW_VALUES',
    columnTypes: columns.map(
      ([name, type], index): ColumnType => ({ name, type, isPrimaryKey: index === 0, ordinalPosition: index + 1 }),
    ),
    mods,
    modType: 'UPDATE',
    numberOfRecordsInTransaction: 1,
    numberOfPartitionsInTransaction: 1,
    transactionTag: '',
    isSystemTransaction: false,
  }
}
