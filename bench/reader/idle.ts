/** What a thousand idle partitions cost: memory and CPU of a process that only hears their heartbeats. */
import { fork } from 'node:child_process'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { aloneContext } from '../../src/sources/source.ts'
import { HOLD_MS } from './hold.ts'

const WATCH_MS = 20_000

interface IdleReport {
  readonly partitions: number
  readonly beforeMb: number
  readonly afterMb: number
  readonly cpuShare: number
}

export async function printIdle(host: string): Promise<void> {
  const child = fork(fileURLToPath(import.meta.url), [host], {
    execArgv: ['--conditions=@millrace/source', '--expose-gc'],
  })
  const report = await new Promise<IdleReport>((resolve, reject) => {
    child.once('message', (message) => resolve(message as IdleReport))
    child.once('exit', (code) => reject(new Error(`the idle process ended with ${code}`)))
  })
  const { partitions, beforeMb, afterMb, cpuShare } = report
  const more = (afterMb - beforeMb).toFixed(0)
  console.log(`\n${partitions} idle partitions, a heartbeat every ${HOLD_MS} ms each`)
  console.log(`  memory: ${afterMb.toFixed(0)} MB resident, ${more} MB more than before they were opened`)
  console.log(`  CPU: ${(cpuShare * 100).toFixed(1)} % of one core`)
}

async function watch(host: string): Promise<IdleReport> {
  const source = spannerChangeStream({
    database: 'projects/p/instances/i/databases/d',
    stream: 'Bench_1000_1_0',
    start: '2026-11-18T00:00:00.000000000Z',
    heartbeatMs: HOLD_MS,
    emulatorHost: host,
  })
  await import('@google-cloud/spanner')
  globalThis.gc?.()
  const beforeMb = process.memoryUsage().rss / 1e6
  const run = source.open(aloneContext('idle'))
  const reading = (async () => {
    for await (const _ of run.stream.chunks());
  })().catch(() => undefined)
  const isOpen = (): boolean => run.status().partitions.filter(({ state }) => state === 'RUNNING').length === 1000
  while (!isOpen()) await setTimeout(100)
  await setTimeout(WATCH_MS / 4)
  globalThis.gc?.()
  const before = process.cpuUsage()
  const since = performance.now()
  await setTimeout(WATCH_MS)
  const { user, system } = process.cpuUsage(before)
  const cpuShare = (user + system) / 1000 / (performance.now() - since)
  const afterMb = process.memoryUsage().rss / 1e6
  const report = { partitions: run.status().partitions.length, beforeMb, afterMb, cpuShare }
  await run.close()
  await reading
  return report
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const report = await watch(process.argv[2]!)
  process.send?.(report, () => process.exit(0))
}
