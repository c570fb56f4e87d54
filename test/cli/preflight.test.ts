/** The command against served streams: what a user sees before a run, and what to do about it. */
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { timestampFromMs } from '../../src/model/commit-timestamp.ts'
import {
  type ServedStream,
  SimulatedStream,
  type SimulatedStreamOptions,
  serveStream,
} from '../../src/simulator/index.ts'
import { sqlitePartitionStore } from '../../src/stores/index.ts'
import { type CliProject, type CliResult, cliProject } from './cli-project.ts'

const HOUR_MS = 3_600_000
const NAMES = [
  ...['credentials', 'database', 'dialect', 'stream', 'partition mode', 'capture type', 'retention', 'grants'],
  ...['clock skew', 'metadata store', 'sink'],
]

interface Line {
  readonly name: string
  readonly status: string
  readonly message: string
  readonly fix?: string
}

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

async function serve(
  options: Partial<SimulatedStreamOptions> = {},
): Promise<{ readonly stream: SimulatedStream; readonly served: ServedStream }> {
  const stream = new SimulatedStream({ seed: 1, ...options })
  const served = await serveStream(stream)
  closers.push(() => served.close())
  return { stream, served }
}

function pipeline(source: string, more = "sink: fileSink({ path: 'out.jsonl' })"): string {
  return `
import { definePipeline } from 'millrace'
import { consoleSink, fileSink } from 'millrace/sinks'
import { from, spannerChangeStream } from 'millrace/sources'
import { sqlitePartitionStore } from 'millrace/stores'
export default definePipeline({ source: ${source}, ${more} })
`
}

function spanner({ database, stream }: Pick<ServedStream, 'database' | 'stream'>, more = ''): string {
  return `spannerChangeStream({ database: '${database}', stream: '${stream}', ${more} })`
}

function projectOf(source: string): CliProject {
  const project = cliProject({ 'pipelines/orders.ts': source })
  closers.push(() => project[Symbol.dispose]())
  return project
}

async function checks(
  project: CliProject,
  env: NodeJS.ProcessEnv,
): Promise<{ readonly code: number | null; readonly lines: Line[]; readonly byName: Record<string, Line> }> {
  const { code, stdout, stderr } = await project.millrace(['preflight', 'orders', '--json'], env)
  expect(stderr).toBe('')
  const lines = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Line)
  return { code, lines, byName: Object.fromEntries(lines.map((line) => [line.name, line])) }
}

async function look(
  served: ServedStream,
  options: { readonly source?: string; readonly more?: string; readonly host?: string } = {},
): Promise<Awaited<ReturnType<typeof checks>>> {
  const { source = spanner(served), more, host = served.host } = options
  return await checks(projectOf(pipeline(source, more)), { SPANNER_EMULATOR_HOST: host })
}

/** This machine's time, off by so much. */
function shifted(ms: number): Clock {
  return { now: () => Date.now() + ms, after: (delayMs, callback) => systemClock.after(delayMs, callback) }
}

describe('millrace preflight', () => {
  test('is ready when all is as it should be, one line a check, and leaves nothing behind', async () => {
    const { served } = await serve()
    const project = projectOf(pipeline(spanner(served)))
    const { code, stdout } = await project.millrace(['preflight', 'orders'], { SPANNER_EMULATOR_HOST: served.host })
    const lines = stdout.trimEnd().split('\n')
    expect(
      lines.slice(0, -1).map((line) =>
        line
          .slice(0, 25)
          .trim()
          .split(/\s{2,}/),
      ),
    ).toEqual(NAMES.map((name) => ['ok', name]))
    expect(stdout).toContain(`none needed (SPANNER_EMULATOR_HOST=${served.host})`)
    expect(lines.at(-1)).toBe('ready: 11 ok')
    expect(stdout).not.toContain('\u001b')
    expect(code).toBe(0)
    expect(readdirSync(project.folder).sort()).toEqual(['node_modules', 'package.json', 'pipelines'])
  })

  test('prints one JSON object a check', async () => {
    const { served } = await serve({ valueCaptureType: 'NEW_ROW', retentionMs: 36 * HOUR_MS })
    const { code, lines, byName } = await look(served)
    expect(lines.map(({ name, status }) => [name, status])).toEqual(NAMES.map((name) => [name, 'ok']))
    expect(byName['capture type']?.message).toContain('NEW_ROW: all watched columns, after only')
    expect(byName.retention?.message).toContain('36 h')
    expect(code).toBe(0)
  })

  test('P12: a stream that watches nothing is a warning, for it can be read', async () => {
    const { served } = await serve({ tables: [] })
    const { code, byName } = await look(served)
    expect(byName.stream).toMatchObject({ status: 'warning', fix: expect.stringContaining('SET FOR ALL') })
    expect(byName.stream?.message).toContain('ShopChanges watches nothing')
    expect(code).toBe(0)
  })

  test('names what is watched in the order of the alphabet', async () => {
    const { served } = await serve({ tables: ['Orders', 'Customers', 'Items'] })
    expect((await look(served)).byName.stream?.message).toBe('ShopChanges watches Customers, Items, Orders')
  })

  test('P12: a missing stream names the nearest one, and the rest is still looked at', async () => {
    const { served } = await serve()
    const { code, byName } = await look(served, { source: spanner({ ...served, stream: 'ShopChangs' }) })
    expect(byName.stream).toMatchObject({ status: 'failure', fix: "Did you mean 'ShopChanges'?" })
    expect(byName.stream?.message).toContain("there is no change stream 'ShopChangs'")
    expect(byName.retention).toMatchObject({ status: 'skipped', message: 'not looked at, since stream failed' })
    for (const name of ['dialect', 'clock skew', 'metadata store', 'sink']) expect(byName[name]?.status).toBe('ok')
    expect(code).toBe(2)
  })

  test('P12: a stream that a role does not see may want a grant', async () => {
    const { served } = await serve()
    const source = spanner({ ...served, stream: 'Hidden' }, "databaseRole: 'reader'")
    const { byName } = await look(served, { source })
    expect(byName.stream?.fix).toContain('GRANT SELECT ON CHANGE STREAM Hidden TO ROLE reader;')
  })

  test('P12: a missing database', async () => {
    const { served } = await serve()
    const gone = { ...served, database: 'projects/p/instances/i/databases/gone', stream: served.stream }
    const { code, byName } = await look(served, { source: spanner(gone) })
    expect(byName.database?.status).toBe('failure')
    expect(byName.database?.message).toContain("database 'projects/p/instances/i/databases/gone' was not found")
    expect(byName.database?.fix).toContain('Check the option database')
    expect(byName['clock skew']).toMatchObject({ status: 'skipped', message: 'not looked at, since database failed' })
    expect(code).toBe(2)
  })

  test('P12: an address where nobody answers, as text', async () => {
    const { served } = await serve()
    const project = projectOf(pipeline(spanner(served)))
    // Nothing listens on the discard port.
    const { code, stdout } = await project.millrace(['preflight', 'orders'], { SPANNER_EMULATOR_HOST: '127.0.0.1:9' })
    expect(stdout).toMatch(
      /failure {2}database {8}Spanner at 127\.0\.0\.1:9 cannot be reached .*\n +→ Is the network up/,
    )
    expect(stdout).toMatch(/ok {7}sink /)
    expect(stdout).toContain('not ready: 3 ok, 1 failure, 7 skipped')
    expect(code).toBe(2)
  })

  test('P12: a start that has used most of the retention is a warning, one beyond it a failure', async () => {
    const { served } = await serve({
      createdAt: timestampFromMs(Date.now() - 1000 * HOUR_MS),
      retentionMs: 24 * HOUR_MS,
    })
    const begin = (hours: number, more = ''): string =>
      spanner(served, `start: '${timestampFromMs(Date.now() - hours * HOUR_MS)}', ${more}`)
    const late = await look(served, { source: begin(18) })
    expect(late.byName.retention).toMatchObject({ status: 'warning', fix: expect.stringContaining('Start soon') })
    expect(late.byName.retention?.message).toContain('has used 75 % of it')
    expect(late.code).toBe(0)
    const lost = await look(served, { source: begin(30) })
    expect(lost.byName.retention).toMatchObject({ status: 'failure', fix: expect.stringContaining('later start') })
    expect(lost.code).toBe(2)
    const skipping = await look(served, { source: begin(30, "onGap: 'skip'") })
    expect(skipping.byName.retention?.status).toBe('warning')
    const early = await look(served, { source: begin(6) })
    expect(early.byName.retention?.status).toBe('ok')
  })

  test('P12: a start before the stream was made', async () => {
    const { served } = await serve()
    const start = timestampFromMs(Date.now() - HOUR_MS)
    const { code, byName } = await look(served, { source: spanner(served, `start: '${start}'`) })
    expect(byName.retention?.status).toBe('failure')
    expect(byName.retention?.message).toContain(`the stream was made after start ${start}`)
    expect(code).toBe(2)
  })

  test('P12: a role that may not read gets its grants, in words for its dialect', async () => {
    const { stream, served } = await serve()
    stream.injectFaults([{ token: null, fault: { kind: 'error', code: 'PERMISSION_DENIED' } }])
    const { code, byName } = await look(served, { source: spanner(served, "databaseRole: 'reader'") })
    expect(byName.grants).toEqual({
      name: 'grants',
      status: 'failure',
      message: 'the role reader may not read the stream (PERMISSION_DENIED)',
      fix: 'GRANT SELECT ON CHANGE STREAM ShopChanges TO ROLE reader;\nGRANT EXECUTE ON TABLE FUNCTION READ_ShopChanges TO ROLE reader;',
    })
    expect(code).toBe(2)
  })

  test('P12: an account that may not read gets the line that lets it', async () => {
    const { stream, served } = await serve()
    stream.injectFaults([{ token: null, fault: { kind: 'error', code: 'PERMISSION_DENIED' } }])
    const { byName } = await look(served)
    expect(byName.grants?.fix).toContain('gcloud spanner databases add-iam-policy-binding shop --instance=simulator')
  })

  test.each([
    ['a little', 30_000, 'warning', 0],
    ['far', -600_000, 'failure', 2],
  ])('P12: a clock that is %s off', async (_, offMs, status, exitCode) => {
    const { served } = await serve({ clock: shifted(offMs) })
    const { code, byName } = await look(served)
    expect(byName['clock skew']).toMatchObject({ status, fix: expect.stringContaining('NTP') })
    expect(byName['clock skew']?.message).toContain(offMs > 0 ? 'behind Spanner' : 'ahead of Spanner')
    // The server's clock counts, not ours.
    expect(byName.grants?.status).toBe('ok')
    expect(code).toBe(exitCode)
  })
})

describe('millrace preflight on store and sinks', () => {
  const PLACES = "sink: fileSink({ path: 'file/out.jsonl' }), store: sqlitePartitionStore({ path: 'file/state.db' })"

  test('P12: a sink and a store that cannot be written', async () => {
    const { served } = await serve()
    const project = projectOf(pipeline(spanner(served), PLACES))
    writeFileSync(join(project.folder, 'file'), '')
    const { code, byName } = await checks(project, { SPANNER_EMULATOR_HOST: served.host })
    expect(byName.sink).toMatchObject({ status: 'failure', fix: expect.stringContaining('give another path') })
    expect(byName.sink?.message).toContain('fileSink: cannot write file/out.jsonl')
    expect(byName['metadata store']).toMatchObject({
      status: 'failure',
      fix: expect.stringContaining('give another path'),
    })
    expect(code).toBe(2)
  })

  test('P12: an end in the past without a start is a failure, as in the run', async () => {
    const { served } = await serve({ createdAt: '2020-01-01T00:00:00.000000000Z' })
    const end = timestampFromMs(Date.now() - HOUR_MS)
    const { byName, code } = await look(served, { source: spanner(served, `end: '${end}'`) })
    expect(byName.retention).toMatchObject({ status: 'failure', fix: expect.stringContaining('start before the end') })
    expect(byName.retention?.message).toContain(`end ${end} lies before`)
    expect(code).not.toBe(0)
  })

  test('a bounded run that is done up to its end is ready, however long ago; one that would read on is not', async () => {
    const { served } = await serve({ createdAt: '2020-01-01T00:00:00.000000000Z', retentionMs: 24 * HOUR_MS })
    const [start, end] = [timestampFromMs(Date.now() - 60 * HOUR_MS), timestampFromMs(Date.now() - 50 * HOUR_MS)]
    const bounded = spanner(served, `start: '${start}', end: '${end}'`)
    const project = projectOf(pipeline(bounded))
    mkdirSync(join(project.folder, '.millrace'), { recursive: true })
    const store = sqlitePartitionStore({ path: join(project.folder, '.millrace/state.db') })
    const table = await store.open('orders')
    await table.createRoot({ token: 'root', parentTokens: [], start }, 'ann', 1)
    await table.advance('root', { owner: 'ann', epoch: 1 }, 'CREATED', 'RUNNING')
    await table.finish('root', { owner: 'ann', epoch: 1 }, { watermark: end, boundaryIds: [] }, end)
    await store.close()
    const env = { SPANNER_EMULATOR_HOST: served.host }
    expect((await checks(project, env)).byName.retention).toMatchObject({
      status: 'ok',
      message: expect.stringContaining(`everything up to ${end} is read`),
    })
    writeFileSync(join(project.folder, 'pipelines/orders.ts'), pipeline(spanner(served, `start: '${start}'`)))
    expect((await checks(project, env)).byName.retention).toMatchObject({ status: 'failure' })
  })

  test('stored progress counts instead of start: who holds it, and how much of the retention it has used', async () => {
    const { served } = await serve({ createdAt: '2020-01-01T00:00:00.000000000Z', retentionMs: 24 * HOUR_MS })
    const source = spanner(served, "start: '2020-01-01T00:00:00Z'")
    const project = projectOf(pipeline(source, `sink: consoleSink(), onHeld: 'exit'`))
    mkdirSync(join(project.folder, '.millrace'))
    const store = sqlitePartitionStore({ path: join(project.folder, '.millrace/state.db') })
    const table = await store.open('orders')
    const start = timestampFromMs(Date.now() - 18 * HOUR_MS)
    await table.createRoot({ token: 'root', parentTokens: [], start }, 'elsewhere:1:abc', HOUR_MS)
    const before = await table.list()
    const { code, byName } = await checks(project, { SPANNER_EMULATOR_HOST: served.host })
    expect(byName.retention).toMatchObject({ status: 'warning' })
    expect(byName.retention?.message).toContain(`stored progress, ${start}, has used 75 %`)
    expect(byName['metadata store']).toMatchObject({ status: 'warning', fix: expect.stringContaining('onHeld') })
    expect(byName['metadata store']?.message).toContain('1 of 1 partitions unfinished')
    expect(byName['metadata store']?.message).toContain('held by elsewhere:1:abc')
    expect(await table.list()).toEqual(before)
    expect(code).toBe(0)
    await store.close()
  })

  test('a source without checks and a sink without one are no failure', async () => {
    const sink = `{ name: 'ownSink', async write() {}, async close() {} }`
    const project = projectOf(pipeline('from([1])', `sink: [${sink}, consoleSink()]`))
    const { code, lines } = await checks(project, {})
    expect(lines).toEqual([
      { name: 'source', status: 'ok', message: 'from: nothing to check, and no progress to keep' },
      { name: 'sink', status: 'skipped', message: 'ownSink has no check of its own' },
      { name: 'sink', status: 'ok', message: 'consoleSink: needs nothing' },
    ])
    expect(existsSync(join(project.folder, '.millrace'))).toBe(false)
    expect(code).toBe(0)
  })

  test("P12: a check that throws is that check's failure", async () => {
    const sink = `{ name: 'badSink', async write() {}, async close() {}, async check() { throw new TypeError('row 42') } }`
    const { code, lines } = await checks(projectOf(pipeline('from([1])', `sink: ${sink}`)), {})
    expect(lines[1]).toEqual({ name: 'sink', status: 'failure', message: 'failed: TypeError' })
    expect(code).toBe(2)
  })
})

describe('millrace preflight on what it is given', () => {
  test('P12: credentials that do not work are named by their file, and never shown', async () => {
    const project = projectOf(
      pipeline("spannerChangeStream({ database: 'projects/p/instances/i/databases/d', stream: 'S' })"),
    )
    const keyFile = join(project.folder, 'key.json')
    const key = { type: 'service_account', client_email: 'a@p.iam', private_key: 'PLANTED-SECRET', private_key_id: '1' }
    for (const text of [JSON.stringify(key), '{"private_key": "PLANTED-SECRET']) {
      writeFileSync(keyFile, text)
      const { code, stdout, stderr } = await project.millrace(['preflight', 'orders', '--verbose'], {
        SPANNER_EMULATOR_HOST: undefined,
        METADATA_SERVER_DETECTION: 'none',
        GOOGLE_APPLICATION_CREDENTIALS: keyFile,
      })
      expect(stdout).toMatch(
        /failure {2}credentials {5}none that work, from GOOGLE_APPLICATION_CREDENTIALS=.*key\.json/,
      )
      expect(stdout).toMatch(/→ Sign in: gcloud auth application-default login/)
      expect(stdout).toMatch(/skipped {2}database /)
      expect(stdout + stderr).not.toContain('PLANTED-SECRET')
      expect(code).toBe(2)
    }
  })

  function expectWrongUse({ code, stderr, stdout }: CliResult, ...texts: readonly string[]): void {
    for (const text of texts) expect(stderr).toContain(text)
    expect(stdout).toBe('')
    expect(code).toBe(2)
  }

  test('P12: wrong use is said once, with what to do', async () => {
    const project = projectOf('export default 7')
    expectWrongUse(await project.millrace(['preflight', 'ordres']), "no pipeline 'ordres'", "Did you mean 'orders'?")
    expectWrongUse(await project.millrace(['preflight', 'orders']), 'exports a number by default')
    expectWrongUse(await project.millrace(['preflight']), 'missing required argument', 'There are: demo, orders')
    expectWrongUse(await project.millrace(['preflight', 'demo']), 'nothing to check', 'millrace run demo')
    expectWrongUse(await project.millrace(['preflight', 'orders', '--jsn']), "unknown option '--jsn'", '--json')
  })

  test('P12: a server that takes the call and never answers is a failure, not a wait', async () => {
    const silent: Server = createServer((socket) => closers.push(() => socket.destroy()))
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
    closers.push(() => new Promise((resolve) => silent.close(resolve)))
    const { port } = silent.address() as { port: number }
    const source = "spannerChangeStream({ database: 'projects/p/instances/i/databases/d', stream: 'S' })"
    const { code, byName } = await checks(projectOf(pipeline(source)), { SPANNER_EMULATOR_HOST: `127.0.0.1:${port}` })
    expect(byName.database?.status).toBe('failure')
    expect(code).toBe(2)
  })
})
