/** A Spanner emulator for tests: a running one by its address, or one started from the gcloud SDK. */
import { execFileSync, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { type Database, Spanner } from '@google-cloud/spanner'
import { test, vi } from 'vitest'
import type { Dialect } from '../../src/model/change-stream.ts'

export interface SpannerEmulator {
  /** `host:port` */
  readonly host: string
  /** Whether partitions end every second, as asked for: an emulator that was running before has its own pace. */
  readonly hasChurn: boolean
  readonly spanner: Spanner
  createDatabase(statements: readonly string[], dialect?: Dialect): Promise<Database>
  stop(): Promise<void>
}

const found = findEmulator()

/** False on machines without an emulator: suites skip, loudly. In CI that is a failure. */
export const hasSpannerEmulator: boolean = found !== undefined

/** Says that a suite is skipped for want of an emulator; fails it in CI. */
export function requireSpannerEmulator(suite: string): void {
  if (hasSpannerEmulator) return
  console.warn(
    `SKIPPED: ${suite}: there is no Spanner emulator. Set SPANNER_EMULATOR_HOST to a running one, or install it: ` +
      'gcloud components install cloud-spanner-emulator',
  )
  test.runIf(process.env.CI === 'true')('CI has a Spanner emulator', () => {
    throw new Error('install it: gcloud components install cloud-spanner-emulator')
  })
}

/**
 * Sets SPANNER_EMULATOR_HOST for this process until it is stopped. With `churn` partitions live for a second, so that
 * a short test sees splits, moves and merges.
 */
export async function startSpannerEmulator({ churn = false } = {}): Promise<SpannerEmulator> {
  vi.stubEnv('METADATA_SERVER_DETECTION', 'none')
  // The emulator does not know multiplexed sessions, and the high-level client stumbles over that.
  vi.stubEnv('GOOGLE_CLOUD_SPANNER_MULTIPLEXED_SESSIONS', 'false')
  const host = found?.host ?? `127.0.0.1:${await freePort()}`
  const flags = [`--host_port=${host}`, ...(churn ? ['--override_change_stream_partition_token_alive_seconds=1'] : [])]
  const child = found?.host === undefined ? spawn(found!.binary!, flags, { stdio: 'ignore' }) : undefined
  vi.stubEnv('SPANNER_EMULATOR_HOST', host)
  await vi.waitFor(() => accepts(host), { timeout: 20_000, interval: 50 })
  const spanner = new Spanner({ projectId: 'test-project' })
  return {
    host,
    hasChurn: churn && child !== undefined,
    spanner,
    createDatabase: (statements, dialect = 'googlesql') => createDatabase(spanner, statements, dialect),
    async stop() {
      spanner.close()
      vi.unstubAllEnvs()
      if (child === undefined || child.exitCode !== null) return
      const exited = new Promise((resolve) => child.once('exit', resolve))
      child.kill('SIGKILL')
      await exited
    },
  }
}

let databases = 0

async function createDatabase(spanner: Spanner, statements: readonly string[], dialect: Dialect): Promise<Database> {
  // An emulator that was running before may know the names of earlier runs.
  const name = `t-${process.pid.toString(36)}-${Date.now().toString(36)}-${++databases}`
  const [instance, creating] = await spanner.createInstance(name, {
    config: 'emulator-config',
    nodes: 1,
    displayName: name,
  })
  await creating.promise()
  // A PostgreSQL database is made empty; its schema follows.
  const isPostgres = dialect === 'postgresql'
  const [database, building] = await instance.createDatabase(name, {
    schema: isPostgres ? [] : [...statements],
    ...(isPostgres && { databaseDialect: Spanner.POSTGRESQL }),
  })
  await building.promise()
  if (isPostgres && statements.length > 0) {
    const [altering] = await database.updateSchema([...statements])
    await altering.promise()
  }
  return database
}

/** A running one by its address, or the binary of the gcloud SDK. */
function findEmulator(): { readonly host?: string; readonly binary?: string } | undefined {
  const host = process.env.SPANNER_EMULATOR_HOST
  if (host) return { host }
  try {
    const info = ['info', '--format=value(installation.sdk_root)']
    const root = execFileSync('gcloud', info, { encoding: 'utf8', stdio: 'pipe', timeout: 30_000 }).trim()
    const binary = join(root, 'bin/cloud_spanner_emulator/emulator_main')
    return existsSync(binary) ? { binary } : undefined
  } catch {
    return undefined
  }
}

export async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  await new Promise((resolve) => server.close(resolve))
  return port
}

function accepts(host: string): Promise<void> {
  const [address, port] = host.split(':')
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), address!, () => {
      socket.destroy()
      resolve()
    })
    socket.on('error', reject)
  })
}
