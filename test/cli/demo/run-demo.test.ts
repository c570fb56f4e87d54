import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type CliProject, cliProject, type StartedCli } from '../cli-project.ts'

let project: CliProject
beforeEach(() => {
  project = cliProject()
  mkdirSync(join(project.folder, 'tmp'))
})
afterEach(() => project[Symbol.dispose]())

/** The demo's temporary folder is made where the test can see it. */
function startDemo(env: NodeJS.ProcessEnv, ...args: string[]): StartedCli {
  return project.start(['run', 'demo', ...args], { ...env, TMPDIR: join(project.folder, 'tmp') })
}

function leftBehind(): string[] {
  return readdirSync(join(project.folder, 'tmp')).filter((name) => name.startsWith('millrace-demo-'))
}

/** Workers of this test's demo: their environment names its folder. Known on Linux only. */
function workers(): string[] {
  if (process.platform !== 'linux') return []
  return readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false
    try {
      return readFileSync(`/proc/${pid}/environ`, 'utf8').includes(`MILLRACE_DEMO_OUT=${project.folder}`)
    } catch {
      return false
    }
  })
}

function expectNothingLeft(): void {
  expect(leftBehind()).toEqual([])
  expect(workers()).toEqual([])
}

function numberOf(label: string, text: string): number {
  const [, digits = 'nothing'] = new RegExp(`${label} ([\\d,]+)`).exec(text) ?? []
  return Number(digits.replaceAll(',', ''))
}

describe('millrace run demo', () => {
  test('P1, P3: carries every change through splits and faults, in order per key', async () => {
    const { code, stdout, stderr } = await startDemo({}, '--seconds', '3', '--seed', '1').ended
    expect(stderr).toBe('')
    for (const text of ['seed 1', '✓ lost 0', '✓ out of order 0', 'worker crashes 0', 'Next:', 'run demo --crash']) {
      expect(stdout).toContain(text)
    }
    const committed = numberOf('\\n  committed', stdout)
    expect(committed).toBeGreaterThan(0)
    expect(numberOf(`committed ${committed.toLocaleString('en')}, delivered`, stdout)).toBe(committed)
    expect(code).toBe(0)
    expectNothingLeft()
  })

  test('P1, P3: carries every change while its worker is killed', async () => {
    const { code, stdout, stderr } = await startDemo({}, '--crash', '--seconds', '3', '--seed', '2').ended
    expect(stderr).toBe('')
    for (const text of ['✓ lost 0', '✓ out of order 0', 'crash: the worker was killed']) expect(stdout).toContain(text)
    expect(numberOf('worker crashes', stdout)).toBeGreaterThanOrEqual(2)
    expect(code).toBe(0)
    expectNothingLeft()
  })

  test('P11: stops selling at Ctrl-C, lets everything arrive and gives its verdict', async () => {
    const started = startDemo({}, '--forever', '--seed', '3')
    await started.printed(/delivered [1-9]/)
    started.process.kill('SIGINT')
    const { code, stdout } = await started.ended
    expect(stdout).toContain('✓ lost 0')
    expect(code).toBe(0)
    expectNothingLeft()
  })

  test('P11: ends at once at the second Ctrl-C', async () => {
    const started = startDemo({}, '--forever', '--seed', '4', '--rate', '2000')
    await started.printed(/delivered [1-9]/)
    started.process.kill('SIGINT')
    started.process.kill('SIGTERM')
    const { code } = await started.ended
    expect([130, 143]).toContain(code)
    expect(leftBehind()).toEqual([])
    await gone()
  })

  test('takes its worker along when it is killed itself', async () => {
    const started = startDemo({}, '--forever', '--seed', '5')
    await started.printed(/delivered [1-9]/)
    started.process.kill('SIGKILL')
    await started.ended
    await gone()
  })

  test('cleans up and shows no stack when nobody reads its output any more', async () => {
    const started = startDemo({}, '--forever', '--seed', '6')
    await started.printed(/delivered [1-9]/)
    started.process.stdout?.destroy()
    const { code, stderr } = await started.ended
    expect(stderr).toBe('')
    expect(code).toBe(1)
    expect(leftBehind()).toEqual([])
    await gone()
  })

  test('P12: says what its worker said when that ends by itself', async () => {
    const hook = join(project.folder, 'fail.mjs')
    const isWorker = "process.argv.some((argument) => argument.endsWith('demo.ts'))"
    writeFileSync(hook, `if (${isWorker}) { console.error('no luck today'); process.exit(1) }`)
    const { code, stderr } = await startDemo({ NODE_OPTIONS: `--import=${hook}` }, '--seed', '7').ended
    expect(stderr).toContain('error: the worker ended by itself')
    expect(stderr).toContain('no luck today')
    expect(stderr).not.toMatch(/\n\s+at .+:\d+/)
    expect(code).toBe(1)
    expectNothingLeft()
  })

  test('P12: its pipeline file says how to run it', async () => {
    const { code, stderr } = await project.millrace(['run', './node_modules/millrace/pipelines/demo.ts'])
    expect(stderr).toContain('MILLRACE_DEMO_DATABASE is not set')
    expect(stderr).toContain('npm run pipeline demo')
    expect(code).toBe(2)
  })
})

/** A killed process is gone a moment after its killer. */
async function gone(): Promise<void> {
  await expect.poll(workers, { timeout: 10_000 }).toEqual([])
}
