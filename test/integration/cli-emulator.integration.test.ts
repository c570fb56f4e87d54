/** Preflight and tail against the real emulator in both dialects, as a user would try them first. */
import type { Database } from '@google-cloud/spanner'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Dialect } from '../../src/model/change-stream.ts'
import { timestampFromNanos } from '../../src/model/commit-timestamp.ts'
import { spannerPartitionStore } from '../../src/stores/index.ts'
import { type CliProject, type CliResult, cliProject } from '../cli/cli-project.ts'
import {
  hasSpannerEmulator,
  requireSpannerEmulator,
  type SpannerEmulator,
  startSpannerEmulator,
} from '../support/spanner-emulator.ts'

requireSpannerEmulator('the command line on the emulator')

const DIALECTS: readonly Dialect[] = ['googlesql', 'postgresql']

describe.runIf(hasSpannerEmulator)('the command line on the emulator', () => {
  let emulator: SpannerEmulator
  beforeAll(async () => {
    emulator = await startSpannerEmulator()
  })
  afterAll(() => emulator?.stop())

  describe.each(DIALECTS)('in %s', (dialect) => {
    let database: Database
    let elsewhere: string
    let project: CliProject
    beforeAll(async () => {
      database = await emulator.createDatabase(SCHEMA[dialect], dialect)
      // A stream on the whole database would watch the store's table as well.
      elsewhere = (await emulator.createDatabase([], dialect)).formattedName_
      const name = database.formattedName_
      project = cliProject({
        'pipelines/good.ts': pipeline(name, 'order_changes'),
        'pipelines/all.ts': pipeline(name, 'all_changes'),
        'pipelines/none.ts': pipeline(name, 'no_changes'),
        'pipelines/bad.ts': pipeline(name, 'order_change'),
        'pipelines/beside.ts': pipeline(
          name,
          'all_changes',
          `store: spannerPartitionStore({ database: '${elsewhere}' })`,
        ),
        'pipelines/under.ts': pipeline(name, 'all_changes', `store: spannerPartitionStore({ database: '${name}' })`),
      })
    })
    afterAll(() => project?.[Symbol.dispose]())

    test.each([
      ['good', 'order_changes watches orders'],
      ['all', 'all_changes watches the whole database'],
    ])('preflight is ready and says what is watched: %s', async (name, watched) => {
      const { code, stdout } = await project.millrace(['preflight', name])
      expect(stdout).toContain(`ok       dialect         ${dialect === 'googlesql' ? 'GoogleSQL' : 'PostgreSQL'}\n`)
      expect(stdout).toContain(`ok       stream          ${watched}\n`)
      expect(stdout).toContain('ok       partition mode  IMMUTABLE_KEY_RANGE: ')
      expect(stdout).toContain('ready: 11 ok')
      expect(code).toBe(0)
    })

    test('P12: preflight warns of a stream that watches nothing', async () => {
      const { code, stdout } = await project.millrace(['preflight', 'none'])
      expect(stdout).toMatch(/warning {2}stream {10}no_changes watches nothing.*\n +→ ALTER CHANGE STREAM no_changes /)
      expect(code).toBe(0)
    })

    test('P12: preflight names the stream that was meant', async () => {
      const { code, stdout } = await project.millrace(['preflight', 'bad'])
      expect(stdout).toMatch(/failure {2}stream .*\n +→ Did you mean 'order_changes'\?/)
      expect(code).toBe(2)
    })

    test('P12: preflight fails a store whose table the stream would watch', async () => {
      expectStore(await project.millrace(['preflight', 'under']), 2, /failure {2}.*'all_changes' .* the whole database/)
    })

    test('preflight makes no table in the store, and shows what is in one', async () => {
      const store = spannerPartitionStore({ database: elsewhere })
      expectStore(await project.millrace(['preflight', 'beside']), 0, /ok {7}.*: no progress of 'beside' yet/)
      expect(await store.peek!('beside')).toBeUndefined()
      const table = await store.open('beside')
      const start = timestampFromNanos(BigInt(Date.now()) * 1_000_000n)
      await table.createRoot({ token: 'root', parentTokens: [], start }, 'elsewhere:1:abc', 3_600_000)
      const held = /ok {7}.*: 1 of 1 partitions unfinished, .*; held by elsewhere:1:abc/
      expectStore(await project.millrace(['preflight', 'beside']), 0, held)
      expect((await table.list()).map(({ owner }) => owner)).toEqual(['elsewhere:1:abc'])
      await store.close()
    })

    test('tail prints the changes of a row in their order', async () => {
      const orders = database.table('orders')
      const [{ commitTimestamp }] = await orders.insert({ id: 1000, status: 'new' })
      const { seconds, nanos } = commitTimestamp!
      const start = timestampFromNanos(BigInt(String(seconds)) * 1_000_000_000n + BigInt(nanos!))
      const stream = ['--database', database.formattedName_, '--stream', 'order_changes']
      const cli = project.start(['tail', ...stream, '--start', start])
      await orders.update({ id: 1000, status: 'paid' })
      await orders.deleteRows([1000])
      await cli.printed(/ delete {2}orders {2}id=1000 /)
      cli.process.kill('SIGINT')
      const { code, stdout } = await cli.ended
      const lines = stdout.split('\n').filter((line) => line.includes('id=1000'))
      expect(lines.map((line) => line.split(/ {2}/).slice(1, -1).join(' '))).toEqual([
        'insert orders id=1000 status="new"',
        'update orders id=1000 status: "new" → "paid"',
        'delete orders id=1000 status="paid"',
      ])
      expect(code).toBe(0)
    })
  })
})

function expectStore({ code, stdout }: CliResult, exitCode: number, line: RegExp): void {
  expect(stdout.split('\n').find((text) => text.includes('metadata store'))).toMatch(line)
  expect(code).toBe(exitCode)
}

function pipeline(database: string, stream: string, more = ''): string {
  return `
import { definePipeline } from 'millrace'
import { consoleSink } from 'millrace/sinks'
import { spannerChangeStream } from 'millrace/sources'
import { spannerPartitionStore } from 'millrace/stores'
export default definePipeline({
  source: spannerChangeStream({ database: '${database}', stream: '${stream}' }),
  sink: consoleSink(),
  ${more}
})`
}

const STREAMS = [
  'CREATE CHANGE STREAM order_changes FOR orders',
  'CREATE CHANGE STREAM all_changes FOR ALL',
  'CREATE CHANGE STREAM no_changes',
]
const SCHEMA: Readonly<Record<Dialect, readonly string[]>> = {
  googlesql: ['CREATE TABLE orders (id INT64 NOT NULL, status STRING(MAX)) PRIMARY KEY (id)', ...STREAMS],
  postgresql: ['CREATE TABLE orders (id bigint PRIMARY KEY, status varchar)', ...STREAMS],
}
