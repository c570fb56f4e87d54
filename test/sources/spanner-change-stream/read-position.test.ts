import { describe, expect, test } from 'vitest'
import { ReadPosition } from '../../../src/sources/spanner-change-stream/read-position.ts'
import { at } from './scripted-stream.ts'

describe('ReadPosition', () => {
  test('P6: knows what was settled at exactly the time where it starts', () => {
    const position = new ReadPosition({ watermark: at(20), boundaryIds: ['tie'] })
    expect(position.isNew(at(10), 'older')).toBe(false)
    expect(position.isNew(at(20), 'tie')).toBe(false)
    expect(position.isNew(at(20), 'another')).toBe(true)
    expect(position.isNew(at(21), 'tie')).toBe(true)
  })

  test('remembers the ids of the latest time only', () => {
    const position = new ReadPosition({ watermark: at(0), boundaryIds: [] })
    position.observe(at(10), 'one')
    position.observe(at(10), 'two')
    expect([position.isNew(at(10), 'one'), position.isNew(at(10), 'three')]).toEqual([false, true])
    position.observe(at(20))
    expect(position.timestamp).toBe(at(20))
    expect(position.isNew(at(10), 'three')).toBe(false)
    expect(position.isNew(at(20), 'one')).toBe(true)
  })

  test('never moves back', () => {
    const position = new ReadPosition({ watermark: at(20), boundaryIds: [] })
    position.observe(at(10), 'late')
    expect(position.timestamp).toBe(at(20))
    expect(position.isNew(at(20), 'late')).toBe(true)
  })
})
