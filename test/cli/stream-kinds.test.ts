/** Preflight and tail on every kind of stream: both dialects, both partition modes, tables or the whole database. */
import { afterEach, describe, expect, test } from 'vitest'
import { type ServedStream, SimulatedStream, serveStream } from '../../src/simulator/index.ts'
import { cliProject } from './cli-project.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

describe.each([
  ['googlesql', 'immutable'],
  ['googlesql', 'mutable'],
  ['postgresql', 'immutable'],
  ['postgresql', 'mutable'],
] as const)('the command line on a stream, %s, %s', (dialect, mode) => {
  async function serve(tables?: readonly string[]): Promise<{ stream: SimulatedStream; served: ServedStream }> {
    const stream = new SimulatedStream({ seed: 1, dialect, mode, initialPartitions: 2, ...(tables && { tables }) })
    const id = { name: 'Id', type: 'INT64', isPrimaryKey: true } as const
    stream.defineTable({ name: 'Orders', columns: [id, { name: 'Note', type: 'STRING' }] })
    stream.defineTable({ name: 'Items', columns: [id] })
    const served = await serveStream(stream)
    closers.push(() => served.close())
    return { stream, served }
  }

  test.each([
    ['the whole database', undefined],
    ['Items, Orders', ['Items', 'Orders']],
  ])('preflight says what it is, and that it watches %s', async (watched, tables) => {
    const { served } = await serve(tables)
    const project = cliProject({ 'pipelines/orders.ts': pipeline(served) })
    closers.push(() => project[Symbol.dispose]())
    const { code, stdout } = await project.millrace(['preflight', 'orders'])
    expect(stdout).toContain(`ok       dialect         ${dialect === 'googlesql' ? 'GoogleSQL' : 'PostgreSQL'}\n`)
    expect(stdout).toContain(`ok       partition mode  ${mode.toUpperCase()}_KEY_RANGE: `)
    expect(stdout).toContain(`ok       stream          ShopChanges watches ${watched}\n`)
    expect(stdout).toContain('ready: 11 ok\n')
    expect(code).toBe(0)
  })

  test('P1 P3: tail prints every change of a row in order while its key range moves, and ends at --end', async () => {
    const { stream, served } = await serve()
    const project = cliProject()
    closers.push(() => project[Symbol.dispose]())
    const start = stream.now()
    const write = (op: 'insert' | 'update' | 'delete', Note?: string): string =>
      stream.commit([{ table: 'Orders', op, keys: { Id: '7' }, ...(Note !== undefined && { values: { Note } }) }])
    write('insert', 'new')
    const [left, right] = stream.livePartitions()
    if (mode === 'mutable') stream.swapRanges(left!.token, right!.token)
    else stream.merge(left!.token, right!.token)
    write('update', 'paid')
    stream.split(stream.livePartitions()[0]!.token)
    const end = write('delete')
    const place = ['--database', served.database, '--stream', served.stream, '--emulator-host', served.host]
    const { code, stdout, stderr } = await project.millrace(['tail', ...place, '--start', start, '--end', end])
    const lines = stdout.trimEnd().split('\n')
    expect(lines.map((line) => line.split('  ').slice(1, -1).join(' '))).toEqual([
      'insert Orders Id=7 Note="new"',
      'update Orders Id=7 Note: "new" → "paid"',
      'delete Orders Id=7 Note="paid"',
    ])
    expect(stderr).toMatch(/^3 changes from \d+ partitions\n$/)
    expect(code).toBe(0)
  })
})

function pipeline({ database, stream, host }: ServedStream): string {
  return `
import { definePipeline } from 'millrace'
import { consoleSink } from 'millrace/sinks'
import { spannerChangeStream } from 'millrace/sources'
export default definePipeline({
  source: spannerChangeStream({ database: '${database}', stream: '${stream}', emulatorHost: '${host}' }),
  sink: consoleSink(),
})`
}
