/** Started by `npm run`: npm and its shell stand between the signals and the run. */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { type CliProject, cliProject, REPOSITORY } from './cli-project.ts'

const ENDLESS = `
import { definePipeline } from 'millrace'
import { from } from 'millrace/sources'
async function* numbers() {
  yield 1
  await new Promise((resolve) => setInterval(() => undefined, 1000))
}
// Still at work when the signal comes, so that a second signal would find something to cut off.
const write = ([item]) => { console.log(item); return new Promise((resolve) => setTimeout(resolve, 700)) }
export default definePipeline({ source: from(numbers()), sink: { name: 'slowSink', write, async close() {} } })
`
const COMMAND = `node --conditions=@millrace/source ${join(REPOSITORY, 'src/cli/main.ts')} run`

let project: CliProject | undefined
let group: number | undefined
afterEach(() => {
  // A run that did not heed its signal must not outlive the test.
  try {
    if (group !== undefined) process.kill(-group, 'SIGKILL')
  } catch {
    // Nothing is left of it, as it should be.
  }
  project?.[Symbol.dispose]()
})

/** Its own process group, as a terminal gives to what it starts. */
function startWithNpm(script: string): {
  npm: ChildProcess
  ended: Promise<{ code: number | null; output: string }>
  ready: Promise<void>
} {
  project = cliProject({
    'package.json': JSON.stringify({ type: 'module', scripts: { pipeline: script } }),
    'pipelines/x.ts': ENDLESS,
  })
  const { npm_lifecycle_event: _, ...env } = process.env
  const npm = spawn('npm', ['run', '--silent', 'pipeline', 'x'], {
    cwd: project.folder,
    detached: true,
    env: { ...env, PATH: `${join(process.execPath, '..')}:${env.PATH}` },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  group = npm.pid
  let output = ''
  const { promise: ready, resolve } = Promise.withResolvers<void>()
  for (const stream of [npm.stdout!, npm.stderr!]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text
      if (output.includes('\n1\n') || output.startsWith('1\n')) resolve()
    })
  }
  // 'close' waits for the output of the run itself, which outlives npm.
  const ended = new Promise<{ code: number | null; output: string }>((done) => {
    npm.on('close', (code) => done({ code, output }))
  })
  return { npm, ended, ready }
}

describe.skipIf(process.platform === 'win32')('millrace run, under npm', () => {
  test('P11: drains when npm is told to stop, also if its shell passes nothing on', async () => {
    // The second command keeps the shell between npm and the run.
    const { npm, ended, ready } = startWithNpm(`f() { ${COMMAND} "$@"; true; }; f`)
    await ready
    npm.kill('SIGTERM')
    expect((await ended).output).toContain('✓ drained: 1 written')
  })

  test('P11: takes one Ctrl-C for one, though the terminal sends it and npm passes it on', async () => {
    const { npm, ended, ready } = startWithNpm(`exec ${COMMAND}`)
    await ready
    process.kill(-npm.pid!, 'SIGINT')
    const { code, output } = await ended
    expect(output).toContain('✓ drained: 1 written')
    expect(output).not.toContain('closing at once')
    expect(code).toBe(0)
  })
})
