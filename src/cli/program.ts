/** The commands and their options, and what every command shares: one error message, exit codes, closed pipes. */
import { readFileSync } from 'node:fs'
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander'
import { ConfigError, StreamError } from '../core/errors.ts'
import { nearestName } from '../core/options.ts'
import { pipelineFiles } from '../runtime/index.ts'
import { list } from './list.ts'
import { describeError, EXIT, exitCodeOf } from './report-error.ts'
import { type RunCommandOptions, run } from './run.ts'
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
  refuseOptionsTakenByNpm(process.env)
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
function refuseOptionsTakenByNpm(env: NodeJS.ProcessEnv): void {
  if (env.npm_lifecycle_event !== 'pipeline' && env.npm_lifecycle_event !== 'millrace') return
  for (const option of ['crash', 'seed', 'rate', 'seconds', 'forever', 'on-held', 'log-format']) {
    if (env[`npm_config_${option.replace('-', '_')}`] === undefined) continue
    throw new ConfigError(`npm took --${option} for itself`, {
      hint: `Put two dashes before the options: npm run ${env.npm_lifecycle_event} <name> -- --${option}`,
    })
  }
}

function createProgram(done: (code: number) => void): Command {
  const program = new Command('millrace')
    .description('Carries every change of a Spanner change stream to where it is needed.')
    .version(version(), '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand('help [command]', 'print the help of a command')
    .exitOverride()
    .configureOutput({ writeErr: () => undefined })
    .addHelpText('after', PROGRAM_HELP)

  program
    .command('run')
    .helpOption('-h, --help', 'print this help')
    .description('Run a pipeline until it ends or a signal stops it.')
    .argument('<pipeline>', "a name in ./pipelines, the path of a file, or 'demo'")
    .option('-v, --verbose', 'debug lines; errors with stack and causes')
    .addOption(
      new Option('--on-held <what>', 'if another process runs it already: wait to take over, or exit').choices([
        'wait',
        'exit',
      ]),
    )
    .addOption(new Option('--log-format <format>', 'how to log').choices(['text', 'json']).default('text'))
    .optionsGroup('Options of the demo:')
    .option('--crash', 'kill the worker again and again')
    .option('--seed <n>', 'make the same choices again (default: random)', wholeNumber)
    .option('--rate <n>', 'changes per second (default: 400)', positiveNumber)
    .addOption(
      new Option('--seconds <n>', 'how long changes are made (default: 15)')
        .argParser(positiveNumber)
        .conflicts('forever'),
    )
    .option('--forever', 'make changes until Ctrl-C')
    .addHelpText('after', RUN_HELP)
    .action(async (pipeline: string, options: RunCommandOptions) => done(await run(pipeline, options)))

  program
    .command('list')
    .helpOption('-h, --help', 'print this help')
    .description('List the pipelines in ./pipelines: name, source, sinks, or why a file does not load.')
    .option('--json', 'print a JSON array')
    .action(async (options: { json?: true }) => done(await list(options)))

  return program
}

function wholeNumber(text: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('It must be a whole number from 0 to 999999999.')
}

function positiveNumber(text: string): number {
  const value = Number(text)
  if (/^[\d.]+$/.test(text) && value > 0 && value <= 1e6) return value
  throw new InvalidArgumentError('It must be a number above 0, up to 1000000.')
}

/** Commander's message in our form: what is wrong, then what to do. */
async function wrongUse(error: CommanderError, args: readonly string[]): Promise<ConfigError> {
  const [first = '', suggestion] = error.message.split('\n')
  const message = first.replace(/^error: /, '')
  const command = args[0] === 'run' || args[0] === 'list' ? `millrace ${args[0]}` : 'millrace'
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

function version(): string {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
  return version
}

const STALLED = 'nothing is left to wait for, yet the command has not ended'
const STALLED_HINT = 'A promise in the pipeline file, in a step or in a sink never settles.'

const PROGRAM_HELP = `
Examples:
  millrace run demo                 see it work, with nothing installed
  millrace run demo --crash         the same, its worker killed now and then
  millrace run orders-to-kafka      run pipelines/orders-to-kafka.ts
  millrace list                     what there is to run

In this repository: npm run pipeline demo, npm run pipeline demo -- --crash
`

const RUN_HELP = `
Examples:
  millrace run orders                     pipelines/orders.ts (.mts, .js, .mjs)
  millrace run ./elsewhere/orders.ts      any file
  millrace run orders --on-held exit      fail if it runs already
  millrace run orders --log-format json   log lines for machines
  millrace run demo --crash --seed 7      a demo with the same choices
With npm, options follow two dashes: npm run pipeline demo -- --crash

The run logs to stderr; stdout belongs to the pipeline's sinks.
SIGINT or SIGTERM drains: what is in flight is finished and progress is stored.
A second signal stops at once; what was in flight comes again at the next start.

Exit codes:
  0        done or drained
  1        stopped by an error while running
  2        wrong use or configuration
  3        environment: unreachable, denied, port taken, Node too old
  4        history expired: the stream no longer keeps what is to be read
  130,143  stopped at once by a second SIGINT, SIGTERM

Environment:
  SPANNER_EMULATOR_HOST            read from an emulator, such as localhost:9010
  GOOGLE_APPLICATION_CREDENTIALS   key file, if not the machine's own identity
  NO_COLOR                         no colours
`
