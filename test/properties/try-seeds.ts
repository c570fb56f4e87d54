/** Runs schedules by seed and prints the first violations: `node test/properties/try-seeds.ts <from> <count>`. */
import { runSchedule, scheduleOfSeed } from './schedule.ts'

const from = Number(process.argv[2] ?? 1)
const count = Number(process.argv[3] ?? 100)
const started = performance.now()
let bad = 0
const kinds = new Map<string, number>()
for (let seed = from; seed < from + count; seed++) {
  const verdict = await runSchedule(scheduleOfSeed(seed))
  if (verdict.violations.length === 0) continue
  bad++
  for (const p of new Set(verdict.violations.map((v) => v.promise))) kinds.set(p, (kinds.get(p) ?? 0) + 1)
  if (bad <= 5)
    console.log(
      `seed ${seed}:`,
      verdict.violations
        .slice(0, 2)
        .map((v) => `${v.promise} ${v.message}`)
        .join('\n   '),
    )
}
console.log(`${count} schedules, ${bad} bad, ${Math.round(performance.now() - started)} ms`, Object.fromEntries(kinds))
