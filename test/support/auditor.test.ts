/** The judge is judged: for every check a history that must pass, and the planted bugs that must be caught. */
import { describe, expect, test } from 'vitest'
import type { CommitTimestamp } from '../../src/model/commit-timestamp.ts'
import { ROOT_TOKEN } from '../../src/model/partition.ts'
import {
  type AuditOptions,
  audit,
  checkBoundedMemory,
  checkChildrenAfterParents,
  checkDrainSettlesAll,
  checkEndHasEvidence,
  checkExactTime,
  checkGaplessCheckpoint,
  checkGaps,
  checkHonestLowWatermark,
  checkLiveness,
  checkMovesAfterTheirPast,
  checkNothingLost,
  checkOneOwner,
  checkOrderPerKey,
  checkRecording,
  checkRestartRepeatsNothing,
  type Promised,
  type Violation,
} from './auditor.ts'
import {
  type Facts,
  gatherFacts,
  History,
  type Ledger,
  type LedgerChange,
  lineageOf,
  type StoreOperation,
} from './history.ts'

/** A is split into B and C, which merge into D after the user's end. Digits in ids are the second of the commit. */
const LEDGER: Ledger = {
  changes: [
    change('a0', 'k1', 'A'), // before the start
    change('a2', 'k1', 'A'),
    change('a3', 'k2', 'A'),
    change('a4x', 'k1', 'A'), // two at one time
    change('a4y', 'k2', 'A'),
    change('b6', 'k1', 'B'),
    change('c7', 'k2', 'C'),
  ],
  partitions: [
    { token: 'Z', parents: [], start: at('t0'), end: at('t1') },
    { token: 'A', parents: ['Z'], start: at('t1'), end: at('t5') },
    { token: 'B', parents: ['A'], start: at('t5'), end: at('t9') },
    { token: 'C', parents: ['A'], start: at('t5'), end: at('t9') },
    { token: 'D', parents: ['B', 'C'], start: at('t9'), end: null },
  ],
}

const OPTIONS: AuditOptions = {
  start: at('t1'),
  end: at('t8'),
  completed: true,
  limits: { maxInFlight: 2, maxInFlightBytes: 100, maxRecordBytes: 50 },
}

const ROOT = `
  run 1
  query root t1
  children root t1
  end root
  finish root t1`

const FIRST_HALF_OF_A = `
  query A t1
  data A t2
  deliver a2
  deliver a3
  write a2
  write a3
  checkpoint A t3 a3
  low t3`

const SECOND_HALF_OF_A = `
  deliver a4x
  deliver a4y
  write a4x
  write a4y
  checkpoint A t4 a4x a4y
  low t4
  children A t5
  end A
  finish A t5`

const CHILDREN = `
  query B t5
  query C t5
  deliver b6
  deliver c7
  write c7
  low t5
  write b6
  heartbeat B t8
  heartbeat C t9
  finish B t8
  finish C t8
  low t8
  finished`

const GOOD = ROOT + FIRST_HALF_OF_A + SECOND_HALF_OF_A + CHILDREN

const DRAINED_BETWEEN = `${ROOT}${FIRST_HALF_OF_A}
  drained
  run 2
  claim A
  query A t3${SECOND_HALF_OF_A}${CHILDREN}`

/** a4x and a4y are written but not stored, so a crash brings them again. */
const CRASHED_BETWEEN = `${ROOT}${FIRST_HALF_OF_A}
  deliver a4x
  deliver a4y
  write a4x
  write a4y
  crash
  run 2
  claim A
  query A t3${SECOND_HALF_OF_A}${CHILDREN}`

/** Run 1 is paused; run 2 takes over. Afterwards run 1 writes what it still held and is refused by the store. */
const TAKEN_OVER = `${ROOT}${FIRST_HALF_OF_A}
  deliver a4x
  run 2
  claim A
  query A t3
  as 1
  write a4x
  refused checkpoint A t4 a4x
  drained
  as 2${SECOND_HALF_OF_A}${CHILDREN}`

describe('audit', () => {
  test.each([
    ['one run', GOOD],
    ['a drain and a second run', DRAINED_BETWEEN],
    ['a crash and a second run', CRASHED_BETWEEN],
    ['a take-over from a paused run', TAKEN_OVER],
    ['a change that the policy gave up', edit(GOOD, 'write a3', 'skip a3')],
  ])('passes %s in which every promise is kept', (_, story) => {
    expect(audit(LEDGER, tell(story), OPTIONS)).toEqual([])
  })

  const canaries: [bug: string, promise: Promised, story: string][] = [
    ['an ack before the write', 'P1', edit(GOOD, 'write a3', '')],
    ['a drop on nack', 'P1', edit(GOOD, 'write b6', '')],
    ['a child row that was not stored', 'P1', without(GOOD, ['query C t5', 'deliver c7', 'write c7', 'finish C t8'])],
    ['an invented change', 'P1', edit(GOOD, 'write a2', 'write a2\n write a9')],
    ['a maximum instead of the contiguous run', 'P2', edit(GOOD, 'write a2\n', 'checkpoint A t3 a3\n write a2\n')],
    ['two ticks swapped', 'P2', edit(GOOD, 'checkpoint A t4 a4x a4y', 'checkpoint A t4 a4x a4y\n checkpoint A t3 a3')],
    ['a lane keyed wrongly', 'P3', swap(GOOD, 'write a2', 'write a4x')],
    ['a lane chosen before the retry', 'P3', edit(GOOD, 'write b6', 'write b6\n write a4x')],
    ['a gate on read instead of settled', 'P4', move(GOOD, 'write a4y', 'query B t5')],
    ['a child that starts when it is announced', 'P4', move(GOOD, 'finish A t5', 'query C t5')],
    ['a clean end taken as the end', 'P5', edit(GOOD, 'children A t5', '')],
    [
      'boundary ids that were forgotten',
      'P6',
      edit(DRAINED_BETWEEN, 'query A t3', 'query A t3\n deliver a3\n write a3'),
    ],
    [
      'a checkpoint that a restart ignores',
      'P6',
      edit(CRASHED_BETWEEN, 'query A t3', 'query A t1\n deliver a2\n write a2'),
    ],
    ['a limit that counts batches', 'P7', edit(GOOD, 'write a2', 'deliver a4x\n write a2')],
    ['announced partitions left out', 'P8', edit(GOOD, 'write c7\n  low t5', 'write c7\n  low t7')],
    ['one pass through Date', 'P9', edit(GOOD, 'write a3', 'write-through-date a3')],
    ['an epoch check that was removed', 'P10', edit(TAKEN_OVER, 'refused checkpoint A t4', 'checkpoint A t4')],
    ['a checkpoint skipped at drain', 'P11', edit(DRAINED_BETWEEN, 'checkpoint A t3 a3', '')],
  ]
  test.each(canaries)('catches %s as a breach of %s', (_, promise, story) => {
    expect(promisesOf(audit(LEDGER, tell(story), OPTIONS))).toContain(promise)
  })

  test('catches a lost wake-up as a breach of liveness, and calls nothing lost that may still come', () => {
    const stuck = tell(ROOT + FIRST_HALF_OF_A)
    expect(promisesOf(audit(LEDGER, stuck, { ...OPTIONS, completed: false }))).toEqual(['liveness'])
  })

  test('finds one violation in a long history without looking at every pair of events', () => {
    const count = 50_000
    const changes = Array.from({ length: count }, (_, i) => ({
      ...change('a2', `k${i % 100}`, 'A'),
      id: `c${i}`,
      commitTimestamp: nanos(i),
    }))
    const history = new History()
    for (const { id, key, commitTimestamp } of changes) {
      if (id === 'c7') continue
      history.written(1, { id, key, timestamp: commitTimestamp })
      history.storeWrite(1, write('checkpoint', 'A', commitTimestamp, [id]))
      history.lowWatermark(1, nanos(0))
    }
    const facts = gatherFacts({ changes, partitions: [] }, history.events, { start: nanos(0), end: null })
    expect(checkNothingLost(facts, OPTIONS)).toHaveLength(1)
    expect(checkHonestLowWatermark(facts, {})).toEqual([])
    expect(checkGaplessCheckpoint(facts)).toHaveLength(count - 8) // every checkpoint behind the lost one
  })
})

describe('checkRecording', () => {
  test('passes a history with every kind of event', () => {
    expect(checkRecording(facts(GOOD), OPTIONS)).toEqual([])
  })

  test('says which events are missing, since a check that sees nothing proves nothing', () => {
    const messages = checkRecording(facts(edit(GOOD, /low .*/g, '')), OPTIONS).map(({ message }) => message)
    expect(messages).toEqual([expect.stringContaining("'low-watermark'")])
  })
})

describe('checkLiveness', () => {
  test('passes a run that came to its end and fails one that did not', () => {
    expect(checkLiveness({ completed: true })).toEqual([])
    expect(promisesOf(checkLiveness({ completed: false }))).toEqual(['liveness'])
  })
})

describe('checkNothingLost', () => {
  const check = (story: string): Violation[] => checkNothingLost(facts(story), OPTIONS)

  test('P1: a skipped change is not lost', () => {
    expect(check(edit(GOOD, 'write a3', 'skip a3'))).toEqual([])
  })

  test('P1: names what never reached the sink', () => {
    expect(check(without(GOOD, ['write a3', 'write b6']))).toEqual([
      { promise: 'P1', message: '2 of 6 changes never reached the sink, first a3 of A, b6 of B' },
    ])
  })

  test('P1: a change at the very end is in range', () => {
    const { events } = tell(edit(GOOD, 'write c7', ''))
    expect(checkNothingLost(gatherFacts(LEDGER, events, { ...OPTIONS, end: at('t7') }), OPTIONS)).toHaveLength(1)
    expect(checkNothingLost(gatherFacts(LEDGER, events, { ...OPTIONS, end: at('t6') }), OPTIONS)).toEqual([
      expect.objectContaining({ message: 'c7 was delivered out of range' }),
    ])
  })

  test('P1: refuses changes from outside the range, unknown ids and wrong keys', () => {
    expect(check(edit(GOOD, 'write a2', 'write a2\n write a0'))).toHaveLength(1)
    expect(check(edit(GOOD, 'write a2', 'write a2\n skip a99'))).toHaveLength(1)
    expect(check(edit(GOOD, 'write a3', 'write a3 k1'))).toHaveLength(1)
  })
})

describe('checkGaplessCheckpoint', () => {
  const check = (story: string): string[] => promisesOf(checkGaplessCheckpoint(facts(story)))

  test('P2: a watermark may stand at an open change that is no boundary id', () => {
    expect(check(edit(GOOD, 'write a3\n', 'checkpoint A t3\n write a3\n'))).toEqual([])
  })

  test('P2: a boundary id that is open is caught', () => {
    expect(check(edit(GOOD, 'write a3\n', 'checkpoint A t3 a3\n write a3\n'))).toEqual(['P2'])
  })

  test('P2: a boundary id that the stream never had is caught', () => {
    expect(check(edit(GOOD, 'checkpoint A t3 a3', 'checkpoint A t3 a3 nobody'))).toContain('P2')
  })

  test('P2: a checkpoint is judged by the moment when the store was asked', () => {
    const late = tell(`${ROOT}\n query A t1`)
    const askedAt = late.position
    late.written(1, { id: 'a2', key: 'k1', timestamp: at('t2') })
    late.storeWrite(1, { ...write('checkpoint', 'A', at('t2'), ['a2']), askedAt })
    expect(promisesOf(checkGaplessCheckpoint(gatherFacts(LEDGER, late.events, OPTIONS)))).toEqual(['P2'])
  })

  test('P2: losing a boundary id at the same watermark is a step back', () => {
    expect(check(edit(GOOD, 'checkpoint A t4 a4x a4y', 'checkpoint A t4 a4x a4y\n checkpoint A t4 a4x'))).toEqual([
      'P2',
    ])
  })

  test('P2: a finish with an open change is caught, wherever its watermark is', () => {
    expect(check(edit(GOOD, 'write b6', ''))).toEqual(['P2', 'P2'])
    expect(check(edit(edit(GOOD, 'write b6', ''), 'finish B t8', 'finish B t5'))).toEqual(['P2'])
  })

  test('P2: a change that comes again later was settled all the same', () => {
    expect(check(edit(GOOD, 'low t3', 'low t3\n write a2'))).toEqual([])
  })

  test('P2: what the store refused is not judged', () => {
    expect(check(edit(GOOD, 'write a2\n', 'refused checkpoint A t3 a3\n write a2\n'))).toEqual([])
  })
})

describe('checkOrderPerKey', () => {
  const check = (story: string, completed = true): string[] => promisesOf(checkOrderPerKey(facts(story), { completed }))

  test('P3: changes of different keys may overtake each other', () => {
    expect(check(swap(GOOD, 'write a2', 'write a3'))).toEqual([])
  })

  test('P3: changes of one key may not, also across a split', () => {
    expect(check(swap(GOOD, 'write a4x', 'write b6'))).toContain('P3')
  })

  test('P3: a wrong first order is caught even if everything follows again', () => {
    expect(check(edit(GOOD, 'write a2', 'write a4x\n write a2'))).toEqual(['P3'])
  })

  test('P3: a repeat is allowed if all that came after it follows again', () => {
    expect(check(edit(GOOD, 'write b6', 'write b6\n write a4x\n write b6'))).toEqual([])
    expect(check(edit(GOOD, 'write b6', 'write b6\n write a2\n write a4x\n skip b6'))).toEqual([])
    expect(check(edit(GOOD, 'write b6', 'write b6\n write a2\n write b6'))).toEqual(['P3'])
  })

  test('P3: a repeat at the end of a run that hangs may still be followed', () => {
    const story = edit(GOOD, 'write b6', 'write b6\n write a4x')
    expect(check(story)).toEqual(['P3'])
    expect(check(story, false)).toEqual([])
  })
})

describe('checkChildrenAfterParents', () => {
  const check = (story: string): string[] => promisesOf(checkChildrenAfterParents(facts(story)))

  test('P4: a parent that ended before the start is not waited for', () => {
    expect(check(GOOD)).toEqual([])
  })

  test('P4: a child of a merge waits for each of its parents', () => {
    expect(check(edit(GOOD, 'finish C t8', 'query D t9\n finish C t8'))).toEqual(['P4'])
    expect(check(edit(GOOD, 'finish C t8', 'finish C t8\n query D t9'))).toEqual([])
  })

  test('P4: a refused finish opens no gate', () => {
    expect(check(edit(GOOD, 'finish A t5', 'refused finish A t5'))).toEqual(['P4', 'P4'])
  })
})

describe('checkEndHasEvidence', () => {
  const check = (story: string): string[] => promisesOf(checkEndHasEvidence(facts(story)))

  test('P5: a heartbeat at the end or an answer behind it is evidence', () => {
    expect(check(GOOD)).toEqual([])
    expect(check(edit(GOOD, 'heartbeat B t8', 'data B t9'))).toEqual([])
  })

  test('P5: a record at the end is none, since another one may follow it', () => {
    expect(check(edit(GOOD, 'heartbeat B t8', 'data B t8\n end B'))).toEqual(['P5'])
  })

  test('P5: child records without a clean end are none', () => {
    expect(check(edit(GOOD, 'end A', 'error A'))).toEqual(['P5'])
  })

  test('P5: child records count for a query that continues, not for one that begins again', () => {
    expect(check(edit(GOOD, 'end A', 'error A\n resume A t4\n end A'))).toEqual([])
    expect(check(edit(GOOD, 'end A', 'error A\n query A t4\n end A'))).toEqual(['P5'])
  })

  test('P5: evidence that comes after the store was asked is none', () => {
    const history = tell(`${ROOT}\n query A t1\n children A t5`)
    const askedAt = history.position
    history.queryReturned(1, 'A', 'end')
    history.storeWrite(1, { ...write('finish', 'A', at('t5'), []), askedAt })
    expect(promisesOf(checkEndHasEvidence(gatherFacts(LEDGER, history.events, OPTIONS)))).toEqual(['P5'])
  })

  test('P5: a partition that begins after the end needs no answer', () => {
    expect(check(edit(GOOD, 'low t8', 'finish D t9\n low t8'))).toEqual([])
  })
})

describe('checkRestartRepeatsNothing', () => {
  const check = (story: string): string[] => promisesOf(checkRestartRepeatsNothing(facts(story)))

  test('P6: a crash repeats only what no checkpoint covers', () => {
    expect(check(CRASHED_BETWEEN)).toEqual([])
    expect(check(edit(CRASHED_BETWEEN, 'query A t3', 'query A t3\n deliver a3\n write a3'))).toEqual(['P6'])
  })

  test('P6: what a drained run wrote is not written again, stored or not', () => {
    const unstored = edit(DRAINED_BETWEEN, 'checkpoint A t3 a3', '')
    expect(check(edit(unstored, 'query A t3', 'query A t1\n deliver a2\n write a2'))).toEqual(['P6'])
  })

  test('P6: reading again after a cut delivers nothing that is covered', () => {
    expect(check(edit(GOOD, 'low t3', 'error A\n query A t3\n deliver a3'))).toEqual(['P6'])
  })

  test('P6: a finished partition is not read again, neither by the same run nor by a later one', () => {
    expect(check(edit(GOOD, 'finish A t5', 'finish A t5\n query A t5'))).toEqual(['P6'])
    expect(check(edit(GOOD, 'finished', 'finished\n run 2\n query B t8'))).toEqual(['P6'])
  })

  test('P6: a checkpoint that the store refused covers nothing', () => {
    expect(check(edit(CRASHED_BETWEEN, 'crash', 'refused checkpoint A t4 a4x a4y\n crash'))).toEqual([])
  })

  test('P6: what a paused run wrote without storing it may come again after the crash of its successor', () => {
    const story = `${ROOT}${FIRST_HALF_OF_A}
      deliver a4x
      run 2
      claim A
      as 1
      write a4x
      drained
      as 2
      crash
      run 3
      claim A
      query A t3${SECOND_HALF_OF_A}`
    expect(check(story)).toEqual([])
    expect(check(edit(story, 'crash', 'drained'))).toEqual(['P6'])
  })

  test('P6: a write that was under way when its partition was lost may land after the partition came back', () => {
    const story = `${ROOT}${FIRST_HALF_OF_A}
      deliver a4x
      run 2
      claim A
      query A t3
      deliver a4x
      write a4x
      checkpoint A t4 a4x
      drained
      as 1
      claim A
      query A t4
      write a4x`
    expect(check(story)).toEqual([])
    expect(check(`${story}\n deliver a4x`)).toEqual(['P6'])
  })

  test('P6: a paused run that writes late what another one stored is no repeat of a restart', () => {
    expect(check(TAKEN_OVER)).toEqual([])
  })
})

describe('checkBoundedMemory', () => {
  const check = (story: string): string[] => promisesOf(checkBoundedMemory(facts(story), OPTIONS))

  test('P7: samples may reach the count, and the bytes with one record a partition', () => {
    expect(check(edit(GOOD, 'deliver a2', 'in-flight 2 150\n deliver a2'))).toEqual([])
    expect(check(edit(GOOD, 'deliver a2', 'in-flight 2 151\n deliver a2'))).toEqual(['P7'])
    expect(check(edit(GOOD, 'deliver a2', 'in-flight 3 0\n deliver a2'))).toEqual(['P7'])
  })

  test('P7: deliveries are counted by the auditor itself, over all partitions', () => {
    expect(check(move(GOOD, 'write a4y', 'write c7'))).toEqual(['P7'])
  })

  test('P7: what a new query brings again and what another run took over no longer counts', () => {
    expect(check(edit(GOOD, 'write a2', 'query A t1\n deliver a2\n deliver a3\n write a2'))).toEqual([])
    expect(check(edit(TAKEN_OVER, 'as 1', 'as 1\n deliver b6\n deliver c7'))).toEqual([])
    expect(check(edit(GOOD, 'write a2', 'query A t2\n deliver a4x\n deliver a4y\n write a2'))).toEqual([])
  })
})

describe('checkHonestLowWatermark', () => {
  const check = (story: string, final?: string): string[] =>
    promisesOf(checkHonestLowWatermark(facts(story), final ? { finalLowWatermark: at(final) } : {}))

  test('P8: a low watermark may stand at an open change, not above it', () => {
    expect(check(edit(GOOD, 'write c7\n  low t5', 'write c7\n  low t6'))).toEqual([])
    expect(check(edit(GOOD, 'write c7\n  low t5', 'write c7\n  low t7'))).toEqual(['P8'])
  })

  test('P8: a low watermark moves back only with a new run', () => {
    expect(check(edit(GOOD, 'low t4', 'low t4\n low t3'))).toEqual(['P8'])
    expect(check(edit(DRAINED_BETWEEN, 'query A t3', 'low t2\n query A t3'))).toEqual([])
  })

  test('P8: an idle stream reaches the time that is demanded', () => {
    expect(check(GOOD, 't8')).toEqual([])
    expect(check(edit(GOOD, 'low t8', ''), 't8')).toEqual(['P8'])
    expect(check(edit(GOOD, /low .*/g, ''), 't8')).toEqual(['P8'])
  })
})

describe('checkExactTime', () => {
  test('P9: passes times as committed', () => {
    expect(checkExactTime(facts(GOOD))).toEqual([])
  })

  test('P9: catches lost nanoseconds, and short forms wherever a time is kept', () => {
    const history = tell('run 1')
    history.written(1, { id: 'a2', key: 'k1', timestamp: '2026-01-01T00:00:02.123000000Z' })
    history.storeWrite(1, write('checkpoint', 'A', '2026-01-01T00:00:02.123Z', []))
    history.lowWatermark(1, '2026-01-01T00:00:02Z')
    history.queryStarted(1, 'A', '2026-01-01T00:00:02.123456789+00:00')
    const violations = checkExactTime(gatherFacts(LEDGER, history.events, OPTIONS))
    expect(promisesOf(violations)).toEqual(['P9', 'P9', 'P9', 'P9'])
  })
})

describe('checkOneOwner', () => {
  const check = (story: string): string[] => promisesOf(checkOneOwner(facts(story)))

  test('P10: each owner writes in its own epoch, and refused writes do not count', () => {
    expect(check(TAKEN_OVER)).toEqual([])
  })

  test('P10: a write in an older epoch is caught', () => {
    expect(check(edit(TAKEN_OVER, 'refused checkpoint A t4', 'checkpoint A t4'))).toEqual(['P10'])
    const history = tell('run 1')
    history.storeWrite(1, { ...write('checkpoint', 'A', at('t2'), []), epoch: 2 })
    history.storeWrite(1, write('checkpoint', 'A', at('t2'), []))
    expect(promisesOf(checkOneOwner(gatherFacts(LEDGER, history.events, OPTIONS)))).toEqual(['P10'])
  })

  test('P10: a claim of what another owner still holds is caught', () => {
    const history = tell('run 1')
    history.storeWrite(1, write('checkpoint', 'A', at('t2'), []))
    history.storeWrite(2, { op: 'claim', token: 'A', owner: 'late', epoch: 2, accepted: true, leaseLeftMs: 0 })
    history.storeWrite(3, { op: 'claim', token: 'A', owner: 'early', epoch: 3, accepted: true, leaseLeftMs: 1 })
    const violations = checkOneOwner(gatherFacts(LEDGER, history.events, OPTIONS))
    expect(violations.map(({ message }) => message)).toEqual(['A: early took what late held for another 1 ms'])
  })

  test('P10: two owners in one epoch are caught', () => {
    const history = tell('run 1')
    history.storeWrite(1, write('checkpoint', 'A', at('t2'), []))
    history.storeWrite(2, { ...write('checkpoint', 'A', at('t2'), []), owner: 'somebody else' })
    expect(promisesOf(checkOneOwner(gatherFacts(LEDGER, history.events, OPTIONS)))).toEqual(['P10'])
  })
})

describe('checkDrainSettlesAll', () => {
  const check = (story: string): string[] => promisesOf(checkDrainSettlesAll(facts(story)))

  test('P11: a drain or a finish with everything settled and stored passes', () => {
    expect(check(GOOD)).toEqual([])
    expect(check(DRAINED_BETWEEN)).toEqual([])
  })

  test('P11: a delivery that is open at the end of the drain is caught', () => {
    const violations = checkDrainSettlesAll(facts(edit(DRAINED_BETWEEN, 'drained', 'deliver a4x\n drained')))
    expect(violations.map(({ message }) => message)).toEqual(['run ended drained, a4x was not settled'])
  })

  test('P11: a write that comes after the end of its run is caught, however it ended', () => {
    for (const end of ['drained', 'failed']) {
      const violations = checkDrainSettlesAll(facts(`run 1\n ${end}\n write a2`))
      expect(violations.map(({ message }) => message)).toEqual(['a2 was written after its run had ended'])
    }
  })

  test('P11: a settlement that is not stored is caught', () => {
    expect(check(edit(DRAINED_BETWEEN, 'checkpoint A t3 a3', 'checkpoint A t3'))).toEqual(['P11'])
  })

  test('P11: a finished partition is stored whole, whatever its last watermark', () => {
    expect(check(edit(GOOD, 'finish B t8', 'finish B t5'))).toEqual([])
  })

  test('P11: a crash and a failed run owe nothing', () => {
    expect(check(CRASHED_BETWEEN)).toEqual([])
    expect(check(edit(DRAINED_BETWEEN, 'drained', 'deliver a4x\n failed'))).toEqual([])
  })

  test('P11: what another run took over is not owed', () => {
    expect(check(TAKEN_OVER)).toEqual([])
  })
})

describe('History', () => {
  test('numbers its events, and the root query stands under the root token', () => {
    const history = new History()
    history.runStarted(1)
    history.queryStarted(1, null, at('t1'))
    expect(history.position).toBe(2)
    expect(history.events.map((event) => event.number)).toEqual([0, 1])
    expect(history.events[1]).toMatchObject({ token: ROOT_TOKEN, resumed: false })
  })
})

describe('lineageOf', () => {
  test('makes partitions of splits and merges', () => {
    const topology = [
      { timestamp: at('t0'), parents: [], children: ['A'] },
      { timestamp: at('t5'), parents: ['A'], children: ['B', 'C'] },
      { timestamp: at('t9'), parents: ['B', 'C'], children: ['D'] },
    ]
    expect(lineageOf(topology)).toEqual([
      { token: 'A', parents: [], start: at('t0'), end: at('t5') },
      { token: 'B', parents: ['A'], start: at('t5'), end: at('t9') },
      { token: 'C', parents: ['A'], start: at('t5'), end: at('t9') },
      { token: 'D', parents: ['B', 'C'], start: at('t9'), end: null },
    ])
  })

  test('refuses a parent that never began', () => {
    expect(() => lineageOf([{ timestamp: at('t5'), parents: ['A'], children: ['B'] }])).toThrow(
      'A ended before it began',
    )
  })
})

/** `t4` is second 4 of the test's day, with digits down to the nanosecond. */
function at(time: string): CommitTimestamp {
  return `2026-01-01T00:00:0${time.slice(1, 2)}.123456789Z`
}

function nanos(count: number): CommitTimestamp {
  return `2026-01-01T00:00:00.${String(count).padStart(9, '0')}Z`
}

function change(id: string, key: string, partitionToken: string): LedgerChange {
  return { id, key, commitTimestamp: at(`t${id.slice(1, 2)}`), partitionToken }
}

function write(op: StoreOperation, token: string, watermark: CommitTimestamp, boundaryIds: readonly string[]) {
  return { op, token, watermark, boundaryIds, owner: 'worker 1', epoch: 1, accepted: true }
}

/** One step a line. `run n` starts run n, `as n` goes on with it; owner and epoch go with the run. */
function tell(story: string): History {
  const history = new History()
  let run = 0
  for (const line of story.split('\n')) {
    const words = line.trim().split(' ')
    const isRefused = words[0] === 'refused'
    const [verb = '', subject = '', time = '', ...ids] = isRefused ? words.slice(1) : words
    const token = subject === 'root' ? null : subject
    const changed = LEDGER.changes.find(({ id }) => id === subject) ?? change(subject, 'k1', 'A')
    const row = { token: token ?? ROOT_TOKEN, owner: `worker ${run}`, epoch: run, accepted: !isRefused }
    if (verb === '') continue
    else if (verb === 'run') {
      run = Number(subject)
      history.runStarted(run)
    } else if (verb === 'as') run = Number(subject)
    else if (verb === 'crash') history.runCrashed(run)
    else if (verb === 'drained' || verb === 'finished' || verb === 'failed') history.runEnded(run, verb)
    else if (verb === 'query' || verb === 'resume') history.queryStarted(run, token, at(time), verb === 'resume')
    else if (verb === 'data' || verb === 'heartbeat' || verb === 'children') {
      history.queryReturned(run, token, verb, { timestamp: at(time) })
    } else if (verb === 'end' || verb === 'error') history.queryReturned(run, token, verb)
    else if (verb === 'deliver') history.delivered(run, changed)
    else if (verb === 'write') {
      history.written(run, { id: subject, key: time || changed.key, timestamp: changed.commitTimestamp })
    } else if (verb === 'write-through-date') {
      const timestamp = new Date(changed.commitTimestamp).toISOString()
      history.written(run, { id: subject, key: changed.key, timestamp })
    } else if (verb === 'skip') history.skipped(run, subject)
    else if (verb === 'checkpoint' || verb === 'finish') {
      history.storeWrite(run, { ...row, op: verb, watermark: at(time), boundaryIds: ids })
    } else if (verb === 'claim') history.storeWrite(run, { ...row, op: verb })
    else if (verb === 'low') history.lowWatermark(run, at(subject))
    else if (verb === 'in-flight') history.inFlight(run, Number(subject), Number(time))
    else throw new Error(`the story has an unknown step: ${line}`)
  }
  return history
}

function facts(story: string): Facts {
  return gatherFacts(LEDGER, tell(story).events, OPTIONS)
}

function promisesOf(violations: readonly Violation[]): string[] {
  return violations.map(({ promise }) => promise)
}

/** Fails if there is nothing to edit: otherwise a bad history might silently be the good one. */
function edit(story: string, from: string | RegExp, to: string): string {
  const edited = story.replace(from, to)
  if (edited === story) throw new Error(`the story has no ${from}`)
  return edited
}

function without(story: string, steps: readonly string[]): string {
  return steps.reduce((rest, step) => edit(rest, step, ''), story)
}

/** Moves a step to right after another one. */
function move(story: string, step: string, after: string): string {
  return edit(edit(story, step, ''), after, `${after}\n ${step}`)
}

function swap(story: string, one: string, other: string): string {
  return edit(edit(edit(story, one, '#'), other, one), '#', other)
}

describe('checkGaps', () => {
  const gap = (from: string, to: string, keptFrom: string, token = 'A'): History => {
    const history = new History()
    history.gap('gap-delivered', 1, { token, from: at(from), to: at(to) }, at(keptFrom))
    return history
  }
  const facts = (history: History): Facts => gatherFacts(LEDGER, history.events, OPTIONS)

  test('P1: passes a gap of what is no longer kept, and one that is counted', () => {
    const history = gap('t2', 't4', 't3')
    history.gapCount(1, 1)
    expect(checkGaps(facts(history))).toEqual([])
  })

  test('P1: catches a gap that is not true, one that is not counted, and one that ends before it begins', () => {
    expect(checkGaps(facts(gap('t3', 't4', 't2')))).toHaveLength(1)
    expect(checkGaps(facts(gap('t2', 't2', 't3')))).toHaveLength(1)
    const history = gap('t2', 't4', 't3')
    history.gapCount(1, 0)
    expect(checkGaps(facts(history))).toHaveLength(1)
  })

  test('P1: a gap at the sink excuses what it covers, in its partition and in what came of it', () => {
    const missing = (token: string, from: string, to: string): string[] => {
      const history = new History()
      history.gap('gap-written', 1, { token, from: at(from), to: at(to) }, at('t8'))
      return facts(history).inRange.map(({ id }) => id)
    }
    expect(missing('A', 't3', 't4')).toEqual(['a2', 'a4x', 'a4y', 'b6', 'c7'])
    expect(missing('A', 't3', 't7')).toEqual(['a2', 'c7'])
    expect(missing('B', 't2', 't8')).toEqual(['a2', 'a3', 'a4x', 'a4y', 'c7'])
  })
})

describe('checkMovesAfterTheirPast', () => {
  const moves = [{ timestamp: at('t5'), from: 'A', to: 'B' }]
  const movedAfter = (...settled: string[]): Violation[] => {
    const history = new History()
    for (const id of settled) history.written(1, { id, key: 'k1', timestamp: at('t1') })
    history.delivered(1, { id: 'b6', key: 'k1' })
    return checkMovesAfterTheirPast(gatherFacts({ ...LEDGER, moves }, history.events, OPTIONS))
  }

  test('P4: what follows a move comes when everything up to it is settled', () => {
    expect(movedAfter('a2', 'a3', 'a4x', 'a4y')).toEqual([])
  })

  test('P4: one open change of where the range came from is caught', () => {
    expect(movedAfter('a2', 'a3', 'a4x')).toHaveLength(1)
  })
})
