/** A pipeline on the Spanner emulator, if there is one on this machine. */
import type { Database } from '@google-cloud/spanner'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Sink } from '../../src/core/types.ts'
import type { Change } from '../../src/model/data-change-record.ts'
import { definePipeline, runPipeline } from '../../src/runtime/index.ts'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { memoryPartitionStore } from '../../src/stores/index.ts'
import {
  hasSpannerEmulator,
  requireSpannerEmulator,
  type SpannerEmulator,
  startSpannerEmulator,
} from '../support/spanner-emulator.ts'

requireSpannerEmulator('emulator.integration.test.ts')

describe.skipIf(!hasSpannerEmulator)('spannerChangeStream on the Spanner emulator', () => {
  let emulator: SpannerEmulator

  beforeAll(async () => {
    emulator = await startSpannerEmulator({ churn: true })
  })

  afterAll(() => emulator.stop())

  test('P1: nothing is lost or invented, and order holds within a partition', async () => {
    const database = await emulator.createDatabase([
      'CREATE TABLE Orders (Id STRING(36) NOT NULL, Note STRING(MAX)) PRIMARY KEY (Id)',
      'CREATE CHANGE STREAM OrderChanges FOR Orders',
    ])
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
    const writing = writeRows(database, () => timesByPartition(changes).size >= (emulator.hasChurn ? 4 : 1)).then(
      (labels) => {
        written = labels
        drainIfComplete()
      },
    )
    const stream = { database: database.formattedName_, stream: 'OrderChanges', start, heartbeatMs: 200 }
    const pipeline = definePipeline({ source: spannerChangeStream(stream), sink, store: memoryPartitionStore() })
    const [{ outcome }] = await Promise.all([runPipeline(pipeline, { drain: drain.signal }), writing])

    expect(outcome).toBe('drained')
    // The emulator puts changes into partitions without regard to their keys, so order per key cannot be judged here.
    expect(changes.map(label).toSorted()).toEqual(written!.toSorted())
    for (const [token, times] of timesByPartition(changes)) expect([token, times]).toEqual([token, times.toSorted()])
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
