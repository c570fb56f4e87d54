import { describe, expect, test } from 'vitest'
import { MOD_FIELDS } from '../../../../src/sources/spanner-change-stream/decode/record-layout.ts'
import { NO_VALUES } from '../../../../src/sources/spanner-change-stream/decode/record-values.ts'
import { type ModDraft, RowBatch } from '../../../../src/sources/spanner-change-stream/decode/row-batch.ts'

const NEW_VALUES = MOD_FIELDS.indexOf('new_values')

const batchOf = (texts: readonly string[]): { readonly batch: RowBatch; readonly mods: ModDraft[] } => {
  const batch = new RowBatch()
  const mods = texts.map((text, record) => {
    batch.record = record
    return add(batch, NEW_VALUES, text)
  })
  return { batch, mods }
}

/** As it lies in a message: with something before and behind it. */
function add(batch: RowBatch, field: number, text: string): ModDraft {
  const mod = { keys: NO_VALUES, newValues: NO_VALUES, oldValues: NO_VALUES }
  const bytes = Buffer.from(`«${text}»`)
  batch.add(field, bytes, 2, bytes.length - 2, mod)
  return mod
}

describe('RowBatch', () => {
  test('fills each row into its own mod and side', () => {
    const batch = new RowBatch()
    const mods = MOD_FIELDS.map((field, index) => add(batch, index, `{"side":"${field}"}`))
    expect(batch.flush()).toBeUndefined()
    expect(mods).toEqual([
      { keys: { side: 'keys' }, newValues: {}, oldValues: {} },
      { keys: {}, newValues: { side: 'new_values' }, oldValues: {} },
      { keys: {}, newValues: {}, oldValues: { side: 'old_values' } },
    ])
  })

  test('P1: more rows than it holds at a time, small and large ones, all come to their mods', () => {
    const texts = Array.from(
      { length: 5_000 },
      (_, i) => `{"n":"${i}","text":"${'ä'.repeat(i % 97 === 0 ? 9_000 : i % 60)}"}`,
    )
    const { batch, mods } = batchOf(texts)
    expect(batch.flush()).toBeUndefined()
    expect(mods.map(({ newValues }) => JSON.stringify(newValues))).toEqual(texts)
  })

  test('exact numbers, names such as __proto__ and absent rows are read as those of a single row', () => {
    const { batch, mods } = batchOf(['{"a":9007199254740993}', '{"__proto__":"x"}', 'null', '{"a":1}'])
    expect(batch.flush()).toBeUndefined()
    expect(mods[0]!.newValues).toEqual({ a: '9007199254740993' })
    expect(Object.entries(mods[1]!.newValues)).toEqual([['__proto__', 'x']])
    expect(mods[2]!.newValues).toEqual({})
    expect(mods[3]!.newValues).toEqual({ a: 1 })
  })

  test.each([
    ['no JSON', ['{"a":1}', '{"a":', '{"a":2}']],
    ['no object', ['{"a":1}', '[1]', '{"a":2}']],
    ['two rows that make up one', ['{"a":1}', '{"b":[1', '2]}', '{"a":2}']],
    ['a row that is two', ['{"a":1}', '{"a":1},{"b":1}', '{"a":2}']],
    ['too deep', ['{"a":1}', `{"a":${'['.repeat(201)}${']'.repeat(201)}}`, '{"a":2}']],
  ])('names the record of a malformed row: %s', (_, texts) => {
    const { batch, mods } = batchOf(texts)
    expect(batch.flush()).toEqual({
      record: 1,
      error: expect.objectContaining({ message: expect.stringContaining('new_values') }),
    })
    expect(mods[0]!.newValues).toEqual({ a: 1 })
  })

  test('of several malformed rows the first record counts, whatever its side', () => {
    const batch = new RowBatch()
    for (const [record, field] of [2, 0, 1].entries()) {
      batch.record = record + 5
      add(batch, field, '{')
    }
    expect(batch.flush()).toEqual({
      record: 5,
      error: expect.objectContaining({ message: expect.stringContaining('old_values') }),
    })
    expect(batch.flush()).toBeUndefined()
  })

  test('P12: nothing of a row is in the error', () => {
    const { batch } = batchOf(['{"secret":"marker'])
    const { error } = batch.flush()!
    expect(`${error.message} ${error.stack} ${String(error.cause)}`).not.toContain('marker')
  })
})
