import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { changeId, changesOf, type DataChangeRecord, recordId, rowKey } from '../../src/model/data-change-record.ts'

const record: DataChangeRecord = {
  partitionToken: 'p1',
  commitTimestamp: '2026-11-18T09:30:00.123456789Z',
  recordSequence: '00000001',
  serverTransactionId: 'tx',
  isLastRecordInTransactionInPartition: true,
  tableName: 'Orders',
  valueCaptureType: 'OLD_AND_NEW_VALUES',
  columnTypes: [{ name: 'Id', type: { code: 'INT64' }, isPrimaryKey: true, ordinalPosition: 1 }],
  mods: [
    { keys: { Id: '1' }, newValues: { Total: '9' }, oldValues: { Total: '8' } },
    { keys: { Id: '2' }, newValues: {}, oldValues: {} },
  ],
  modType: 'UPDATE',
  numberOfRecordsInTransaction: 1,
  numberOfPartitionsInTransaction: 1,
  transactionTag: '',
  isSystemTransaction: false,
}

describe('changesOf', () => {
  test('gives one change per row, in order, sharing the record', () => {
    const changes = changesOf(record)
    expect(changes).toHaveLength(2)
    expect(changes[0]).toEqual({
      table: 'Orders',
      op: 'update',
      keys: { Id: '1' },
      newValues: { Total: '9' },
      oldValues: { Total: '8' },
      commitTimestamp: record.commitTimestamp,
      modIndex: 0,
      record,
    })
    expect(changes.map((change) => change.record === record)).toEqual([true, true])
  })

  test.each([
    ['INSERT', 'insert'],
    ['UPDATE', 'update'],
    ['DELETE', 'delete'],
  ] as const)('says %s as %s', (modType, op) => {
    expect(changesOf({ ...record, modType }).map((change) => change.op)).toEqual([op, op])
  })

  test('gives nothing for a record without rows', () => {
    expect(changesOf({ ...record, mods: [] })).toEqual([])
  })
})

describe('recordId', () => {
  test('is made of transaction and sequence', () => {
    expect(recordId(record)).toBe('tx/00000001')
  })
})

describe('changeId', () => {
  test('P6: differs for each row of a record and is the same each time', () => {
    const ids = (): string[] => changesOf(record).map(changeId)
    expect(ids()).toEqual(['tx/00000001/0', 'tx/00000001/1'])
    expect(ids()).toEqual(ids())
  })
})

describe('rowKey', () => {
  test('P3: is equal for equal keys of one table only', () => {
    const keys = fc.dictionary(fc.string(), fc.oneof(fc.string(), fc.constant(null)), { maxKeys: 3 })
    fc.assert(
      fc.property(keys, keys, (a, b) => {
        expect(rowKey('T', a)).toBe(rowKey('T', { ...a }))
        if (JSON.stringify(a) !== JSON.stringify(b)) expect(rowKey('T', a)).not.toBe(rowKey('T', b))
        expect(rowKey('T', a)).not.toBe(rowKey('U', a))
      }),
    )
  })
})
