/** The demo: a simulated shop database, a worker that reads it over gRPC, all kinds of trouble, and a verdict. */
import { randomInt } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { StreamError } from '../../core/errors.ts'
import { listenForShutdown } from '../../runtime/index.ts'
import { SimulatedStream, serveStream } from '../../simulator/index.ts'
import { EXIT } from '../report-error.ts'
import { Demo } from './demo.ts'
import { demoDisplay } from './display.ts'
import { hasPassed } from './judge.ts'
import { summaryText } from './summary.ts'
import { DemoWorker } from './worker.ts'

export interface DemoOptions {
  readonly crash?: true
  readonly seed?: number
  readonly rate?: number
  readonly seconds?: number
  readonly forever?: true
  readonly verbose?: true
}

/** Returns the exit code: 0 only if nothing was lost and nothing came out of order. Leaves no process and no file. */
export async function runDemo(options: DemoOptions): Promise<number> {
  const { seed = randomInt(1_000_000), rate = 400, seconds = 15 } = options
  const shutdown = listenForShutdown(process, { isUnderNpm: process.env.npm_lifecycle_event !== undefined })
  let folder: string | undefined
  let worker: DemoWorker | undefined
  const cleanUp = (): void => {
    worker?.kill()
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 20 })
  }
  // However this process ends, short of a SIGKILL; the worker notices even that, and ends by itself.
  process.once('exit', cleanUp)
  const hangUp = (): void => process.exit(HANG_UP_CODE)
  process.once('SIGHUP', hangUp)
  process.stdout.once('error', () => process.exit(EXIT.failed))
  shutdown.close.addEventListener('abort', () => process.exit(shutdown.exitCode), { once: true })

  folder = mkdtempSync(join(tmpdir(), 'millrace-demo-'))
  const output = join(folder, 'out.jsonl')
  const stream = new SimulatedStream({ seed, initialPartitions: 3, maxHistoryChanges: MAX_HISTORY_CHANGES })
  const server = await serveStream(stream)
  const env = {
    SPANNER_EMULATOR_HOST: server.host,
    MILLRACE_DEMO_DATABASE: server.database,
    MILLRACE_DEMO_STREAM: server.stream,
    MILLRACE_DEMO_START: stream.createdAt,
    MILLRACE_DEMO_OUT: output,
    MILLRACE_DEMO_STATE: join(folder, 'state.db'),
  }
  const startWorker = (): DemoWorker => {
    worker = new DemoWorker(env)
    return worker
  }
  const display = demoDisplay(process.stdout)
  const demo = new Demo({ stream, seed, rate, output, display, startWorker, hasCrashes: options.crash === true })
  try {
    const result = await demo.play(options.forever ? undefined : seconds * 1000, shutdown.drain)
    display.close()
    process.stdout.write(`\n${summaryText(result, commandLine(process.env))}\n`)
    return hasPassed(result.verdict) ? EXIT.ok : EXIT.failed
  } catch (error) {
    display.close()
    throw error instanceof StreamError ? withLastWords(error, worker) : error
  } finally {
    process.off('exit', cleanUp)
    process.off('SIGHUP', hangUp)
    shutdown.stopListening()
    cleanUp()
    await server.close()
  }
}

function withLastWords(error: StreamError, worker: DemoWorker | undefined): StreamError {
  const said = worker?.lastWords.map((line) => `    ${line}`).join('\n')
  return said ? new StreamError(error.code, error.message, { cause: error, hint: `It said:\n${said}` }) : error
}

function commandLine(env: NodeJS.ProcessEnv): string {
  return env.npm_lifecycle_event === 'pipeline' ? 'npm run pipeline demo --' : 'millrace run demo'
}

/** What the shell reports for a process that its terminal left: 128 + SIGHUP. */
const HANG_UP_CODE = 129

/** Many minutes of it: whoever lets the demo run forever must not run out of memory. */
const MAX_HISTORY_CHANGES = 200_000
