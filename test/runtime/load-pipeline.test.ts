import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { ConfigError } from '../../src/core/errors.ts'
import { findPipeline, loadPipeline, pipelineFiles } from '../../src/runtime/load-pipeline.ts'
import { type CliProject, cliProject } from '../cli/cli-project.ts'

// What a file's own errors look like is tested through the command line, where Node itself loads the file.

let project: CliProject
beforeEach(() => {
  project = cliProject({
    'pipelines/orders.ts': 'export default { isPipeline: true }',
    'pipelines/orders.js': 'export default {}',
    'pipelines/plain.mjs': 'export default { isPipeline: true }',
    'pipelines/v1.2_x-y.mts': '',
    'pipelines/orders.test.ts': '',
    'pipelines/types.d.ts': '',
    'pipelines/README.md': '',
    'elsewhere/other.js': '',
  })
})
afterEach(() => project[Symbol.dispose]())

async function refused(promise: Promise<unknown>): Promise<ConfigError> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(ConfigError)
  return error as ConfigError
}

describe('pipelineFiles', () => {
  test('lists pipeline files by name, TypeScript before JavaScript, and nothing else', async () => {
    const files = await pipelineFiles(project.folder)
    expect(files).toEqual([
      { name: 'orders', path: join(project.folder, 'pipelines/orders.ts') },
      { name: 'plain', path: join(project.folder, 'pipelines/plain.mjs') },
      { name: 'v1.2_x-y', path: join(project.folder, 'pipelines/v1.2_x-y.mts') },
    ])
  })

  test('is empty where there is no such folder', async () => {
    expect(await pipelineFiles(join(project.folder, 'elsewhere'))).toEqual([])
  })
})

describe('findPipeline', () => {
  test.each([
    ['orders', 'orders', 'pipelines/orders.ts'],
    ['v1.2_x-y', 'v1.2_x-y', 'pipelines/v1.2_x-y.mts'],
    ['./elsewhere/other.js', 'other', 'elsewhere/other.js'],
    ['pipelines/orders.js', 'orders', 'pipelines/orders.js'],
  ])('finds %s', async (nameOrPath, name, path) => {
    expect(await findPipeline(nameOrPath, project.folder)).toEqual({ name, path: join(project.folder, path) })
  })

  test('names the nearest pipeline and lists the others', async () => {
    const error = await refused(findPipeline('ordesr', project.folder))
    expect(error.message).toBe("there is no pipeline 'ordesr' in ./pipelines")
    expect(error.hint).toBe("Did you mean 'orders'? There are: demo, orders, plain, v1.2_x-y.")
  })

  test.each(['..', '.hidden', 'a b', '', 'a\0b', 'x'.repeat(101), '%2e%2e'])('refuses the name %j', async (name) => {
    const error = await refused(findPipeline(name, project.folder))
    expect(error.message).toContain('letters, digits')
  })

  test('says that a file does not exist', async () => {
    const error = await refused(findPipeline('./nowhere/x.ts', project.folder))
    expect(error.message).toBe('there is no file ./nowhere/x.ts')
    expect(error.hint).toContain(project.folder)
  })

  test('refuses a folder and a file of another kind', async () => {
    mkdirSync(join(project.folder, 'folder.ts'))
    expect((await refused(findPipeline('folder.ts', project.folder))).message).toContain('is not a pipeline file')
    expect((await refused(findPipeline('./package.json', project.folder))).message).toContain('is not a pipeline file')
  })

  test('says so when a link leads nowhere', async () => {
    symlinkSync(join(project.folder, 'gone.ts'), join(project.folder, 'link.ts'))
    expect((await refused(findPipeline('link.ts', project.folder))).message).toBe('there is no file link.ts')
  })
})

describe('loadPipeline', () => {
  test('returns the default export', async () => {
    const file = await findPipeline('plain', project.folder)
    expect(await loadPipeline(file, project.folder)).toEqual({ isPipeline: true })
  })

  test.each([
    ['export const x = 1', 'has no default export'],
    ['export default 7', 'exports a number by default, not a pipeline'],
    ['export default null', 'exports null by default, not a pipeline'],
    ['export default []', 'exports a list by default, not a pipeline'],
    ['export default () => 1', 'exports a function by default, not a pipeline'],
    ['export default { name: "x" }', 'exports an object by default, not a pipeline'],
  ])('refuses a file that says %s', async (source, problem) => {
    const path = join(project.folder, 'pipelines/wrong.mjs')
    writeFileSync(path, source)
    const error = await refused(loadPipeline({ name: 'wrong', path }, project.folder))
    expect(error.message).toBe(`${join('pipelines', 'wrong.mjs')} ${problem}`)
    expect(error.hint).toContain('export default definePipeline(')
  })
})
