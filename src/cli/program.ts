/** What every command shares: one error message, exit codes, closed pipes. */
import { CommanderError } from 'commander'
import { ConfigError, StreamError } from '../core/errors.ts'
import { nearestName } from '../core/options.ts'
import { pipelineFiles } from '../runtime/index.ts'
import { COMMANDS, createProgram } from './commands.ts'
import { describeError, EXIT, exitCodeOf } from './report-error.ts'
import { runOutput } from './run-output.ts'

/** Runs one command line to its end, and the process with it. */
export async function main(args: readonly string[]): Promise<void> {
  const verbose = args.includes('--verbose') || args.includes('-v')
  const format =
    args.includes('--log-format=json') || args[args.indexOf('--log-format') + 1] === 'json' ? 'json' : 'text'
  const output = runOutput({ format, verbose })
  const fail = (error: unknown): number => {
    const { code, hint } = Object(error) as { code?: unknown; hint?: unknown }
    output.failure(describeError(error, verbose), { code, hint })
    return exitCodeOf(error)
  }
  surviveClosedPipes()
  if (!verbose) hushMetadataWarning()
  process.on('uncaughtException', (error) => process.exit(fail(error)))
  process.on('beforeExit', () => process.exit(fail(new StreamError('STALLED', STALLED, { hint: STALLED_HINT }))))

  const code = await execute(args).catch(fail)
  await written(process.stdout)
  await written(process.stderr)
  // A pipeline file may have opened what it never closes; the run is over, so the process ends.
  process.exit(code)
}

async function execute(args: readonly string[]): Promise<number> {
  refuseOptionsTakenByNpm(process.env, args)
  let code: number = EXIT.ok
  const program = createProgram((result) => {
    code = result
  })
  if (args.length === 0) {
    process.stderr.write(program.helpInformation())
    return EXIT.config
  }
  try {
    await program.parseAsync(args, { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    if (error.exitCode !== 0) throw await wrongUse(error, args)
  }
  return code
}

/** `npm run pipeline demo --crash` gives `--crash` to npm, and the demo would silently run without it. */
function refuseOptionsTakenByNpm(env: NodeJS.ProcessEnv, args: readonly string[]): void {
  const script = env.npm_lifecycle_event
  if (script !== 'pipeline' && script !== 'millrace') return
  for (const option of TAKEN_BY_NPM) {
    if (env[`npm_config_${option.replace('-', '_')}`] === undefined) continue
    // npm has a --json of its own, which its settings may hold: no harm if ours came through, or could not be meant.
    if (option === 'json' && (script === 'pipeline' || args.includes('--json'))) continue
    throw new ConfigError(`npm took --${option} for itself`, {
      hint: `Put two dashes before the options: npm run ${script} ${script === 'pipeline' ? '<name>' : '<command>'} -- --${option}`,
    })
  }
}

/** Commander's message in our form: what is wrong, then what to do. */
async function wrongUse(error: CommanderError, args: readonly string[]): Promise<ConfigError> {
  const [first = '', suggestion] = error.message.split('\n')
  const message = first.replace(/^error: /, '')
  const command = COMMANDS.includes(args[0] ?? '') ? `millrace ${args[0]}` : 'millrace'
  const hint = suggestion?.replace(/^\((.*)\)$/, '$1') ?? (await specialHint(error, args))
  return new ConfigError(message, { hint: hint ?? `For the options: ${command} --help` })
}

async function specialHint(error: CommanderError, args: readonly string[]): Promise<string | undefined> {
  const files = await pipelineFiles(process.cwd())
  const names = [...new Set([...files.map((file) => file.name), 'demo'])].sort()
  if (error.code === 'commander.missingArgument') return `There are: ${names.join(', ')}.`
  const meant = error.code === 'commander.unknownCommand' ? nearestName(args[0] ?? '', names) : undefined
  return meant && `To run a pipeline: millrace run ${meant}`
}

/** `millrace list | head -1` is no error: whoever reads has read enough. */
function surviveClosedPipes(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error
    })
  }
}

/** Google's client warns that this is no machine of Google's; without credentials our own message says what to do. */
function hushMetadataWarning(): void {
  process.removeAllListeners('warning')
  process.on('warning', ({ name, message }) => {
    if (name !== 'MetadataLookupWarning') process.stderr.write(`${name}: ${message}\n`)
  })
}

function written(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => {
    if (stream.destroyed || !stream.writable) resolve()
    else stream.write('', () => resolve())
  })
}

const STALLED = 'nothing is left to wait for, yet the command has not ended'
const STALLED_HINT = 'A promise in the pipeline file, in a step or in a sink never settles.'

const TAKEN_BY_NPM = [
  ...['crash', 'seed', 'rate', 'seconds', 'forever', 'on-held', 'log-format'],
  ...['database', 'stream', 'start', 'end', 'table', 'role', 'emulator-host', 'json'],
]
