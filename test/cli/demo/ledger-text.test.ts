import { describe, expect, test } from 'vitest'
import { faultCounts, faultText, topologyCounts, topologyText } from '../../../src/cli/demo/ledger-text.ts'
import { shortName } from '../../../src/cli/demo/lineage.ts'
import { SimulatedStream } from '../../../src/simulator/index.ts'

const place = { token: 'abc', query: 1, message: 1, atMs: 0 }

describe('topologyCounts', () => {
  test('counts splits, moves and merges, but not the beginning', () => {
    const stream = new SimulatedStream({ seed: 1, initialPartitions: 1 })
    const [left, right] = stream.split(stream.livePartitions()[0]!.token) as [string, string]
    stream.merge(stream.move(left), right)
    expect(topologyCounts(stream.ledger.topology)).toEqual({ split: 1, move: 1, merge: 1 })
  })
})

describe('topologyText', () => {
  test('names parents and children', () => {
    const event = { kind: 'merge', timestamp: '', parents: ['a', 'b'], children: ['c'] } as const
    expect(topologyText(event)).toBe(`merge: ${shortName('a')} + ${shortName('b')} → ${shortName('c')}`)
  })

  test('has nothing to say about the beginning', () => {
    expect(topologyText({ kind: 'create', timestamp: '', parents: [], children: ['c'] })).toBeUndefined()
  })
})

describe('faultCounts', () => {
  test('counts errors by their code and other faults by their kind', () => {
    const error = { ...place, kind: 'error', code: 'ABORTED' } as const
    expect(faultCounts([error, error, { ...place, kind: 'stall' }])).toEqual({ ABORTED: 2, stall: 1 })
  })
})

describe('faultText', () => {
  test('says what and where', () => {
    expect(faultText({ ...place, kind: 'error', code: 'ABORTED' })).toBe(`fault: ABORTED on ${shortName('abc')}`)
    expect(faultText({ ...place, kind: 'stall', token: null })).toBe('fault: stall on the first query')
    expect(faultText({ ...place, kind: 'kill-connection' })).toBe('fault: kill-connection')
  })
})
