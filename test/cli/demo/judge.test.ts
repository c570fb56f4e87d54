import { describe, expect, test } from 'vitest'
import { type CommittedChange, hasPassed, Judge } from '../../../src/cli/demo/judge.ts'

const commitTimestamp = '2026-11-18T09:30:00.000000000Z'
const change = (id: string, key: string): CommittedChange => ({ id, key, commitTimestamp })
const line = (id: string): string => JSON.stringify({ id })

function judged(ledger: readonly CommittedChange[], ids: readonly string[]): ReturnType<Judge['verdict']> {
  const judge = new Judge({ changes: ledger, forgottenChanges: 0 })
  for (const id of ids) judge.observe(line(id))
  return judge.verdict()
}

describe('Judge', () => {
  const ledger = [change('1', 'a'), change('2', 'b'), change('3', 'a')]

  test('passes what arrived once and in order per key, whatever the order between keys', () => {
    const verdict = judged(ledger, ['2', '1', '3'])
    expect(verdict).toEqual({ committed: 3, delivered: 3, lost: 0, repeated: 0, outOfOrder: 0, unknown: 0 })
    expect(hasPassed(verdict)).toBe(true)
  })

  test('P1: counts what is missing as lost', () => {
    const verdict = judged(ledger, ['1', '3'])
    expect(verdict.lost).toBe(1)
    expect(hasPassed(verdict)).toBe(false)
  })

  test('P3: counts the first arrival of an older change after a younger one of its key', () => {
    const verdict = judged(ledger, ['3', '1', '2'])
    expect(verdict.outOfOrder).toBe(1)
    expect(hasPassed(verdict)).toBe(false)
  })

  test('counts a repeat, which is neither lost nor out of order', () => {
    const verdict = judged(ledger, ['1', '2', '3', '1', '3'])
    expect(verdict).toMatchObject({ repeated: 2, outOfOrder: 0, delivered: 3 })
    expect(hasPassed(verdict)).toBe(true)
  })

  test.each(['{"id":"9"}', '{"id":"1', '', 'null', '{}'])('fails on a line that is no committed change: %j', (text) => {
    const judge = new Judge({ changes: ledger, forgottenChanges: 0 })
    for (const { id } of ledger) judge.observe(line(id))
    judge.observe(text)
    expect(judge.verdict().unknown).toBe(1)
    expect(hasPassed(judge.verdict())).toBe(false)
  })

  test('sees changes that are committed after it began', () => {
    const growing = [change('1', 'a')]
    const judge = new Judge({ changes: growing, forgottenChanges: 0 })
    judge.observe(line('1'))
    growing.push(change('2', 'a'))
    judge.observe(line('2'))
    expect(judge.verdict()).toMatchObject({ committed: 2, delivered: 2, lost: 0, unknown: 0 })
  })

  test('knows the oldest change that has not arrived', () => {
    const judge = new Judge({ changes: ledger, forgottenChanges: 0 })
    expect(judge.oldestMissing()?.id).toBe('1')
    judge.observe(line('2'))
    expect(judge.oldestMissing()?.id).toBe('1')
    judge.observe(line('1'))
    expect(judge.oldestMissing()?.id).toBe('3')
    judge.observe(line('3'))
    expect(judge.oldestMissing()).toBeUndefined()
  })

  test('goes on when the database drops old history', () => {
    const history = { changes: [change('1', 'a'), change('2', 'b')], forgottenChanges: 0 }
    const judge = new Judge(history)
    judge.observe(line('1'))
    history.changes.splice(0, 2)
    history.forgottenChanges = 2
    history.changes.push(change('3', 'a'))
    judge.observe(line('3'))
    expect(judge.verdict()).toMatchObject({ committed: 3, delivered: 2, lost: 1, outOfOrder: 0, unknown: 0 })
    expect(judge.oldestMissing()?.id).toBe('2')
  })
})
