/** Bugs that someone could write, as edits of the sources: the auditor is worth what it catches of them. */
import type { Promised } from '../support/auditor.ts'

/** Replaces a text that occurs exactly once in its file. */
export interface Edit {
  readonly file: string
  readonly find: string
  readonly replace: string
}

export interface PlantedBug {
  readonly name: string
  /** What must be found broken. */
  readonly promise: Promised
  readonly edits: readonly Edit[]
}

const TRACKER = 'src/core/in-flight-tracker.ts'
const BUDGET = 'src/core/in-flight-budget.ts'
const DELIVERY = 'src/core/delivery.ts'
const PAR_MAP = 'src/operators/par-map.ts'
const LANES = 'src/runtime/sink-lanes.ts'
const RUN_PIPELINE = 'src/runtime/run-pipeline.ts'
const STORE = 'src/stores/partition-rows.ts'
const READER = 'src/sources/spanner-change-stream/partition-reader.ts'
const INTAKE = 'src/sources/spanner-change-stream/record-intake.ts'
const BARRIERS = 'src/sources/spanner-change-stream/move-in-barriers.ts'
const PARTITION = 'src/sources/spanner-change-stream/live-partition.ts'
const POSITION = 'src/sources/spanner-change-stream/read-position.ts'
const SUPERVISOR = 'src/sources/spanner-change-stream/partition-supervisor.ts'
const CHECKPOINTER = 'src/sources/spanner-change-stream/checkpointer.ts'
const SOURCE_RUN = 'src/sources/spanner-change-stream/change-stream-run.ts'
const WATCHDOG = 'src/sources/spanner-change-stream/stall-watchdog.ts'
const MODEL = 'src/model/data-change-record.ts'

export const plantedBugs: readonly PlantedBug[] = [
  bug('P1', 'ack before write', {
    file: LANES,
    find: 'await this.#sink.write(',
    replace: 'for (const delivery of open) delivery.ack()\n        await this.#sink.write(',
  }),
  bug('P1', 'drop on nack', {
    file: PARTITION,
    find: 'if (this.#desk.nacked(this.partition, failure)) this.acked(sequence)',
    replace: 'this.#desk.nacked(this.partition, failure)\n    this.acked(sequence)',
  }),
  bug('P1', 'child row not stored', {
    file: SUPERVISOR,
    find: 'table.addChildren(parent.token, parent.ownership, rows, leaseMs)',
    replace: 'table.addChildren(parent.token, parent.ownership, rows.slice(0, 1), leaseMs)',
  }),
  bug('P1', 'children kept in memory only', {
    file: STORE,
    find: 'if (!this.#rows.has(child.token)) inserted.push(this.#insert(child, ownership.owner, leaseMs))',
    replace:
      'if (!this.#rows.has(child.token)) inserted.push(this.#insert(child, ownership.owner, leaseMs))\n      if (children.length > 1) this.#rows.delete(child.token)',
  }),
  bug('P1', 'children stored after the end is noted', {
    file: INTAKE,
    find: 'await this.#context.announce(this.#partition, record)\n    this.childrenStart',
    replace: 'void this.#context.announce(this.#partition, record).catch(() => undefined)\n    this.childrenStart',
  }),
  bug(
    'P1',
    'resume one tick later',
    {
      file: READER,
      find: 'token === ROOT_TOKEN ? null : token, this.#reading.position.timestamp',
      replace: 'token === ROOT_TOKEN ? null : token, tickAfter(this.#reading.position.timestamp)',
    },
    {
      file: READER,
      find: 'const MAX_STALL_MS = 300_000',
      replace: `const MAX_STALL_MS = 300_000
const tickAfter = (time: string) => time.slice(0, 20) + String(Number(time.slice(20, 29)) + 1).padStart(9, '0') + 'Z'`,
    },
  ),
  bug('P1', 'values behind a failed one of their key taken as written', {
    file: LANES,
    find: 'return keys.has(delivery.key)',
    replace: 'return failed.has(index)',
  }),

  bug('P2', 'max instead of contiguous', {
    file: TRACKER,
    find: 'if (sequence === this.#head) this.#advanceHead()',
    replace:
      'if (sequence === this.#head) this.#advanceHead()\n    else this.#advanceTo(this.#timestamps[slot]!, this.#ids[slot])',
  }),
  bug(
    'P2',
    'two ticks swapped',
    { file: STORE, find: 'return watermark < row.watermark ? row :', replace: 'return' },
    {
      file: CHECKPOINTER,
      find: '      beforeTick()\n',
      replace: '      beforeTick()\n      this.#schedule()\n',
    },
    { file: CHECKPOINTER, find: '    } finally {\n      this.#schedule()\n    }', replace: '    }' },
    { file: CHECKPOINTER, find: 'this.#writing.then(() => this.#write())', replace: 'this.#write()' },
  ),
  bug('P2', 'heartbeat passes open deliveries', {
    file: TRACKER,
    find: 'if (this.#open === 0) {',
    replace: 'if (this.#open >= 0) {',
  }),

  bug('P3', 'next of a key started before the retry is done', {
    file: PAR_MAP,
    find: 'const work = (value: T, tries: number): U | PromiseLike<U> =>\n',
    replace: `const work = (value: T, tries: number): U | PromiseLike<U> => {
        if (tries === 2 && this.#order === 'key') {
          this.#freeKey(job)
          job.nextOfKey = undefined
          this.#startWaiting()
        }
        return call(value, tries)
      }
      const call = (value: T, tries: number): U | PromiseLike<U> =>\n`,
  }),
  bug('P3', 'lane goes on while a failed write waits', {
    file: LANES,
    find: 'await sleep(clock, decision.retryInMs, signal)\n          continue',
    replace: `const again = open
          const next = tries + 1
          sleep(clock, decision.retryInMs, signal).then(() => this.#write(again, next)).catch(() => undefined)
          return`,
  }),
  bug('P3', 'lanes keyed by partition', {
    file: LANES,
    find: 'const name = this.#laneOf(delivery)',
    replace: 'const name = delivery.partition',
  }),
  bug('P3', 'batch keyed by the common key', {
    file: DELIVERY,
    find: "new DerivedDelivery(value, '', last.timestamp",
    replace: "new DerivedDelivery(value, parts.every(({ key }) => key === last.key) ? last.key : '', last.timestamp",
  }),

  bug('P4', 'gate on read instead of settled', {
    file: READER,
    find: '    await abortable(this.#reading.tracker.idle(), this.#signal)\n    return',
    replace: '    return',
  }),
  bug('P4', 'child started when its first parent is finished', {
    file: SUPERVISOR,
    find: 'if (partition.waitingFor.delete(token)) this.#startIfReady(partition)',
    replace:
      'if (!partition.waitingFor.delete(token)) continue\n      partition.waitingFor.clear()\n      this.#startIfReady(partition)',
  }),
  bug('P4', 'unknown parent taken as finished', {
    file: SUPERVISOR,
    find: "if (parentRow?.state === 'FINISHED')",
    replace: "if ((parentRow?.state ?? 'FINISHED') === 'FINISHED')",
  }),

  bug('P5', 'clean end of the stream taken as the end', {
    file: READER,
    find: "(kind === 'ended' && childrenStart !== undefined)",
    replace: "kind === 'ended'",
  }),
  bug('P5', 'child records of a broken query taken as evidence', {
    file: READER,
    find: '    this.#intake.childrenStart = undefined\n',
    replace: '',
  }),

  bug('P6', 'boundary ids not stored', {
    file: TRACKER,
    find: 'if (id !== undefined && timestamp === this.#watermark) this.#boundaryIds.push(id)',
    replace: '',
  }),
  bug('P6', 'boundary ids ignored at the start', {
    file: POSITION,
    find: 'for (const id of boundaryIds) this.#remember(id)',
    replace: 'void boundaryIds',
  }),
  bug('P6', 'repeats of a resumed query handed out', {
    file: INTAKE,
    find: 'if (!position.isNew(timestamp, id)) continue',
    replace: '',
  }),

  bug('P7', 'limit counts records instead of rows', {
    file: INTAKE,
    find: '!account.tryTake(bytesEach))) return true',
    replace: '(index === 0 && !account.tryTake(bytesEach)))) return true',
  }),
  bug(
    'P7',
    'budget given back at the hand-over',
    { file: PARTITION, find: '    this.account.give(bytes)\n', replace: '' },
    {
      file: INTAKE,
      find: '      position.observe(timestamp, id)\n',
      replace: '      position.observe(timestamp, id)\n      account.give(bytesEach)\n',
    },
  ),

  bug('P8', 'announced partitions left out', {
    file: SOURCE_RUN,
    find: 'return minimum(live, ',
    replace: "return minimum(live.filter(({ state }) => state === 'RUNNING'), ",
  }),

  bug('P9', 'one pass through Date', {
    file: MODEL,
    find: 'commitTimestamp: record.commitTimestamp,',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is source text
    replace: 'commitTimestamp: `${new Date(record.commitTimestamp).toISOString().slice(0, 23)}000000Z`,',
  }),

  bug('P10', 'ownership not compared', {
    file: STORE,
    find: 'return row?.owner === owner && row.epoch === epoch ? row : undefined',
    replace: 'return row',
  }),
  bug('P10', 'claim keeps the epoch', {
    file: STORE,
    find: 'epoch: row.epoch + 1',
    replace: 'epoch: row.epoch',
  }),
  bug('P10', 'claim takes held rows', {
    file: STORE,
    find: 'if (row.owner !== null && row.owner !== owner && row.leaseUntilMs > now) continue',
    replace: '',
  }),

  bug('P11', 'last checkpoint skipped', {
    file: CHECKPOINTER,
    find: 'const lastWords = this.#persist(async () => {\n      await this.#checkpoint()\n',
    replace: 'const lastWords = this.#persist(async () => {\n',
  }),
  bug('P11', 'drain does not wait for the lanes', {
    file: RUN_PIPELINE,
    find: 'for (const lane of lanes) await lane.below(1)',
    replace: '',
  }),

  bug('P11', 'writes go on behind the end of the run', {
    file: RUN_PIPELINE,
    find: 'await Promise.all(lanes.map((lane) => lane.stopped()))',
    replace: '',
  }),

  bug('P3', 'ranges that move in do not wait for their past', {
    file: INTAKE,
    find: 'if (!this.#context.barriers.isOpen(this.#partition, event)) this.moveIn = event',
    replace: '',
  }),
  bug('P3', 'ranges that move in do not wait for a source that is not announced yet', {
    file: BARRIERS,
    find: 'if (slowest !== undefined && !hasRead(slowest, at)) return false',
    replace: '',
  }),
  bug('P1', 'a new partition is not stored', {
    file: INTAKE,
    find: 'await this.#context.announce(this.#partition, record)\n    this.#takeTime',
    replace: 'this.#takeTime',
  }),
  bug('P1', 'the next window begins where the one before it should have ended', {
    file: READER,
    find: 'query = this.#canResume(outcome, query)',
    replace:
      "if (outcome.kind === 'ended' && query.end !== null) this.#reading.position.observe(query.end)\n      query = this.#canResume(outcome, query)",
  }),
  bug('P3', 'a source of a move is not waited for once it is known', {
    file: BARRIERS,
    find: 'if (live !== undefined && !hasProcessed(live, at)) return false',
    replace: '',
  }),
  bug('P4', 'a source of a move counts as processed when it is read', {
    file: BARRIERS,
    find: 'return hasRead(partition, at) && (oldest === undefined || oldest.timestamp > at)',
    replace: 'return hasRead(partition, at)',
  }),
  bug('P4', 'a source of a move counts as past it at its time', {
    file: BARRIERS,
    find: 'return partition.enteredUpTo > at ||',
    replace: 'return partition.enteredUpTo >= at ||',
  }),
  bug('P1', 'a gap is not counted', {
    file: SOURCE_RUN,
    find: 'this.#gaps++',
    replace: 'this.#gaps += 0',
  }),
  bug('P1', 'a gap is passed in silence', {
    file: INTAKE,
    find: 'this.#chunk.push(new SourceDelivery(gapValue(gap), partitionToken, to, id, this.#reading, sequence))',
    replace: 'tracker.settle(sequence)\n    void gapValue',
  }),
  bug('P1', 'partitions behind a gap are not looked for', {
    file: READER,
    find: "await announce(this.#partition, { startTimestamp: to, recordSequence: '', children })",
    replace: "await announce(this.#partition, { startTimestamp: to, recordSequence: '', children: children.slice(1) })",
  }),
  bug('P1', 'a turn goes on where the clock stands', {
    file: READER,
    find: "if (outcome.kind === 'left') return 'yielded'",
    replace:
      "if (outcome.kind === 'left') {\n        this.#reading.position.observe(timestampFromMs(this.#context.clock.now()))\n        return 'yielded'\n      }",
  }),
  bug('P6', 'repeats at the border of a window handed out', {
    file: POSITION,
    find: 'return timestamp === this.#timestamp && id !== this.#firstId && this.#moreIds?.has(id) !== true',
    replace: 'return timestamp === this.#timestamp',
  }),
  bug('liveness', 'who waits at a move hears of no progress', {
    file: BARRIERS,
    find: 'queueMicrotask(() => this.#look())',
    replace: '',
  }),

  bug('liveness', 'budget never given back', {
    file: PARTITION,
    find: '    this.account.give(bytes)\n',
    replace: '',
  }),
  bug('liveness', 'reader not woken when there is room', {
    file: BUDGET,
    find: 'if (this.#waiters.size > 0) this.#serveWaiters()',
    replace: '',
  }),
  bug('liveness', 'child not started when its parent is finished', {
    file: SUPERVISOR,
    find: 'if (partition.waitingFor.delete(token)) this.#startIfReady(partition)',
    replace: 'partition.waitingFor.delete(token)',
  }),
  bug('liveness', 'idle tracker tells nobody', {
    file: TRACKER,
    find: 'if (this.#waiters.length > 0) this.#wakeWaiters()',
    replace: '',
  }),
  bug('liveness', 'parMap does not say that it has room', {
    file: PAR_MAP,
    find: 'else this.#outlet.roomChanged()',
    replace: '',
  }),
  bug('liveness', 'watchdog never fires', {
    file: WATCHDOG,
    find: 'if (this.#silentBeats > BEATS) this.#onStall()',
    replace: 'if (this.#silentBeats > BEATS) this.close()',
  }),
]

function bug(promise: Promised, name: string, ...edits: Edit[]): PlantedBug {
  return { name, promise, edits }
}
