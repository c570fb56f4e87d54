/** Reads a change stream of the emulator while a test works on its database. */
import type { Database } from '@google-cloud/spanner'
import type { Sink } from '../../src/core/types.ts'
import type { TypedChange } from '../../src/model/typed-values.ts'
import { typed } from '../../src/operators/index.ts'
import { definePipeline, runPipeline } from '../../src/runtime/index.ts'
import { spannerChangeStream } from '../../src/sources/index.ts'
import { memoryPartitionStore } from '../../src/stores/index.ts'

/** Resolves when this many changes have been read in all. */
export type Seen = (count: number) => Promise<void>

/** Every change that was read until `work` was done, in the order of reading. */
export async function whileReading(
  database: Database,
  stream: string,
  work: (seen: Seen) => Promise<void>,
): Promise<TypedChange[]> {
  const changes: TypedChange[] = []
  const waiting = new Set<{ readonly count: number; readonly resolve: () => void }>()
  const sink: Sink<TypedChange> = {
    name: 'list',
    async write(items) {
      changes.push(...items)
      for (const waiter of waiting) if (changes.length >= waiter.count) waiter.resolve()
    },
    close: () => Promise.resolve(),
  }
  const seen: Seen = (count) =>
    new Promise((resolve) => {
      if (changes.length >= count) resolve()
      else waiting.add({ count, resolve })
    })
  const start = new Date().toISOString()
  const source = spannerChangeStream({ database: database.formattedName_, stream, start, heartbeatMs: 200 })
  const pipeline = definePipeline({ source, steps: (s) => s.pipe(typed()), sink, store: memoryPartitionStore() })
  const drain = new AbortController()
  await Promise.all([runPipeline(pipeline, { drain: drain.signal }), work(seen).finally(() => drain.abort())])
  return changes
}

/** Runs statements of one transaction. */
export async function execute(database: Database, ...statements: readonly string[]): Promise<void> {
  await database.runTransactionAsync(async (transaction) => {
    for (const sql of statements) await transaction.run(sql)
    await transaction.commit()
  })
}

export async function alterSchema(database: Database, ...statements: readonly string[]): Promise<void> {
  const [altering] = await database.updateSchema([...statements])
  await altering.promise()
}
