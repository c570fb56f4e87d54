import { afterEach, describe, expect, test } from 'vitest'
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
