/** `millrace run`: loads a pipeline file and runs it to its end. */
import { systemClock } from '../core/clock.ts'
import { ConfigError } from '../core/errors.ts'
import {
  findPipeline,
  listenForShutdown,
  loadPipeline,
  type Pipeline,
  type PipelineFile,
  type RunningPipeline,
  type RunSummary,
  runPipeline,
  type Shutdown,
} from '../runtime/index.ts'
import { DEMO_FILE, isBuiltInDemo } from './demo/demo-file.ts'
import { followRun, summaryLines } from './follow-run.ts'
import { EXIT } from './report-error.ts'
import { type LogFormat, type RunOutput, runOutput } from './run-output.ts'

export interface RunCommandOptions {
  readonly verbose?: true
  readonly onHeld?: 'wait' | 'exit'
  readonly logFormat: LogFormat
  readonly crash?: true
  readonly seed?: number
  readonly rate?: number
  readonly seconds?: number
  readonly forever?: true
}

/** Returns the exit code; throws what `describeError` tells the user. */
export async function run(nameOrPath: string, options: RunCommandOptions): Promise<number> {
  const file = await findPipelineOrDemo(nameOrPath)
  if (nameOrPath === DEMO_FILE.name && isBuiltInDemo(file)) {
    const { runDemo } = await import('./demo/run-demo.ts')
    return await runDemo(options)
  }
  for (const option of DEMO_OPTIONS) {
    if (options[option] === undefined) continue
    throw new ConfigError(`--${option} is an option of the demo, not of '${nameOrPath}'`, {
      hint: `millrace run demo --${option}`,
    })
  }
  const pipeline = await loadPipeline(file)
  return await runLoaded(file, options.onHeld ? { ...pipeline, onHeld: options.onHeld } : pipeline, options)
}

/** By name or path; the built-in demo if there is no other of its name. */
export async function findPipelineOrDemo(nameOrPath: string): Promise<PipelineFile> {
  try {
    return await findPipeline(nameOrPath, process.cwd())
  } catch (error) {
    // A user's own pipeline of that name goes first.
    if (nameOrPath === DEMO_FILE.name) return DEMO_FILE
    throw error
  }
}

async function runLoaded(file: PipelineFile, pipeline: Pipeline, options: RunCommandOptions): Promise<number> {
  const output = runOutput({ format: options.logFormat, verbose: options.verbose === true })
  const shutdown = listenForShutdown(process, { isUnderNpm: process.env.npm_lifecycle_event !== undefined })
  shutdown.close.addEventListener('abort', () => closeAtOnce(shutdown, output), { once: true })
  const stops: (() => void)[] = [() => shutdown.stopListening()]
  const onStart = (running: RunningPipeline): void => {
    const follower = followRun(running, output, shutdown.drain, systemClock)
    stops.push(() => follower.stop(), reportToParent(running))
  }
  const name = pipeline.name ?? file.name
  const sinks = pipeline.sinks.map((sink) => sink.name)
  const source = pipeline.source.defaultName
  output.event('start', `${name}: ${source} → ${sinks.join(', ')}`, { pipeline: name, source, sinks })
  try {
    const { drain, close } = shutdown
    const summary = await runPipeline(pipeline, { name: file.name, logger: output.logger, drain, close, onStart })
    output.event('end', summaryLines(summary).join('\n'), { ...summary })
    return exitCode(summary, shutdown)
  } catch (error) {
    // Told to stop at once, it stopped: what that interrupted is no news.
    if (shutdown.exitCode !== undefined) return shutdown.exitCode
    throw error
  } finally {
    for (const stop of stops) stop()
  }
}

function exitCode({ outcome }: RunSummary, shutdown: Shutdown): number {
  if (shutdown.exitCode !== undefined) return shutdown.exitCode
  return outcome === 'closed' ? EXIT.failed : EXIT.ok
}

/** At once means at once: a sink that does not let go must not hold the process. */
function closeAtOnce(shutdown: Shutdown, output: RunOutput): void {
  output.event('closing', 'closing at once; what is in flight comes again at the next start', {})
  setTimeout(() => process.exit(shutdown.exitCode), CLOSE_LIMIT_MS).unref()
}

/** For a parent that asked for it: the status, and an end together with the parent's. */
function reportToParent(running: RunningPipeline): () => void {
  if (process.env.MILLRACE_STATUS_IPC !== '1' || process.send === undefined) return () => undefined
  const timer = setInterval(() => process.send?.(running.status(), ignoreClosed), STATUS_MS)
  process.once('disconnect', () => process.exit(EXIT.failed))
  return () => clearInterval(timer)
}

function ignoreClosed(): void {}

const DEMO_OPTIONS = ['crash', 'seed', 'rate', 'seconds', 'forever'] as const
const CLOSE_LIMIT_MS = 1000
const STATUS_MS = 200
