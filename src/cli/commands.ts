/** The commands and their options, as data for the parser. */
import { readFileSync } from 'node:fs'
import { Command, InvalidArgumentError, Option } from 'commander'
import { PREFLIGHT_HELP, PROGRAM_HELP, RUN_HELP, TAIL_HELP } from './help-texts.ts'
import { list } from './list.ts'
import { type PreflightCommandOptions, preflightCommand } from './preflight.ts'
import { type RunCommandOptions, run } from './run.ts'
import { type TailOptions, tail } from './tail.ts'

/** For hints: `millrace <command> --help`. */
export const COMMANDS: readonly string[] = ['run', 'list', 'preflight', 'tail']

/** `done` hears the exit code of the command that ran. */
export function createProgram(done: (code: number) => void): Command {
  const program = new Command('millrace')
    .description('Carries every change of a Spanner change stream to where it is needed.')
    .version(version(), '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand('help [command]', 'print the help of a command')
    .exitOverride()
    .configureOutput({ writeErr: () => undefined })
    .addHelpText('after', PROGRAM_HELP)
  addRun(program, done)
  addList(program, done)
  addPreflight(program, done)
  addTail(program, done)
  return program
}

function addRun(program: Command, done: (code: number) => void): void {
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
}

function addList(program: Command, done: (code: number) => void): void {
  program
    .command('list')
    .helpOption('-h, --help', 'print this help')
    .description('List the pipelines in ./pipelines: name, source, sinks, or why a file does not load.')
    .option('--json', 'print a JSON array')
    .action(async (options: { json?: true }) => done(await list(options)))
}

function addPreflight(program: Command, done: (code: number) => void): void {
  program
    .command('preflight')
    .helpOption('-h, --help', 'print this help')
    .description('Check all that a pipeline needs, and say how to fix what is wrong. Runs nothing.')
    .argument('<pipeline>', 'a name in ./pipelines, or the path of a file')
    .option('--json', 'print one JSON object a check')
    .option('-v, --verbose', 'errors with stack and causes')
    .addHelpText('after', PREFLIGHT_HELP)
    .action(async (pipeline: string, options: PreflightCommandOptions) =>
      done(await preflightCommand(pipeline, options)),
    )
}

function addTail(program: Command, done: (code: number) => void): void {
  program
    .command('tail')
    .helpOption('-h, --help', 'print this help')
    .description('Print the changes of any stream as they come. Needs no pipeline file, keeps nothing.')
    .requiredOption('--database <name>', 'projects/.../instances/.../databases/...')
    .requiredOption('--stream <name>', 'the change stream')
    .option('--start <time>', 'where to begin: -90s, -15m, -1h, -2d, now, or RFC 3339', 'now')
    .option('--end <time>', 'where to end, in the same forms or +10m (default: never)')
    .option('--table <name>', 'only this table; may be given more than once', (name, names: string[] = []) => [
      ...names,
      name,
    ])
    .option('--json', 'print one JSON object a change, values as Spanner sent them')
    .option('--role <name>', 'database role for fine-grained access control')
    .option('--emulator-host <host:port>', 'read from an emulator (default: SPANNER_EMULATOR_HOST)')
    .option('-v, --verbose', 'debug lines; errors with stack and causes')
    .addHelpText('after', TAIL_HELP)
    .action(async (options: TailOptions) => done(await tail(options)))
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

function version(): string {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
  return version
}
