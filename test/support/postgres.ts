/** A PostgreSQL server for tests: a running one by its address, or one started from the binaries of the system. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { test, vi } from 'vitest'
import { freePort } from './spanner-emulator.ts'

export interface PostgresServer {
  readonly connectionString: string
  /** Stops the server without a word to its clients, as a crash does, and starts it again. Undefined if it is not ours. */
  readonly restart: (() => Promise<void>) | undefined
  stop(): Promise<void>
}

const running = process.env.MILLRACE_TEST_POSTGRES
const binaries = running ? undefined : findBinaries()

/** False on machines without PostgreSQL: suites skip, loudly. In CI that is a failure. */
export const hasPostgres: boolean = running !== undefined || binaries !== undefined

/** Says that a suite is skipped for want of PostgreSQL; fails it in CI. */
export function requirePostgres(suite: string): void {
  if (hasPostgres) return
  const fix =
    'Set MILLRACE_TEST_POSTGRES to the connection string of a running server, or install it: apt install postgresql'
  console.warn(`SKIPPED: ${suite}: there is no PostgreSQL. ${fix}`)
  test.runIf(process.env.CI === 'true')('CI has PostgreSQL', () => {
    throw new Error(fix)
  })
}

export async function startPostgres(): Promise<PostgresServer> {
  if (running) return { connectionString: running, restart: undefined, stop: () => Promise.resolve() }
  const account = unprivileged()
  const folder = mkdtempSync(join(tmpdir(), 'millrace-postgres-'))
  const data = join(folder, 'data')
  const passwordFile = join(folder, 'password')
  writeFileSync(passwordFile, PASSWORD)
  for (const path of account ? [folder, passwordFile] : []) chownSync(path, account!.uid, account!.gid)
  const port = await freePort()
  const connectionString = `postgresql://millrace:${PASSWORD}@127.0.0.1:${port}/postgres`
  // The account must be able to stand in its working directory.
  const place = { cwd: folder, stdio: 'ignore', ...account } as const
  let server: ChildProcess | undefined
  const stopServer = async (): Promise<void> => {
    if (server === undefined || server.exitCode !== null) return
    const exited = new Promise((resolve) => server!.once('exit', resolve))
    server.stdin!.end()
    await exited
  }
  const startServer = async (): Promise<void> => {
    // Fast, but what is committed survives the end of the server, if not that of the machine.
    const settings = ['fsync=off', 'full_page_writes=off', 'listen_addresses=127.0.0.1']
    const flags = ['-D', data, '-p', String(port), '-k', folder, ...settings.flatMap((setting) => ['-c', setting])]
    const command = ['-c', UNTIL_INPUT_ENDS, 'sh', join(binaries!, 'postgres'), ...flags]
    server = spawn('sh', command, { ...place, stdio: ['pipe', 'ignore', 'ignore'] })
    await vi.waitFor(() => answers(connectionString), { timeout: 30_000, interval: 50 })
  }
  const stop = async (): Promise<void> => {
    await stopServer()
    rmSync(folder, { recursive: true, force: true })
  }
  try {
    const made = ['-D', data, '-U', 'millrace', '--auth=scram-sha-256', `--pwfile=${passwordFile}`, '--no-sync']
    execFileSync(join(binaries!, 'initdb'), [...made, '--encoding=UTF8', '--locale=C'], place)
    await startServer()
  } catch (error) {
    await stop()
    throw error
  }
  const restart = async (): Promise<void> => {
    await stopServer()
    await startServer()
  }
  return { connectionString, restart, stop }
}

async function answers(connectionString: string): Promise<void> {
  const client = new pg.Client({ connectionString, connectionTimeoutMillis: 2_000 })
  client.on('error', () => undefined)
  try {
    await client.connect()
    await client.query('SELECT 1')
  } finally {
    await client.end().catch(() => undefined)
  }
}

/** PostgreSQL refuses to run as root; its packages bring a user for it. */
function unprivileged(): { readonly uid: number; readonly gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined
  const id = (flag: string): number => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }))
  return { uid: id('-u'), gid: id('-g') }
}

function findBinaries(): string | undefined {
  const folders: string[] = []
  try {
    folders.push(execFileSync('pg_config', ['--bindir'], { encoding: 'utf8', stdio: 'pipe' }).trim())
  } catch {
    // Debian keeps the server apart from what is on the path.
  }
  const debian = '/usr/lib/postgresql'
  if (existsSync(debian)) {
    const versions = readdirSync(debian).toSorted((a, b) => Number(b) - Number(a))
    folders.push(...versions.map((version) => join(debian, version, 'bin')))
  }
  return folders.find((folder) => ['initdb', 'postgres'].every((program) => existsSync(join(folder, program))))
}

/** However this process ends, its end of the pipe goes with it: no server is left behind. */
const UNTIL_INPUT_ENDS = '"$@" & server=$!; read -r _; kill -QUIT $server; wait $server'

/** Looked for in messages, where it must not be. */
export const PASSWORD = 'secret-of-the-test'
