/** Runs seeds until one breaks a promise, and prints what was caught as JSON: `hunt.ts <promise|any> <seeds>`. */
import { runSchedule, scheduleOfSeed } from '../properties/schedule.ts'
import type { Promised } from '../support/auditor.ts'

export interface Catch {
  /** The first seed that breaks the promise. */
  readonly seed: number
  /** All promises that it breaks. */
  readonly promises: readonly Promised[]
  readonly message: string
  /** The first seed that breaks any promise. */
  readonly firstSeed: number
}

async function hunt(promise: string, seeds: number): Promise<Catch | undefined> {
  let firstSeed: number | undefined
  for (let seed = 1; seed <= seeds; seed++) {
    const { violations } = await runSchedule(scheduleOfSeed(seed))
    if (violations.length === 0) continue
    firstSeed ??= seed
    const broken = violations.find((violation) => promise === 'any' || violation.promise === promise)
    if (broken === undefined) continue
    const promises = [...new Set(violations.map((violation) => violation.promise))]
    return { seed, promises, message: broken.message, firstSeed }
  }
  return undefined
}

const [promise = 'any', seeds = '200'] = process.argv.slice(2)
console.log(JSON.stringify((await hunt(promise, Number(seeds))) ?? null))
// A bug may leave work behind that would keep the process alive.
process.exit(0)
