/** Where a Spanner database is: the options that name it, checked alike by whoever takes them. */
import { ConfigError } from '../core/errors.ts'
import { nonEmptyString } from '../core/options.ts'

export function databasePath(owner: string, value: unknown): string {
  const name = nonEmptyString(owner, 'database', value)
  if (/^projects\/[^/]+\/instances\/[^/]+\/databases\/[^/]+$/.test(name)) return name
  throw new ConfigError(
    `${owner}: database must be projects/<project>/instances/<instance>/databases/<database>, got ${JSON.stringify(name)}`,
  )
}

/** The option, or else the variable that every client of Google's honours, and users of the library expect here as well. */
export function emulatorAddress(owner: string, value: string | undefined): string | undefined {
  const host = value ?? (process.env.SPANNER_EMULATOR_HOST || undefined)
  if (host === undefined || /^[^/]+:\d{1,5}$/.test(host)) return host
  throw new ConfigError(`${owner}: emulatorHost must be host:port, got ${JSON.stringify(host)}`, {
    hint: 'Without http:// or a path. It comes from the option or from the environment variable SPANNER_EMULATOR_HOST.',
  })
}
