import { describe, expect, test } from 'vitest'
import { changeAsJson, changeLine, type Paint } from '../../src/cli/change-line.ts'
import { type Change, changesOf, type DataChangeRecord, type Mod } from '../../src/model/data-change-record.ts'

const RECORD: DataChangeRecord = {
  partitionToken: 'token',
  commitTimestamp: '2026-11-18T09:30:00.123456000Z',
  recordSequence: '00000001',
  serverTransactionId: 'MTIzNDU2Nzg5MDEyMzQ1Ng==',
  isLastRecordInTransactionInPartition: true,
  tableName: 'Orders',
  valueCaptureType: 'OLD_AND_NEW_VALUES',
  columnTypes: [
    { name: 'Id', type: { code: 'INT64' }, isPrimaryKey: true, ordinalPosition: 1 },
    { name: 'Status', type: { code: 'STRING' }, isPrimaryKey: false, ordinalPosition: 2 },
    { name: 'Total', type: { code: 'NUMERIC' }, isPrimaryKey: false, ordinalPosition: 3 },
    { name: 'Tags', type: { code: 'JSON' }, isPrimaryKey: false, ordinalPosition: 4 },
  ],
  mods: [],
  modType: 'UPDATE',
  numberOfRecordsInTransaction: 1,
  numberOfPartitionsInTransaction: 1,
  transactionTag: '',
  isSystemTransaction: false,
}

function change(mod: Partial<Mod>, modType: DataChangeRecord['modType'] = 'UPDATE', more = {}): Change {
  const whole = { keys: { Id: '42' }, newValues: {}, oldValues: {}, ...mod }
  return changesOf({ ...RECORD, ...more, modType, mods: [whole] })[0]!
}

describe('changeLine', () => {
  test('an update shows what changed, before and after', () => {
    const newValues = { Status: 'paid', Total: '13.00' }
    const line = changeLine(change({ newValues, oldValues: { Status: 'new', Total: null } }))
    expect(line).toBe(
      '2026-11-18T09:30:00.123456Z  update  Orders  Id=42  Status: "new" → "paid"  Total: NULL → 13.00  tx …EyMzQ1Ng',
    )
  })

  test('an update with whole rows shows what has a before only', () => {
    const line = changeLine(change({ newValues: { Status: 'paid', Total: '1' }, oldValues: { Status: 'new' } }))
    expect(line).toContain('  Status: "new" → "paid"  tx')
    expect(line).not.toContain('Total')
  })

  test('an update without old values shows the new ones', () => {
    expect(changeLine(change({ newValues: { Status: 'paid' } }))).toContain('  Status="paid"  ')
  })

  test('an insert shows the new row, a delete what is known of the old one', () => {
    expect(changeLine(change({ newValues: { Status: 'new' } }, 'INSERT'))).toContain(
      'insert  Orders  Id=42  Status="new"',
    )
    expect(changeLine(change({ oldValues: { Status: 'old' } }, 'DELETE'))).toContain(
      'delete  Orders  Id=42  Status="old"',
    )
    expect(changeLine(change({}, 'DELETE'))).toMatch(/delete {2}Orders {2}Id=42 {2}tx/)
  })

  test('JSON shows as it is, without quotes around its quotes', () => {
    expect(changeLine(change({ newValues: { Tags: '{"a":["b"]}' } }, 'INSERT'))).toContain('  Tags={"a":["b"]}  tx')
  })

  test('nanoseconds that are there stay', () => {
    const commitTimestamp = '2026-11-18T09:30:00.123456789Z'
    expect(changeLine(change({}, 'DELETE', { commitTimestamp }))).toMatch(/^2026-11-18T09:30:00\.123456789Z {2}/)
  })

  test('long values are cut, between characters', () => {
    const line = changeLine(change({ newValues: { Status: '😀'.repeat(500) } }, 'INSERT'))
    expect(line).toContain(`Status="${'😀'.repeat(59)}…"`)
    expect(line.length).toBeLessThan(250)
  })

  test('nothing of a row reaches the terminal as a control', () => {
    const evil = '\u001b[31m\u0007\r\n\t\u0000\u007f\u009b2J\u202e\u2028\u{e0001}'
    const row = { [evil]: evil, Total: evil, nested: { [evil]: [evil] } }
    const hostile = change({ keys: { [evil]: evil }, newValues: row, oldValues: row }, 'UPDATE', {
      tableName: evil,
      serverTransactionId: evil,
    })
    for (const text of [changeLine(hostile), changeAsJson(hostile)]) {
      expect(text).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u)
    }
  })

  test('the operation has its colour', () => {
    const paint: Paint = (colour, text) => `<${colour}>${text}</>`
    expect(changeLine(change({}, 'DELETE'), paint)).toContain('<red>delete</>  <bold>Orders</>')
  })
})

describe('changeAsJson', () => {
  test('has all that the change and its record say, values as on the wire', () => {
    const newValues = { Status: '\u001b\u009b\u202e', Total: '12345678901234567890.123456789', __proto__x: null }
    const given = change({ newValues }, 'INSERT')
    const { mods: _mods, ...record } = given.record
    expect(JSON.parse(changeAsJson(given))).toEqual({
      id: 'MTIzNDU2Nzg5MDEyMzQ1Ng==/00000001/0',
      table: 'Orders',
      op: 'insert',
      keys: { Id: '42' },
      newValues,
      oldValues: {},
      commitTimestamp: '2026-11-18T09:30:00.123456000Z',
      modIndex: 0,
      record,
    })
  })

  test('keeps columns of any name', () => {
    const newValues = JSON.parse('{"__proto__":"1","constructor":"2"}') as Record<string, unknown>
    expect(changeAsJson(change({ newValues }, 'INSERT'))).toContain('"newValues":{"__proto__":"1","constructor":"2"}')
  })
})
