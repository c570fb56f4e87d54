import { describe, expect, expectTypeOf, test } from 'vitest'
import { OperatorError } from '../../src/core/errors.ts'
import type { Operator } from '../../src/core/stage.ts'
import { type Change, changesOf, type DataChangeRecord, type Gap } from '../../src/model/data-change-record.ts'
import type { TypedChange, TypedDataChangeRecord } from '../../src/model/typed-values.ts'
import { map, typed } from '../../src/operators/index.ts'
import { operatorLaws } from '../support/operator-laws.ts'
import { collect, RecordingSource } from '../support/recording-origin.ts'
import { recordOf } from '../support/typed-samples.ts'

/** The change of one row whose values are `value`; whoever reads them calls `look` first. */
function changeOf(value: string, look: () => void = () => undefined): Change {
  const values = { Id: value }
  const record = recordOf([['Id', { code: 'INT64' }]], { keys: values, newValues: values, oldValues: {} })
  const change = changesOf(record)[0]!
  return Object.defineProperty(change, 'newValues', {
    get() {
      look()
      return values
    },
  })
}

operatorLaws('typed', {
  operator: 'typed',
  make: (probe, clock) => (source) =>
    map((value: number) => changeOf(String(value), () => probe(value)))(source).pipe(typed({ clock })),
  becomes: (value) => [value],
  read: (output) => [Number((output as TypedChange).newValues.Id)],
  maxReadAhead: 1,
  refused: [{ option: 'clok', call: () => typed({ clok: 1 } as never) }],
})

describe('typed', () => {
  const gap: Gap = { op: 'gap', partitionToken: 't', from: '2026', to: '2027' }

  test('a change has JavaScript values', async () => {
    const { stage } = new RecordingSource<Change>({ values: [changeOf('9007199254740993')] })
    const [item] = await collect(stage.pipe(typed()))
    expect(item).toMatchObject({ value: { keys: { Id: 9007199254740993n }, newValues: { Id: 9007199254740993n } } })
  })

  test('a record has JavaScript values in its mods', async () => {
    const { stage } = new RecordingSource<DataChangeRecord>({ values: [changeOf('7').record] })
    const [item] = await collect(stage.pipe(typed<DataChangeRecord>()))
    expect(item).toMatchObject({ value: { mods: [{ keys: { Id: 7n }, newValues: { Id: 7n }, oldValues: {} }] } })
  })

  test('a gap passes untouched', async () => {
    const { stage } = new RecordingSource<Change | Gap>({ values: [gap] })
    const [item] = await collect(stage.pipe(typed<Change | Gap>()))
    expect((item as { value: unknown }).value).toBe(gap)
  })

  test('P12: a value that does not fit its type says where, and not what', async () => {
    const { stage } = new RecordingSource<Change>({ values: [changeOf('secret')] })
    const error = await collect(stage.pipe(typed())).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(OperatorError)
    expect(error).toMatchObject({
      message: 'typed: a value of column "Id" of table "Orders" is no INT64',
      hint: expect.stringContaining('tx/00000001'),
      retryable: false,
    })
  })

  test('its type follows what goes in', () => {
    expectTypeOf(typed()).toEqualTypeOf<Operator<Change, TypedChange>>()
    expectTypeOf(typed<Change | Gap>()).toEqualTypeOf<Operator<Change | Gap, TypedChange | Gap>>()
    expectTypeOf(typed<DataChangeRecord>()).toEqualTypeOf<Operator<DataChangeRecord, TypedDataChangeRecord>>()
  })
})
