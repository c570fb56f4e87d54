/** P1 to P11 over random lives of a pipeline, in simulated time: 2,400 schedules in four parts. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { anySchedule, runSchedule } from './schedule.ts'

/** The same in every run, so that a red build means a changed program; `MILLRACE_SEED=n` tries others. */
const SEED = Number(process.env.MILLRACE_SEED ?? 20_261_118)
const PARTS = 4
const SCHEDULES_A_PART = 600

describe('random schedules in simulated time', () => {
  for (let part = 0; part < PARTS; part++) {
    const seed = SEED + part
    test(`P1-P11: every promise holds against the ledger (seed ${seed})`, { timeout: 300_000 }, async () => {
      const holds = fc.asyncProperty(anySchedule, async (schedule) => {
        expect((await runSchedule(schedule)).violations).toEqual([])
      })
      // A failure prints fast-check's seed and path, and the smallest schedule that still fails.
      await fc.assert(holds, { seed, numRuns: SCHEDULES_A_PART })
    })
  }
})
