/** The command line against a served stream: what a user sees when database, stream or server are not as thought. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type ServedStream, SimulatedStream, serveStream } from '../../src/simulator/index.ts'
import { type CliResult, cliProject } from './cli-project.ts'

const stream = new SimulatedStream({ seed: 1 })
let served: ServedStream
beforeAll(async () => {
  stream.defineTable({ name: 'Orders', columns: [{ name: 'Id', type: 'INT64', isPrimaryKey: true }] })
  served = await serveStream(stream)
})
afterAll(() => served.close())

function pipeline(options: { readonly database?: string; readonly stream?: string; readonly more?: string }): string {
  return `
import { definePipeline } from 'millrace'
import { fileSink } from 'millrace/sinks'
import { spannerChangeStream } from 'millrace/sources'
export default definePipeline({
  source: spannerChangeStream({
    database: '${options.database ?? served.database}',
    stream: '${options.stream ?? served.stream}',
    heartbeatMs: 100,
    ${options.more ?? ''}
  }),
  sink: fileSink({ path: 'out.jsonl' }),
})
`
}

async function run(source: string, host: string = served.host): Promise<CliResult> {
  using project = cliProject({ 'pipelines/orders.ts': source })
  return await project.millrace(['run', 'orders'], { SPANNER_EMULATOR_HOST: host })
}

describe('millrace run on a Spanner that is not as thought', () => {
  test('P12: a missing stream', async () => {
    const { code, stderr } = await run(pipeline({ stream: 'ShopChangs' }))
    expect(stderr).toContain("error: spannerChangeStream: there is no change stream 'ShopChangs'")
    expect(stderr).toContain("→ Did you mean 'ShopChanges'?")
    expect(stderr).not.toMatch(/\n\s+at .+:\d+/)
    expect(code).toBe(2)
  })

  test('P12: a missing database', async () => {
    const { code, stderr } = await run(pipeline({ database: 'projects/p/instances/i/databases/gone' }))
    expect(stderr).toContain(
      "error: spannerChangeStream: database 'projects/p/instances/i/databases/gone' was not found",
    )
    expect(stderr).toContain('→ Check the option database')
    expect(code).toBe(2)
  })

  test('P12: an unreachable database', async () => {
    // Nothing listens on the discard port.
    const { code, stderr } = await run(pipeline({}), '127.0.0.1:9')
    expect(stderr).toContain('error: spannerChangeStream: Spanner at 127.0.0.1:9 cannot be reached')
    expect(stderr).toContain('→ Is the network up')
    expect(stderr).not.toMatch(/\n\s+at .+:\d+/)
    expect(code).toBe(3)
  })

  test('P12: a start that the stream no longer keeps', async () => {
    const { code, stderr } = await run(pipeline({ more: "start: '2020-01-01T00:00:00Z'" }))
    expect(stderr).toContain('error: spannerChangeStream: the stream no longer keeps the changes from 2020-01-01T')
    expect(stderr).toContain('  → ')
    expect(code).toBe(4)
  })
})

describe('millrace run on a served stream', () => {
  test('P6 P11: drains at SIGTERM, ends with 0, and its next run repeats nothing', async () => {
    using project = cliProject({
      'pipelines/orders.ts': pipeline({ more: `start: '${stream.createdAt}'` }),
    })
    const ids = (): string[] => {
      const lines = readFileSync(join(project.folder, 'out.jsonl'), 'utf8').trim().split('\n')
      return lines.map((line) => (JSON.parse(line) as { keys: { Id: string } }).keys.Id)
    }
    for (let round = 1; round <= 2; round++) {
      const cli = project.start(['run', 'orders', '--verbose'], { SPANNER_EMULATOR_HOST: served.host })
      stream.commit([{ table: 'Orders', op: 'insert', keys: { Id: String(round) } }])
      await expect.poll(() => safely(ids), { timeout: 20_000 }).toHaveLength(round)
      cli.process.kill('SIGTERM')
      const { code, stderr } = await cli.ended
      expect(stderr).toContain('drained')
      expect(code).toBe(0)
    }
    expect(ids()).toEqual(['1', '2'])
  })
})

/** The file is there once the first change is. */
function safely(read: () => string[]): string[] {
  try {
    return read()
  } catch {
    return []
  }
}
