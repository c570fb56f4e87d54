import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { type CliProject, type CliResult, cliProject } from './cli-project.ts'

const SINK = `const sink = { name: 'listSink', async write(items) { console.log(JSON.stringify(items)) }, async close() {} }`
const OWN_STATE = `const store = memoryPartitionStore()`
const HEAD = `
import { definePipeline, SourceError, EnvironmentError } from 'millrace'
import { from } from 'millrace/sources'
import { map } from 'millrace/operators'
import { memoryPartitionStore } from 'millrace/stores'
${SINK}
${OWN_STATE}`
const NUMBERS = `${HEAD}
export default definePipeline({ source: from([1, 2, 3]), sink, store })
`
/** Delivers 1 and 2 and then waits for more, as a stream does. */
const ENDLESS = `${HEAD}
async function* numbers() {
  yield 1
  yield 2
  await new Promise((resolve) => setInterval(() => undefined, 1000))
}
export default definePipeline({ source: from(numbers()), sink, store })
`
/** Its sink never lets go. */
const STUCK = `${HEAD}
const stuck = { name: 'stuckSink', write: () => new Promise(() => setInterval(() => console.log('writing'), 50)), async close() {} }
export default definePipeline({ source: from([1, 2, 3]), sink: stuck, store })
`

let project: CliProject | undefined
afterEach(() => project?.[Symbol.dispose]())

function withFiles(files: Readonly<Record<string, string>>): CliProject {
  project = cliProject(files)
  return project
}

/** Runs one pipeline file by its name. */
async function runFile(source: string, args: readonly string[] = [], file = 'pipelines/x.ts'): Promise<CliResult> {
  return await withFiles({ [file]: source }).millrace(['run', 'x', ...args])
}

function expectError({ code, stderr, stdout }: CliResult, exitCode: number, ...texts: readonly string[]): void {
  for (const text of texts) expect(stderr).toContain(text)
  expect(stderr).toContain('error: ')
  expect(stderr).toContain('  → ')
  expect(stderr).not.toMatch(/\n\s+at .+:\d+/)
  expect(stdout).toBe('')
  expect(code).toBe(exitCode)
}

describe('millrace run', () => {
  test('runs a pipeline to its end, with the output of its sink alone on stdout', async () => {
    const { code, stdout, stderr } = await runFile(NUMBERS)
    expect(stdout).toBe('[1,2,3]\n')
    expect(stderr).toContain('x: from → listSink')
    expect(stderr).toMatch(/✓ finished: 3 written in \d+\.\d s/)
    expect(code).toBe(0)
  })

  test('runs a file by its path', async () => {
    const { millrace } = withFiles({ 'elsewhere/some.mts': NUMBERS })
    const { code, stdout } = await millrace(['run', './elsewhere/some.mts'])
    expect(stdout).toBe('[1,2,3]\n')
    expect(code).toBe(0)
  })

  test('logs JSON lines on request', async () => {
    const { stderr } = await runFile(NUMBERS, ['--log-format', 'json'])
    const lines = stderr
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
    expect(lines[0]).toMatchObject({ msg: 'start', pipeline: 'x', sinks: ['listSink'] })
    expect(lines.at(-1)).toMatchObject({ msg: 'end', outcome: 'finished', written: 3 })
  })

  test('P12: logs its failure as a JSON line too, whatever came before it', async () => {
    const { code, stderr } = await runFile('export default 7', ['--log-format=json'])
    expect(JSON.parse(stderr)).toMatchObject({ level: 50, code: 'CONFIG_INVALID' })
    expect(code).toBe(2)
  })

  test("runs the user's own pipeline of the demo's name", async () => {
    const { millrace } = withFiles({ 'pipelines/demo.ts': NUMBERS })
    expect((await millrace(['run', 'demo'])).stdout).toBe('[1,2,3]\n')
    expectError(await millrace(['run', 'demo', '--crash']), 2, "--crash is an option of the demo, not of 'demo'")
  })

  test('ends although the file left something open', async () => {
    const { code } = await runFile(`${NUMBERS}\nsetInterval(() => undefined, 1000)`)
    expect(code).toBe(0)
  })

  test('loads TypeScript from node_modules, where Node strips no types', async () => {
    const { millrace } = withFiles({
      'node_modules/other/package.json': '{ "type": "module" }',
      'node_modules/other/p.ts': `${NUMBERS}\nconst typed: number = 1\nvoid typed`,
    })
    const { code, stdout, stderr } = await millrace(['run', './node_modules/other/p.ts'])
    expect(stdout).toBe('[1,2,3]\n')
    expect(stderr).not.toContain('Warning')
    expect(code).toBe(0)
  })
})

describe('millrace run, with a pipeline that cannot be run', () => {
  test('P12: a name that is unknown', async () => {
    const { millrace } = withFiles({ 'pipelines/orders.ts': NUMBERS, 'pipelines/other.ts': NUMBERS })
    expectError(await millrace(['run', 'ordres']), 2, "no pipeline 'ordres'", "Did you mean 'orders'", 'other', 'demo')
  })

  test('P12: a name that would leave the folder', async () => {
    const { millrace } = withFiles({ 'secret.ts': NUMBERS })
    expectError(await millrace(['run', '..']), 2, 'letters, digits')
    expectError(await millrace(['run', '../pipelines/../nothing']), 2, 'there is no file ../pipelines/../nothing')
  })

  test('P12: a file that does not exist', async () => {
    expectError(await withFiles({}).millrace(['run', './a/b.ts']), 2, 'there is no file ./a/b.ts')
  })

  test('P12: TypeScript that cannot be parsed', async () => {
    const result = await runFile('const a: number = 1\nexport default { a: a a }\n')
    expectError(result, 2, 'pipelines/x.ts:2: syntax error: ')
  })

  test('P12: TypeScript that only a compiler understands', async () => {
    const result = await runFile('import "millrace"\n\nenum Colour { Red }\nexport default Colour\n')
    expectError(result, 2, 'pipelines/x.ts:3: ', 'enum', 'Node only strips types')
  })

  test.each(['ts', 'mjs', 'js'])('P12: what V8 itself refuses, in .%s', async (extension) => {
    const result = await runFile(
      'import "millrace"\nconst a = 1\nconst a = 2\nexport default a\n',
      [],
      `pipelines/x.${extension}`,
    )
    expectError(result, 2, `pipelines/x.${extension}:3: syntax error: Identifier 'a' has already been declared`)
  })

  test('P12: a name that the import does not have', async () => {
    const result = await runFile("import { parmap } from 'millrace/operators'\nexport default parmap\n")
    expectError(result, 2, 'pipelines/x.ts:1: ', "'parmap'", 'millrace/operators')
  })

  test('P12: an error thrown while the file loads', async () => {
    const source = "function f(): void {\n  throw new TypeError('boom')\n}\nf()\nexport {}\n"
    expectError(await runFile(source), 2, 'pipelines/x.ts:2: TypeError: boom', '--verbose')
  })

  test('P12: something else thrown while the file loads', async () => {
    expectError(await runFile('throw "text"\nexport {}'), 2, 'pipelines/x.ts: threw a string while loading')
  })

  test('P12: no default export, or another thing', async () => {
    expectError(
      await runFile('export const a = 1'),
      2,
      'pipelines/x.ts has no default export',
      'export default definePipeline(',
    )
    project?.[Symbol.dispose]()
    expectError(await runFile('export default 7'), 2, 'exports a number by default', 'export default definePipeline(')
  })

  test('P12: a package that is not installed', async () => {
    const result = await runFile("import { x } from '@acme/nothing/deep'\nexport default x")
    expectError(result, 2, "pipelines/x.ts: the package '@acme/nothing' is not installed", 'npm install @acme/nothing')
  })

  test('P12: an own file that is not there', async () => {
    const result = await runFile("import { x } from './helper'\nexport default x")
    expectError(result, 2, 'pipelines/x.ts: there is no file pipelines/helper', "'./x.ts'")
  })

  test('P12: an unknown option', async () => {
    const result = await runFile(NUMBERS.replace(', store', ',\n  stores: store'))
    expectError(result, 2, "definePipeline: there is no option 'stores'", 'pipelines/x.ts:', "Did you mean 'store'?")
  })

  test('P12: a file that waits for what never comes', async () => {
    const result = await runFile('await new Promise(() => undefined)\nexport default 1')
    expectError(result, 1, 'nothing is left to wait for', 'never settles')
  })

  test('shows stack and causes on request', async () => {
    const source = "throw new Error('outer', { cause: new RangeError('inner') })\nexport {}"
    const { code, stderr } = await runFile(source, ['--verbose'])
    expect(stderr).toContain('error: pipelines/x.ts:1: Error: outer')
    expect(stderr).toMatch(/\n\s+at .+x\.ts:1/)
    expect(stderr).toContain('RangeError: inner')
    expect(code).toBe(2)
  })
})

describe('millrace run, with a pipeline that fails', () => {
  const failing = (error: string): string => `${HEAD}
async function* numbers() { yield 1; throw ${error} }
export default definePipeline({ source: from(numbers()), sink, store })
`

  test.each([
    [
      "new EnvironmentError('spanner: cannot be reached', { hint: 'Start it.' })",
      3,
      ['spanner: cannot be reached', '  → Start it.'],
    ],
    ["new SourceError('history is gone', { code: 'SOURCE_HISTORY_EXPIRED' })", 4, ['history is gone']],
    ["new SourceError('cannot be read')", 1, ['cannot be read']],
  ])('P12: %s', async (error, exitCode, texts) => {
    const { code, stderr } = await runFile(failing(error))
    for (const text of texts) expect(stderr).toContain(text)
    expect(stderr).not.toMatch(/\n\s+at .+:\d+/)
    expect(code).toBe(exitCode)
  })

  test('P12: a step that throws is named, what it threw is not shown', async () => {
    const source = `${HEAD}
const fail = () => { throw new TypeError('row content') }
export default definePipeline({ source: from([1]), steps: (s) => s.pipe(map(fail)), sink, store, onError: () => 'stop' })
`
    const result = await runFile(source)
    expectError(result, 1, 'the callback threw TypeError', '--verbose')
    expect(result.stderr).not.toContain('row content')
  })

  test('P12: an error that escapes from the file is reported without a stack', async () => {
    const source = ENDLESS.replace(
      '  yield 2\n',
      "  yield 2\n  setImmediate(() => { throw new Error('row content') })\n",
    )
    const { code, stderr } = await runFile(source)
    expect(stderr).toContain('error: unexpected Error')
    expect(stderr).not.toContain('row content')
    expect(stderr).not.toMatch(/\n\s+at .+:\d+/)
    expect(code).toBe(1)
  })
})

describe('millrace run, told to stop', () => {
  test.each(['SIGINT', 'SIGTERM'] as const)('P11: drains at the first %s and ends with 0', async (signal) => {
    const started = withFiles({ 'pipelines/x.ts': ENDLESS }).start(['run', 'x'])
    await started.printed('[2]')
    started.process.kill(signal)
    const { code, stderr } = await started.ended
    expect(stderr).toContain('draining: ')
    expect(stderr).toContain('✓ drained: 2 written')
    expect(code).toBe(0)
  })

  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('P11: stops at once at the second signal, %s, and ends with %d', async (signal, exitCode) => {
    const started = withFiles({ 'pipelines/x.ts': STUCK }).start(['run', 'x'])
    await started.printed('writing')
    started.process.kill('SIGTERM')
    await started.printed('draining: 3 in flight')
    started.process.kill(signal)
    const { code, stderr } = await started.ended
    expect(stderr).toContain('closing at once')
    expect(code).toBe(exitCode)
  })

  test('leaves no stack when nobody reads its output any more', async () => {
    const endless = `${HEAD}
async function* numbers() { for (let n = 0; ; n++) yield n }
export default definePipeline({ source: from(numbers()), sink: consoleSink(), store })
`.replace('import { map }', "import { consoleSink } from 'millrace/sinks'\nimport { map }")
    const started = withFiles({ 'pipelines/x.ts': endless }).start(['run', 'x'])
    await started.printed('100')
    started.process.stdout?.destroy()
    const { code, stderr } = await started.ended
    expect(stderr).toContain('error: ')
    expect(stderr).not.toMatch(/\n\s+at .+:\d+/)
    expect(code).toBe(1)
  })
})

describe('millrace run, wrong use', () => {
  test.each([
    [['run'], "missing required argument 'pipeline'", 'There are: demo, x.'],
    [['run', 'x', '--verbos'], "unknown option '--verbos'", 'Did you mean --verbose?'],
    [['run', 'x', '--nonsense'], "unknown option '--nonsense'", 'millrace run --help'],
    [['run', 'x', '--on-held', 'maybe'], '--on-held', 'millrace run --help'],
    [['run', 'x', '--crash'], "--crash is an option of the demo, not of 'x'", 'millrace run demo --crash'],
    [['run', 'x', '--seed', '5'], "--seed is an option of the demo, not of 'x'", 'millrace run demo --seed'],
    [['run', 'demo', '--seed', 'x'], "'--seed <n>' argument 'x' is invalid", 'millrace run --help'],
    [['run', 'demo', '--seconds', '3', '--forever'], 'cannot be used with', 'millrace run --help'],
    [['run', 'x', 'y'], 'too many arguments', 'millrace run --help'],
    [['rnu', 'x'], "unknown command 'rnu'", 'Did you mean run?'],
    [['x'], "unknown command 'x'", 'millrace run x'],
    [['--versio'], "unknown option '--versio'", 'Did you mean --version?'],
  ])('P12: %j', async (args, message, hint) => {
    const { millrace } = withFiles({ 'pipelines/x.ts': NUMBERS })
    expectError(await millrace(args), 2, message, hint)
  })

  test('P12: options that npm kept for itself', async () => {
    const { millrace } = withFiles({})
    const env = { npm_lifecycle_event: 'pipeline', npm_config_crash: 'true' }
    expectError(
      await millrace(['run', 'demo'], env),
      2,
      'npm took --crash for itself',
      'npm run pipeline <name> -- --crash',
    )
  })

  test('P12: --json that npm kept for itself, unless it came through as well', async () => {
    const { millrace } = withFiles({})
    const env = { npm_lifecycle_event: 'millrace', npm_config_json: 'true' }
    expectError(await millrace(['list'], env), 2, 'npm took --json for itself', 'npm run millrace <command> -- --json')
    expect((await millrace(['list', '--json'], env)).code).toBe(0)
  })

  test('P12: an older Node', async () => {
    const { folder, millrace } = withFiles({
      'older.mjs': "Object.defineProperty(process, 'versions', { value: { node: '22.18.0' } })",
    })
    const { code, stderr } = await millrace(['list'], { NODE_OPTIONS: `--import=${join(folder, 'older.mjs')}` })
    expect(stderr).toContain('error: Millrace needs Node 24 or newer, this is 22.18.0')
    expect(stderr).toContain('npm ci (without --ignore-scripts)')
    expect(code).toBe(3)
  })
})

describe('millrace', () => {
  test('explains its commands', async () => {
    const { millrace } = withFiles({})
    const { code, stdout, stderr } = await millrace(['--help'])
    for (const text of ['run', 'list', 'Examples:', 'millrace run demo --crash']) expect(stdout).toContain(text)
    expect(stderr).toBe('')
    expect(code).toBe(0)
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
  })

  test('explains run with examples, exit codes and environment', async () => {
    const { code, stdout } = await withFiles({}).millrace(['run', '--help'])
    for (const text of ['Examples:', 'Exit codes:', 'history expired', '130,143', 'SPANNER_EMULATOR_HOST', '--crash']) {
      expect(stdout).toContain(text)
    }
    expect(code).toBe(0)
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
  })

  test('prints its version', async () => {
    const { code, stdout } = await withFiles({}).millrace(['--version'])
    const { version } = JSON.parse(readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8')) as {
      version: string
    }
    expect(stdout).toBe(`${version}\n`)
    expect(code).toBe(0)
  })

  test('prints its help on stderr when nothing is asked', async () => {
    const { code, stdout, stderr } = await withFiles({}).millrace([])
    expect(stdout).toBe('')
    expect(stderr).toContain('Usage: millrace')
    expect(code).toBe(2)
  })
})
