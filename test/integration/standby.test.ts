/** Two real processes on one store: one works, the other stands by, takes over, or learns that it was replaced. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { CrashSite, type CrashWorker } from '../support/crash-harness.ts'

let compileCache = ''
beforeAll(() => {
  compileCache = mkdtempSync(join(tmpdir(), 'millrace-compiled-'))
})
afterAll(() => {
  rmSync(compileCache, { recursive: true, force: true })
})

const ROWS = 8
/** So long that no test would outlast it: whoever takes over was let in, or has seen it end. */
const LONG_LEASE_MS = 600_000
/** It runs out in the test, but not while a process on a loaded machine is at work. */
const SHORT_LEASE_MS = 3_000

interface Pair extends AsyncDisposable {
  readonly site: CrashSite
  readonly first: CrashWorker
  readonly second: CrashWorker
}

/** The first worker has written a round of changes; the second one is loaded and has no orders. */
async function workingPair(leaseMs: number): Promise<Pair> {
  const site = await CrashSite.open(31, compileCache)
  const first = site.spawn()
  const second = site.spawn()
  site.commitRounds(1, ROWS)
  first.start(site.orders({ owner: 'first', leaseMs }))
  await first.wrote(ROWS)
  return { site, first, second, [Symbol.asyncDispose]: () => site[Symbol.asyncDispose]() }
}

describe('a second process on the same store and name', () => {
  test('P10: stands by, says who holds the lease, and reads nothing', async () => {
    await using pair = await workingPair(LONG_LEASE_MS)
    const { site, first, second } = pair
    const queriesOfFirst = site.served.openQueries

    second.start(site.orders({ owner: 'second', outPath: join(site.folder, 'second.jsonl') }))
    const { message } = await second.heard('log', ({ message }) => message.includes('standing by'))
    site.commitRounds(1, ROWS)
    await first.wrote(2 * ROWS)

    expect(message).toContain('first')
    expect(site.served.openQueries).toBe(queriesOfFirst)
    expect(second.reports.some(({ kind }) => kind === 'written')).toBe(false)
  })

  test('P1 P3 P10: takes over when the first is killed: nothing is missing and order holds', async () => {
    await using pair = await workingPair(SHORT_LEASE_MS)
    const { site, first, second } = pair
    second.start(site.orders({ owner: 'second' }))
    await second.heard('log', ({ message }) => message.includes('standing by'))

    await first.kill()
    site.commitRounds(2, ROWS)
    await site.allWritten(second)

    expect(site.violations(site.lastCommit)).toEqual([])
  })

  test('P6 P10: takes over at once when the first has drained, and repeats nothing', async () => {
    await using pair = await workingPair(LONG_LEASE_MS)
    const { site, first, second } = pair
    second.start(site.orders({ owner: 'second', leaseMs: LONG_LEASE_MS }))
    await second.heard('log', ({ message }) => message.includes('standing by'))

    first.drain()
    await first.heard('ended', ({ outcome }) => outcome === 'drained')
    site.commitRounds(1, ROWS)
    await second.wrote(ROWS)

    expect(site.violations(site.lastCommit)).toEqual([])
    expect(site.lines()).toHaveLength(2 * ROWS)
  })

  test("P10: fails with an EnvironmentError that names the holder when onHeld is 'exit'", async () => {
    await using pair = await workingPair(LONG_LEASE_MS)
    const { site, second } = pair
    second.start(site.orders({ owner: 'second', onHeld: 'exit' }))

    const { name, message } = await second.heard('failed')
    expect(name).toBe('EnvironmentError')
    expect(message).toContain('already run by first')
  })
})

describe('a process that was stopped for longer than its lease', () => {
  test('P10: changes nothing in the store when it wakes up, and ends with STORE_CONFLICT', async () => {
    await using pair = await workingPair(SHORT_LEASE_MS)
    const { site, first, second } = pair
    first.signal('SIGSTOP')
    // A file of its own: the two are at work at the same time, as far as the first one knows.
    second.start(site.orders({ owner: 'second', outPath: join(site.folder, 'second.jsonl') }))
    site.commitRounds(2, ROWS)
    await second.wrote(2 * ROWS)
    second.drain()
    await second.heard('ended')
    const before = await site.partitions()

    first.signal('SIGCONT')
    const { name, code } = await first.heard('failed')
    await first.exited
    expect({ name, code }).toEqual({ name: 'StoreError', code: 'STORE_CONFLICT' })
    expect(await site.partitions()).toEqual(before)
    expect(before.filter(({ state }) => state === 'RUNNING').map(({ epoch }) => epoch)).toEqual([2, 2])
  })
})
