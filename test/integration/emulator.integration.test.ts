/** A pipeline on the Spanner emulator, if there is one on this machine. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { type Database, Spanner } from '@google-cloud/spanner'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import type { Sink } from '../../src/core/types.ts'
import type { Change } from '../../src/model/data-change-record.ts'
import { definePipeline, runPipeline } from '../../src/runtime/index.ts'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { memoryPartitionStore } from '../../src/stores/index.ts'

const emulator = findEmulator()
if (emulator === undefined) {
  console.warn(
    'SKIPPED: emulator.integration.test.ts: there is no Spanner emulator. Set SPANNER_EMULATOR_HOST to a running ' +
      'one, or install it: gcloud components install cloud-spanner-emulator',
  )
}

/** Partitions that a run reads from: an emulator of ours ends them every second, another one perhaps never. */
const MIN_PARTITIONS = emulator?.binary === undefined ? 1 : 4

// On a user's machine it may be missing; where changes are judged it must not.
test.runIf(emulator === undefined && process.env.CI === 'true')('CI has a Spanner emulator', () => {
  throw new Error('install it: gcloud components install cloud-spanner-emulator')
})

describe.skipIf(emulator === undefined)('spannerChangeStream on the Spanner emulator', () => {
  let process_: ChildProcess | undefined
  let host = ''

  beforeAll(async () => {
    vi.stubEnv('METADATA_SERVER_DETECTION', 'none')
    // The emulator does not know multiplexed sessions, and the high-level client stumbles over that.
    vi.stubEnv('GOOGLE_CLOUD_SPANNER_MULTIPLEXED_SESSIONS', 'false')
    if (emulator!.host !== undefined) {
      host = emulator!.host
    } else {
      host = `127.0.0.1:${await freePort()}`
      // Partitions of a second, so that a short test sees splits, moves and merges.
      const flags = [`--host_port=${host}`, '--override_change_stream_partition_token_alive_seconds=1']
      process_ = spawn(emulator!.binary!, flags, { stdio: 'ignore' })
      await vi.waitFor(() => accepts(host), { timeout: 20_000, interval: 50 })
    }
    vi.stubEnv('SPANNER_EMULATOR_HOST', host)
  })

  afterAll(async () => {
    vi.unstubAllEnvs()
    if (process_ === undefined || process_.exitCode !== null) return
    const exited = new Promise((resolve) => process_!.once('exit', resolve))
    process_.kill('SIGKILL')
    await exited
  })

  test('P1: nothing is lost or invented, and order holds within a partition', async () => {
    const spanner = new Spanner({ projectId: 'test-project' })
    try {
      const database = await createDatabase(spanner)
      const start = new Date().toISOString()
      const changes: Change[] = []
      const drain = new AbortController()
      let written: readonly string[] | undefined
      const drainIfComplete = (): void => {
        if (written !== undefined && new Set(changes.map(label)).size >= written.length) drain.abort()
      }
      const sink: Sink<Change> = {
        name: 'list',
        async write(items) {
          changes.push(...items)
          drainIfComplete()
        },
        close: () => Promise.resolve(),
      }
      const writing = writeRows(database, () => timesByPartition(changes).size >= MIN_PARTITIONS).then((labels) => {
        written = labels
        drainIfComplete()
      })
      const stream = { database: database.formattedName_, stream: 'OrderChanges', start, heartbeatMs: 200 }
      const pipeline = definePipeline({ source: spannerChangeStream(stream), sink, store: memoryPartitionStore() })
      const [{ outcome }] = await Promise.all([runPipeline(pipeline, { drain: drain.signal }), writing])

      expect(outcome).toBe('drained')
      // The emulator puts changes into partitions without regard to their keys, so order per key cannot be judged here.
      expect(changes.map(label).toSorted()).toEqual(written!.toSorted())
      for (const [token, times] of timesByPartition(changes)) expect([token, times]).toEqual([token, times.toSorted()])
    } finally {
      spanner.close()
    }
  })
})

/** Inserts, updates and deletes row after row, a transaction each, until it is enough. */
async function writeRows(database: Database, isEnough: () => boolean): Promise<string[]> {
  const labels: string[] = []
  const orders = database.table('Orders')
  for (let row = 0; row < 20 || !isEnough(); row++) {
    const Id = String(row)
    await orders.insert({ Id, Note: `note ${row}` })
    await orders.update({ Id, Note: `other note ${row}` })
    await orders.deleteRows([Id])
    labels.push(`insert ${Id} note ${row}`, `update ${Id} other note ${row}`, `delete ${Id} -`)
  }
  return labels
}

function label({ op, keys, newValues }: Change): string {
  return `${op} ${String(keys.Id)} ${String(newValues.Note ?? '-')}`
}

function timesByPartition(changes: readonly Change[]): Map<string, string[]> {
  const times = new Map<string, string[]>()
  for (const { record, commitTimestamp } of changes) {
    const { partitionToken } = record
    times.set(partitionToken, [...(times.get(partitionToken) ?? []), commitTimestamp])
  }
  return times
}

async function createDatabase(spanner: Spanner): Promise<Database> {
  // An emulator that was running before may know the names of earlier runs.
  const name = `test-${Date.now().toString(36)}`
  const [instance, creating] = await spanner.createInstance(name, {
    config: 'emulator-config',
    nodes: 1,
    displayName: name,
  })
  await creating.promise()
  const [database, building] = await instance.createDatabase(name, {
    schema: [
      'CREATE TABLE Orders (Id STRING(36) NOT NULL, Note STRING(MAX)) PRIMARY KEY (Id)',
      'CREATE CHANGE STREAM OrderChanges FOR Orders',
    ],
  })
  await building.promise()
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

async function freePort(): Promise<number> {
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
