/** What a run says on stderr: lines for people or JSON for machines. stdout belongs to the pipeline's own sinks. */
import { hostname } from 'node:os'
import { styleText } from 'node:util'
import type { Logger } from '../core/types.ts'
import { withoutControls } from './report-error.ts'

export type LogFormat = 'text' | 'json'
export type Fields = Readonly<Record<string, unknown>>

export interface RunOutput {
  /** For library code. */
  readonly logger: Logger
  /** A step in the run's own story: `line` is for people, `name` and `fields` are the same for machines. */
  event(name: string, line: string, fields: Fields): void
  /** The last words of a run that failed, in as many lines as it takes. */
  failure(text: string, fields: Fields): void
}

export interface RunOutputOptions {
  readonly format: LogFormat
  /** Debug lines too. */
  readonly verbose: boolean
  /** @default stderr */
  readonly write?: (text: string) => void
}

/** Text is `level message key=value`; JSON has pino's fields, so its tools can read it. */
export function runOutput({ format, verbose, write = writeToStderr }: RunOutputOptions): RunOutput {
  const json = (level: Level, msg: string, fields: Fields): void => {
    const head = { level: LEVELS[level], time: Date.now(), pid: process.pid, hostname: hostname(), msg }
    write(`${JSON.stringify({ ...head, ...fields }, plain)}\n`)
  }
  const log = (level: Level, message: string, fields: Fields = {}): void => {
    if (level === 'debug' && !verbose) return
    if (format === 'json') json(level, message, fields)
    else write(`${textLine(level, message, fields)}\n`)
  }
  return {
    logger: {
      debug: (message, fields) => log('debug', message, fields),
      info: (message, fields) => log('info', message, fields),
      warn: (message, fields) => log('warn', message, fields),
      error: (message, fields) => log('error', message, fields),
    },
    event(name, line, fields) {
      if (format === 'json') json('info', name, fields)
      else write(`${line}\n`)
    },
    failure(text, fields) {
      if (format === 'json') json('error', text, fields)
      else write(`${text}\n`)
    },
  }
}

type Level = keyof typeof LEVELS

function textLine(level: Level, message: string, fields: Fields): string {
  const shownLevel = styleText(COLOURS[level], level.padEnd(5), { stream: process.stderr })
  const pairs = Object.entries(fields).map(([key, value]) => ` ${key}=${shown(value)}`)
  // A line stays a line, whatever was logged.
  return `${shownLevel} ${withoutControls(message).replaceAll('\n', ' ')}${pairs.join('')}`
}

function shown(value: unknown): string {
  if (typeof value === 'string' && /^[^\s"=\p{Cc}]+$/u.test(value)) return value
  return withoutControls(JSON.stringify(value, plain) ?? String(value))
}

/** JSON has no bigint and no errors; of an error only its class and code, since its message may hold row content. */
function plain(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString()
  if (value instanceof Error) return { name: value.name, code: (value as { code?: unknown }).code }
  return value
}

function writeToStderr(text: string): void {
  process.stderr.write(text)
}

const LEVELS = { debug: 20, info: 30, warn: 40, error: 50 } as const
const COLOURS = { debug: 'gray', info: 'cyan', warn: 'yellow', error: 'red' } as const
