/** The auditor's own test: with each planted bug some schedule must break the promise that the bug belongs to. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import PQueue from 'p-queue'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Catch } from './hunt.ts'
import { huntInCopy } from './mutant-copy.ts'
import { type PlantedBug, plantedBugs } from './planted-bugs.ts'

const SEEDS = 200
// Git ignores this folder, and packages are found from it.
const IGNORED = join(import.meta.dirname, '../../.millrace')
const hunts = new PQueue({ concurrency: 2 })
let folder: string

beforeAll(async () => {
  await mkdir(IGNORED, { recursive: true })
  folder = await mkdtemp(join(IGNORED, 'mutants-'))
})

afterAll(async () => {
  await rm(folder, { recursive: true, force: true })
})

describe('audit', () => {
  test.concurrent(`no promise is broken within ${SEEDS} seeds of a copy without a bug`, async () => {
    expect(await hunt('any', { name: 'no bug', edits: [] })).toBeUndefined()
  })

  for (const bug of plantedBugs) {
    test.concurrent(`${bug.promise}: the auditor catches '${bug.name}' within ${SEEDS} seeds`, async () => {
      const caught = await hunt(bug.promise, bug)
      expect(caught, `no seed up to ${SEEDS} breaks ${bug.promise}`).toBeDefined()
      const { seed, promises } = caught!
      expect(promises).toContain(bug.promise)
      console.log(`${bug.promise}: '${bug.name}' is caught at seed ${seed}, which breaks ${promises.join(', ')}`)
    })
  }
})

describe('huntInCopy', () => {
  test.concurrent('refuses a bug whose text is not found once', async () => {
    const edits = [{ file: 'src/core/attempt.ts', find: 'a text that is not there', replace: '' }]
    await expect(hunt('any', { name: 'gone', edits })).rejects.toThrow(/0 times instead of once/)
  })
})

async function hunt(
  promise: PlantedBug['promise'] | 'any',
  { name, edits }: Pick<PlantedBug, 'name' | 'edits'>,
): Promise<Catch | undefined> {
  const copy = join(folder, name.replaceAll(' ', '-'))
  return await hunts.add(() => huntInCopy(promise, edits, { folder: copy, seeds: SEEDS }))
}
