/** Plants a bug in a copy of the sources and lets a child process hunt for it there. */
import { execFile } from 'node:child_process'
import { cp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Catch } from './hunt.ts'
import type { Edit, PlantedBug } from './planted-bugs.ts'

export interface HuntOptions {
  /** Folder for the copy, inside the repository so that its packages are found. */
  readonly folder: string
  readonly seeds: number
}

/** Runs the seeds on a copy with these edits; undefined if no seed broke the promise. `any` stands for all promises. */
export async function huntInCopy(
  promise: PlantedBug['promise'] | 'any',
  edits: readonly Edit[],
  { folder, seeds }: HuntOptions,
): Promise<Catch | undefined> {
  try {
    await copyTree(folder)
    for (const edit of edits) await plant(folder, edit)
    const script = join(folder, 'test/mutants/hunt.ts')
    const { stdout } = await run(process.execPath, [...NODE_FLAGS, script, promise, String(seeds)], {
      timeout: MAX_HUNT_MS,
      killSignal: 'SIGKILL',
    })
    return (JSON.parse(stdout) as Catch | null) ?? undefined
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function copyTree(folder: string): Promise<void> {
  const filter = (path: string): boolean => !path.endsWith('.test.ts')
  for (const part of ['src', 'test/properties', 'test/support', 'test/mutants/hunt.ts']) {
    await cp(join(ROOT, part), join(folder, part), { recursive: true, filter })
  }
}

/** The text must occur once: a bug that no longer applies, or applies twice, would prove nothing. */
async function plant(folder: string, { file, find, replace }: Edit): Promise<void> {
  const path = join(folder, file)
  const parts = (await readFile(path, 'utf8')).split(find)
  if (parts.length !== 2) {
    throw new Error(
      `${file} holds ${JSON.stringify(find)} ${parts.length - 1} times instead of once: adapt the planted bug`,
    )
  }
  await writeFile(path, parts.join(replace))
}

const run = promisify(execFile)
const ROOT = join(import.meta.dirname, '../..')
const NODE_FLAGS = ['--conditions=@millrace/source', '--disable-warning=ExperimentalWarning']
/** A bug may make the code spin: then the hunt ends here. */
const MAX_HUNT_MS = 50_000
