/** The README's code is code: every block compiles, and those that need no Spanner run and print what they say. */
import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

const run = promisify(execFile)
const root = join(import.meta.dirname, '../..')
/** Inside the repository, so that `millrace` resolves; git ignores it. */
const folder = join(root, '.millrace', `readme-${process.pid}`)

const blocks = readFileSync(join(root, 'README.md'), 'utf8')
  .split('```ts\n')
  .slice(1)
  .map((rest) => rest.slice(0, rest.indexOf('```')))

beforeAll(() => {
  mkdirSync(folder, { recursive: true })
  for (const [index, block] of blocks.entries()) writeFileSync(join(folder, `block-${index}.ts`), block)
})

afterAll(() => rmSync(folder, { recursive: true, force: true }))

describe('README', () => {
  test('its code compiles', async () => {
    expect(blocks.length).toBeGreaterThanOrEqual(5)
    const config = { extends: join(root, 'tsconfig.json'), include: ['*.ts'] }
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config))
    const tsc = join(root, 'node_modules/typescript/bin/tsc')
    const { stdout } = await run(process.execPath, [tsc, '-p', folder]).catch((error: { stdout: string }) => error)
    expect(stdout).toBe('')
  })

  test.each([
    ['const batches', '[ 2, 4 ]\n[ 6, 8 ]\n[ 10 ]\n'],
    ['new SimulatedStream', 'finished 2\n'],
  ])('the block with %j prints what it says', async (word, output) => {
    const index = blocks.findIndex((block) => block.includes(word))
    const file = join(folder, `block-${index}.ts`)
    const { stdout } = await run(process.execPath, ['--conditions=@millrace/source', file], { cwd: folder })
    expect(stdout).toBe(output)
  })

  test('holds the two commands on its first screen', () => {
    const firstScreen = readFileSync(join(root, 'README.md'), 'utf8').split('\n').slice(0, 30).join('\n')
    expect(firstScreen).toContain('npm ci && npm run pipeline demo')
    expect(firstScreen).toContain('npm ci && npm test')
  })
})
