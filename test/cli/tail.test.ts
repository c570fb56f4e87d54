/** The command against a served stream: what is printed, and every way it ends. */
import { execFileSync } from 'node:child_process'
import { closeSync, openSync, read, readdirSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type ServedStream, SimulatedStream, serveStream } from '../../src/simulator/index.ts'
import { type CliProject, type CliResult, cliProject, type StartedCli } from './cli-project.ts'

const stream = new SimulatedStream({ seed: 1 })
let served: ServedStream
let project: CliProject
let nextId = 2
const closers: (() => unknown)[] = []

beforeAll(async () => {
  const id = { name: 'Id', type: 'INT64', isPrimaryKey: true } as const
  stream.defineTable({ name: 'Orders', columns: [id, { name: 'Note', type: 'STRING' }] })
  stream.defineTable({ name: 'Items', columns: [id] })
  served = await serveStream(stream)
  project = cliProject()
})
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})
afterAll(async () => {
  project[Symbol.dispose]()
  await served.close()
})

function insert(table = 'Orders', values = {}): string {
  const id = String(nextId++)
  stream.commit([{ table, op: 'insert', keys: { Id: id }, ...(table === 'Orders' && { values }) }])
  return id
}

function args(more: readonly string[] = []): string[] {
  return ['tail', '--database', served.database, '--stream', served.stream, ...more]
}

function start(more: readonly string[] = [], host = served.host, stdout?: number): StartedCli {
  const cli = project.start(args(more), { SPANNER_EMULATOR_HOST: host }, undefined, stdout)
  closers.push(() => cli.process.kill('SIGKILL'))
  return cli
}

async function run(more: readonly string[] = [], host = served.host): Promise<CliResult> {
  return await start(more, host).ended
}

function expectError({ code, stderr }: CliResult, exitCode: number, ...texts: readonly string[]): void {
  for (const text of texts) expect(stderr).toContain(text)
  expect(stderr).toContain('error: ')
  expect(stderr).not.toMatch(/\n\s+at .+:\d+/)
  expect(code).toBe(exitCode)
}

describe('millrace tail', () => {
  test('prints what is committed while it runs, through splits and merges, until Ctrl-C', async () => {
    const cli = start(['--start', stream.now()])
    const [first] = stream.livePartitions()
    const ids = [insert()]
    const [left, right] = stream.split(first!.token)
    ids.push(insert())
    stream.merge(left!, right!)
    ids.push(insert())
    for (const id of ids) await cli.printed(new RegExp(`  insert  Orders  Id=${id}  `))
    cli.process.kill('SIGINT')
    const { code, stdout, stderr } = await cli.ended
    expect(stdout.trimEnd().split('\n')).toHaveLength(ids.length)
    expect(stdout).not.toContain('\u001b')
    expect(stderr).toMatch(/^3 changes from \d+ partitions\n$/)
    expect(code).toBe(0)
  })

  test('ends by itself at --end, with the tables that were asked for as JSON', async () => {
    const from = stream.now()
    const order = insert('Orders', { Note: '\u001b[2J\u009b' })
    const end = stream.commit([{ table: 'Items', op: 'insert', keys: { Id: '1' } }])
    const { code, stdout, stderr } = await run(['--start', from, '--end', end, '--table', 'Orders', '--json'])
    const lines = stdout.trimEnd().split('\n')
    expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { table: 'Orders', op: 'insert', keys: { Id: order }, newValues: { Note: '\u001b[2J\u009b' } },
    ])
    expect(stdout).not.toMatch(/(?!\n)\p{Cc}/u)
    expect(stderr).toMatch(/^1 change from \d+ partitions; left out: Items\n$/)
    expect(code).toBe(0)
  })

  test('takes several tables and a relative end', async () => {
    const from = stream.now()
    insert()
    insert('Items')
    const { code, stdout } = await run(['--start', from, '--end', '+1s', '--table', 'Orders', '--table', 'Items'])
    expect(stdout).toMatch(/ Orders .*\n/)
    expect(stdout).toMatch(/ Items .*\n/)
    expect(code).toBe(0)
  })

  test('leaves nothing in the folder', async () => {
    expect(readdirSync(project.folder).sort()).toEqual(['node_modules', 'package.json'])
  })

  test('ends quietly when the reader of its output goes away', async () => {
    const cli = start(['--start', stream.now()])
    insert()
    await cli.printed('insert')
    cli.process.stdout!.destroy()
    const committing = setInterval(() => insert(), 20)
    closers.push(() => clearInterval(committing))
    const { code, stderr } = await cli.ended
    expect(stderr).toBe('')
    expect(code).toBe(0)
  })
})

describe('millrace tail, told to stop', () => {
  test.each(['SIGINT', 'SIGTERM'] as const)('ends with 0 at %s while nothing comes', async (signal) => {
    const cli = start()
    await expect.poll(() => served.openQueries, { timeout: 20_000 }).toBeGreaterThan(0)
    cli.process.kill(signal)
    const { code, stdout, stderr } = await cli.ended
    expect(stdout).toBe('')
    expect(stderr).toMatch(/^0 changes from \d+ partitions?\n$/)
    expect(code).toBe(0)
    await expect.poll(() => served.openQueries).toBe(0)
  })

  test('ends with 0 while nobody reads what it prints', async () => {
    const path = join(project.folder, 'pipe')
    execFileSync('mkfifo', [path])
    // Opened for both, so that opening waits for nobody; what is not read here stays in the pipe until it is full.
    const pipe = openSync(path, 'r+')
    closers.push(() => closeSync(pipe))
    closers.push(() => rmSync(path))
    const cli = start(['--start', stream.now(), '--json'], served.host, pipe)
    insert('Orders', { Note: 'x'.repeat(1_000_000) })
    const begun = Buffer.alloc(100)
    await new Promise<void>((resolve, reject) => read(pipe, begun, (error) => (error ? reject(error) : resolve())))
    expect(begun.toString()).toContain('insert')
    cli.process.kill('SIGINT')
    const { code, stderr } = await cli.ended
    expect(stderr).toMatch(/^1 change from \d+ partitions?\n$/)
    expect(code).toBe(0)
  })

  test('ends with 0 while it still connects', async () => {
    const called = Promise.withResolvers<void>()
    const silent = createServer((socket) => {
      closers.push(() => socket.destroy())
      called.resolve()
    })
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
    closers.push(() => silent.close())
    const { port } = silent.address() as { port: number }
    const cli = start([], `127.0.0.1:${port}`)
    await called.promise
    cli.process.kill('SIGINT')
    const { code, stderr } = await cli.ended
    expect(stderr).toBe('0 changes from 0 partitions\n')
    expect(code).toBe(0)
  })
})

describe('millrace tail, on what is not as thought', () => {
  test('P12: a missing stream', async () => {
    const given = ['tail', '--database', served.database, '--stream', 'ShopChangs']
    expectError(await project.millrace([...given, '--emulator-host', served.host]), 2, "Did you mean 'ShopChanges'?")
  })

  test('P12: an address where nobody answers', async () => {
    // Nothing listens on the discard port.
    expectError(await run(['--emulator-host', '127.0.0.1:9']), 3, 'Spanner at 127.0.0.1:9 cannot be reached', '  → ')
  })

  test('P12: a start that the stream no longer keeps', async () => {
    expectError(await run(['--start', '-30d']), 4, 'the stream no longer keeps the changes', 'Give a later --start')
  })

  test('P12: a start before the stream was made', async () => {
    const young = await serveStream(new SimulatedStream({ seed: 5, stream: 'Young', retentionMs: 7 * 86_400_000 }))
    const given = ['tail', '--database', young.database, '--stream', 'Young', '--emulator-host', young.host]
    const ended = await project.millrace([...given, '--start', '-1h'])
    await young.close()
    expectError(ended, 2, 'the stream does not reach back to', '  → Give a --start between the creation')
    expect(ended.stderr).not.toContain('another name')
  })

  test('P12: wrong options', async () => {
    expectError(await run(['--start', 'yesterday']), 2, '--start must be a time, got "yesterday"', '-15m')
    expectError(await run(['--end', '5']), 2, '--end must be a time, got "5"')
    expectError(await run(['--start', 'now', '--end', '-1h', '--start', '-5m']), 2, 'end must not lie before start')
    expectError(await run(['--tabel', 'Orders']), 2, "unknown option '--tabel'", '--table')
    expectError(await project.millrace(['tail', '--stream', 'S']), 2, "required option '--database <name>'")
    expectError(await project.millrace(['tail', '--database', 'd', '--stream', 'S']), 2, 'projects/<project>')
  })

  test('its help has examples and says what Ctrl-C means', async () => {
    const { code, stdout } = await project.millrace(['tail', '--help'])
    expect(stdout).toContain('--start -1h')
    expect(stdout).toContain('0   ended by --end or Ctrl-C')
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
    expect(code).toBe(0)
    const { stdout: all } = await project.millrace(['--help'])
    for (const command of ['preflight [options] <pipeline>', 'tail [options]']) expect(all).toContain(command)
  })
})
