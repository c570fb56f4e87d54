/** P1 to P11 over random lives of a pipeline, in simulated time: 2,400 schedules in four parts. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { wireClient } from '../support/wire-client.ts'
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
        expect((await runSchedule(schedule, wireClient)).violations).toEqual([])
      })
      // A failure prints the smallest schedule that still fails, and the command that repeats it.
      const result = await fc.check(holds, { seed, numRuns: SCHEDULES_A_PART })
      if (!result.failed) return
      const command = `npm run soak -- --seed ${seed} --path ${result.counterexamplePath}`
      throw new Error(`${fc.defaultReportMessage(result)}\n\nrepeat with: ${command}`, { cause: result.errorInstance })
    })
  }
})
