import { afterEach, describe, expect, test, vi } from 'vitest'
import { type ListedPipeline, list } from '../../src/cli/list.ts'
import { type CliProject, cliProject, REPOSITORY } from './cli-project.ts'

const ORDERS = `
import { definePipeline } from 'millrace'
import { from } from 'millrace/sources'
import { fileSink, consoleSink } from 'millrace/sinks'
export default definePipeline({ source: from([]), sink: [fileSink({ path: 'never.jsonl' }), consoleSink()] })
setInterval(() => undefined, 1000)
`

let project: CliProject | undefined
afterEach(() => project?.[Symbol.dispose]())

describe('millrace list', () => {
  test('lists name, source and sinks, and why a file does not load', async () => {
    project = cliProject({
      'pipelines/orders.ts': ORDERS,
      'pipelines/broken.ts': "throw new Error('first line\\nsecond line')\nexport {}",
      'pipelines/empty.mjs': '',
    })
    const { code, stdout, stderr } = await project.millrace(['list'])
    expect(stdout.split('\n')).toEqual([
      'broken  ✗ pipelines/broken.ts:1: Error: first line',
      'empty   ✗ pipelines/empty.mjs has no default export',
      'orders  from  → fileSink, consoleSink',
      '',
    ])
    expect(stderr).toBe('')
    expect(code).toBe(0)
  })

  test('prints the same as JSON', async () => {
    project = cliProject({ 'pipelines/orders.ts': ORDERS, 'pipelines/empty.mjs': '' })
    const { code, stdout } = await project.millrace(['list', '--json'])
    expect(JSON.parse(stdout)).toEqual([
      { name: 'empty', file: 'pipelines/empty.mjs', error: 'pipelines/empty.mjs has no default export' },
      { name: 'orders', file: 'pipelines/orders.ts', source: 'from', sinks: ['fileSink', 'consoleSink'] },
    ])
    expect(code).toBe(0)
  })

  test('says what to do where there is no pipeline', async () => {
    project = cliProject()
    const { code, stdout } = await project.millrace(['list'])
    expect(stdout).toContain('millrace run demo')
    expect(code).toBe(0)
    expect(JSON.parse((await project.millrace(['list', '--json'])).stdout)).toEqual([])
  })

  test('goes on when a file does not load in time', async () => {
    project = cliProject({ 'pipelines/waits.mjs': 'await new Promise(() => undefined)', 'pipelines/x.mjs': '' })
    const write = vi.spyOn(process.stdout, 'write').mockReturnValue(true)
    try {
      await list({ json: true }, project.folder, 50)
      const listed = JSON.parse(String(write.mock.calls[0]?.[0])) as ListedPipeline[]
      expect(listed.map(({ name, error }) => [name, error])).toEqual([
        ['waits', 'pipelines/waits.mjs does not load within 0.05 s'],
        ['x', 'pipelines/x.mjs has no default export'],
      ])
    } finally {
      write.mockRestore()
    }
  })

  test('knows the built-in demo by its file', async () => {
    project = cliProject()
    const { stdout } = await project.start(['list'], {}, REPOSITORY).ended
    expect(stdout).toMatch(/^demo +simulated shop +→ fileSink$/m)
  })

  test('ends quietly when its reader has read enough', async () => {
    project = cliProject({ 'pipelines/orders.ts': ORDERS })
    const started = project.start(['list'])
    started.process.stdout?.destroy()
    const { code, stderr } = await started.ended
    expect(stderr).toBe('')
    expect(code).toBe(0)
  })
})
