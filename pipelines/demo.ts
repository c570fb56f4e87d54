/**
 * The demo's pipeline, as anyone would write one: a change stream, two steps, a file.
 * `npm run pipeline demo` starts a simulated shop database and runs this file against it.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Change, ConfigError, changeId, definePipeline } from 'millrace'
import { filter, parMap } from 'millrace/operators'
import { fileSink } from 'millrace/sinks'
import { spannerChangeStream } from 'millrace/sources'
import { sqlitePartitionStore } from 'millrace/stores'

export default definePipeline({
  name: 'demo',
  source: spannerChangeStream({
    database: setting('MILLRACE_DEMO_DATABASE'),
    stream: setting('MILLRACE_DEMO_STREAM'),
    start: setting('MILLRACE_DEMO_START'),
    heartbeatMs: 1000,
  }),
  steps: (changes) =>
    changes.pipe(
      filter((change) => !change.record.isSystemTransaction),
      parMap(describe, { concurrency: 64, order: 'key' }),
    ),
  sink: fileSink({ path: setting('MILLRACE_DEMO_OUT') }),
  store: sqlitePartitionStore({ path: setting('MILLRACE_DEMO_STATE') }),
  checkpointIntervalMs: 250,
  // Short, so that the next worker takes over soon when this one is killed.
  leaseMs: 1500,
})

async function describe(change: Change): Promise<object> {
  await sleep(Math.random() * 20) // what a lookup elsewhere would take
  const { table, op, keys, commitTimestamp } = change
  return { id: changeId(change), key: `${table}${JSON.stringify(keys)}`, commitTimestamp, table, op }
}

function setting(name: string): string {
  const value = process.env[name]
  if (value) return value
  throw new ConfigError(`${name} is not set: this file runs inside the demo only`, {
    hint: 'npm run pipeline demo',
  })
}
