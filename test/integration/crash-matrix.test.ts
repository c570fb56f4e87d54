/** Kills real worker processes around every durable step and looks at what the next one makes of it. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { changeId } from '../../src/model/data-change-record.ts'
import { SeededRandom } from '../../src/simulator/index.ts'
import { CrashSite, randomFreeze } from '../support/crash-harness.ts'
import type { Step } from '../support/crash-worker.ts'

// Every case starts processes that load the same modules: they share what the first one compiled.
let compileCache = ''
beforeAll(() => {
  compileCache = mkdtempSync(join(tmpdir(), 'millrace-compiled-'))
})
afterAll(() => {
  rmSync(compileCache, { recursive: true, force: true })
})

// The first end is that of the root, which is its finish as well.
const STEPS: readonly [step: Step, what: string, occurrences: readonly number[]][] = [
  ['children', 'child rows are stored', [1, 3]],
  ['end', 'the child record is acked', [3]],
  ['checkpoint', 'a checkpoint is written', [1, 5]],
  ['finish', 'a partition is finished', [1, 4]],
  ['line', 'a line is written', [1, 30]],
]
const CASES = STEPS.flatMap(([step, what, occurrences]) =>
  (['before', 'after'] as const).flatMap((side) => occurrences.map((occurrence) => ({ step, what, side, occurrence }))),
)

describe('a worker killed with SIGKILL', () => {
  test.each(CASES)(
    'P1 P3: killed $side $what (number $occurrence): nothing is missing and order holds',
    async ({ step, side, occurrence }) => {
      await using site = await CrashSite.open(1000 + occurrence, compileCache)
      site.commitHistory(2)
      const end = site.lastCommit
      const successor = site.spawn()
      await site.runToKill({ step, side, occurrence })
      await site.runToEnd(end, successor)

      expect(site.violations(end)).toEqual([])
      const states = new Set((await site.partitions()).map(({ state }) => state))
      expect([...states]).toEqual(['FINISHED'])
    },
  )

  test('P6: killed long after the last checkpoint, it repeats nothing that a checkpoint covers', async () => {
    await using site = await CrashSite.open(7, compileCache)
    site.commitHistory(2)
    const end = site.lastCommit
    const successor = site.spawn()
    await site.runToKill({ step: 'line', side: 'after', occurrence: 40 })
    const stored = new Map((await site.partitions()).map((partition) => [partition.token, partition]))
    const linesBefore = site.lines().length
    await site.runToEnd(end, successor)

    const repeated = site.lines().slice(linesBefore)
    const covered = repeated.filter((change) => {
      const { state, watermark, boundaryIds } = stored.get(change.record.partitionToken) ?? {}
      if (state === undefined || watermark === undefined) return false
      if (state === 'FINISHED' || change.commitTimestamp < watermark) return true
      return change.commitTimestamp === watermark && boundaryIds?.includes(changeId(change))
    })
    expect(covered).toEqual([])
    expect(site.violations(end)).toEqual([])
  })

  test('P1 P3: killed 15 times in a row at random steps: nothing is missing and order holds', async () => {
    const seed = 20261118
    const random = new SeededRandom(seed)
    await using site = await CrashSite.open(seed, compileCache)
    site.commitHistory(12)
    const end = site.lastCommit
    let spare = site.spawn()
    for (let kill = 1; kill <= 15; kill++) {
      const worker = spare
      // It loads while this one works.
      spare = site.spawn()
      await site.runToKill(randomFreeze(random, 30), worker)
    }
    await site.runToEnd(end, spare)

    expect(site.violations(end), `seed ${seed}`).toEqual([])
  })
})
