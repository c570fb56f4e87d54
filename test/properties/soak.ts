/** Tries schedules for as long as one likes, or repeats one by its seed. */
import { parseArgs } from 'node:util'
import { wireClient } from '../support/wire-client.ts'
import { runSchedule, type Schedule, scheduleOfPath, scheduleOfSeed } from './schedule.ts'

const HELP = `npm run soak -- [options]

Runs random schedules of a pipeline in simulated time and judges each by the auditor.

  --minutes <n>   how long (default 1)
  --seed <n>      repeat this one schedule and print its violations
  --path <path>   with --seed: the schedule that a failed test has printed
  --from <n>      first seed (default: random, printed)

Exit code 0 if every promise held, 1 if one was broken.`

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '1' },
    seed: { type: 'string' },
    path: { type: 'string' },
    from: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
})

if (values.help) console.log(HELP)
else if (values.seed !== undefined) await repeat(Number(values.seed), values.path)
else await soak(Number(values.minutes), Number(values.from ?? Math.floor(Math.random() * 1e9)))

async function repeat(seed: number, path: string | undefined): Promise<void> {
  const schedule: Schedule = path === undefined ? scheduleOfSeed(seed) : scheduleOfPath(seed, path)
  console.log(schedule)
  const { violations, runs, stream } = await runSchedule(schedule, wireClient)
  console.log(`${runs} runs, ${stream.ledger.changes.length} changes, ${stream.ledger.faults.length} faults`)
  for (const { promise, message } of violations) console.log(`${promise} ${message}`)
  console.log(violations.length === 0 ? 'every promise held' : `${violations.length} violations`)
  process.exitCode = violations.length === 0 ? 0 : 1
}

async function soak(minutes: number, from: number): Promise<void> {
  console.log(`seeds from ${from}, for ${minutes} minutes`)
  const startedMs = Date.now()
  const untilMs = startedMs + minutes * 60_000
  const failed: number[] = []
  let changes = 0
  let seed = from
  for (let nextReportMs = startedMs + 10_000; Date.now() < untilMs; seed++) {
    const { violations, stream } = await runSchedule(scheduleOfSeed(seed), wireClient)
    changes += stream.ledger.changes.length
    if (violations.length > 0) {
      failed.push(seed)
      console.log(`seed ${seed}: ${violations[0]!.promise} ${violations[0]!.message}`)
      console.log(`  repeat with: npm run soak -- --seed ${seed}`)
    }
    if (Date.now() < nextReportMs) continue
    nextReportMs += 10_000
    console.log(`${seed - from + 1} schedules, ${changes} changes, ${failed.length} failed`)
  }
  console.log(`${seed - from} schedules, ${changes} changes, ${failed.length} failed`)
  process.exitCode = failed.length === 0 ? 0 : 1
}
