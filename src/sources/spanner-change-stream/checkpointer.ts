/** Stores the progress of all partitions once a tick, renews their leases with it, and stops a run that cannot. */
import { type Clock, sleep, type Timer } from '../../core/clock.ts'
import { backoffMs } from '../../core/error-policy.ts'
import { isRetryable, StoreError } from '../../core/errors.ts'
import { abortable, settlesWithin } from '../../core/signals.ts'
import type { Logger } from '../../core/types.ts'
import type { CheckpointWrite, PartitionTable } from '../../stores/partition-store.ts'
import type { LivePartition } from './live-partition.ts'
import type { PartitionSupervisor } from './partition-supervisor.ts'

export interface CheckpointerContext {
  readonly table: PartitionTable
  readonly supervisor: PartitionSupervisor
  readonly owner: string
  readonly leaseMs: number
  readonly intervalMs: number
  readonly clock: Clock
  readonly random: () => number
  readonly logger: Logger
  /** Called before each tick; what it throws stops the run. */
  beforeTick(): void
  onFailure(error: unknown): void
}

/** One commit for all partitions at a time: a tick never overtakes another. */
export class Checkpointer {
  readonly #context: CheckpointerContext
  #tick: Timer | undefined
  #ticking: Promise<void> = Promise.resolve()
  #writing: Promise<void> = Promise.resolve()
  #lease: Timer | undefined
  #isStopped = false

  constructor(context: CheckpointerContext) {
    this.#context = context
    this.#renewed(context.clock.now())
    this.#schedule()
  }

  /** Stores the progress of all partitions now, in one commit, and tries again for as long as that can help. */
  async store(signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#context
    for (let attempt = 1; ; attempt++) {
      try {
        await abortable(this.#checkpoint(), signal)
        return
      } catch (error) {
        if (signal.aborted || !isRetryable(error)) throw error
        await sleep(clock, backoffMs(attempt, 50, 5_000, random), signal)
      }
    }
  }

  /** Ends the ticks and stores what is left, with a few tries: what is not stored comes again at the next start. */
  async close(keepLeases: boolean): Promise<void> {
    const { clock, table, owner } = this.#context
    this.#isStopped = true
    this.#tick?.cancel()
    this.#lease?.cancel()
    // A store that does not answer must not keep the run from ending.
    if (!(await settlesWithin(clock, LAST_WORDS_MS, this.#ticking))) return
    const lastWords = this.#persist(async () => {
      await this.#checkpoint()
      if (!keepLeases) await table.release(owner)
    })
    if (await settlesWithin(clock, LAST_WORDS_MS, lastWords)) await lastWords
    this.#lease?.cancel()
  }

  #schedule(): void {
    const { clock, intervalMs, leaseMs, onFailure } = this.#context
    if (this.#isStopped) return
    this.#tick = clock.after(Math.min(intervalMs, leaseMs / 3), () => {
      // A logger may throw as well: then nobody else would hear of it.
      this.#ticking = this.#runTick().catch(onFailure)
    })
  }

  async #runTick(): Promise<void> {
    const { beforeTick, onFailure, logger } = this.#context
    try {
      beforeTick()
      await this.#checkpoint()
    } catch (error) {
      if (isRetryable(error)) logger.warn('progress could not be stored and is tried again')
      else onFailure(error)
    } finally {
      this.#schedule()
    }
  }

  #checkpoint(): Promise<void> {
    const written = this.#writing.then(() => this.#write())
    this.#writing = written.catch(() => undefined)
    return written
  }

  async #write(): Promise<void> {
    const { supervisor, table, owner, leaseMs, clock } = this.#context
    const dirty = [...supervisor.live.values()].filter((p) => p.state === 'RUNNING' && p.isDirty && !p.isFinishing)
    const writes = dirty.map((partition): { readonly partition: LivePartition; readonly write: CheckpointWrite } => ({
      partition,
      write: { token: partition.token, epoch: partition.ownership.epoch, ...partition.checkpoint },
    }))
    const askedAtMs = clock.now()
    const lost = await table.checkpoint(
      owner,
      writes.map(({ write }) => write),
      leaseMs,
    )
    supervisor.assertHeld(lost)
    for (const { partition, write } of writes) partition.stored = write
    this.#renewed(askedAtMs)
  }

  /**
   * A process that could not renew its leases in time must assume that another one reads by now. The lease runs from
   * when the store was asked; the timer fires a little before its end, whether the store fails or does not answer.
   */
  #renewed(askedAtMs: number): void {
    const { clock, leaseMs, onFailure } = this.#context
    this.#lease?.cancel()
    if (this.#isStopped) return
    const leftMs = leaseMs * 0.9 - Math.max(0, clock.now() - askedAtMs)
    this.#lease = clock.after(Math.max(0, leftMs), () =>
      onFailure(
        new StoreError(
          `progress could not be stored within the lease of ${leaseMs} ms: another process may take over`,
          {
            code: 'STORE_CONFLICT',
            hint: 'Check that the partition store is reachable and writable, then start again: nothing is lost.',
          },
        ),
      ),
    )
  }

  async #persist(write: () => Promise<void>): Promise<void> {
    const { clock, random } = this.#context
    for (let attempt = 1; ; attempt++) {
      try {
        await write()
        return
      } catch (error) {
        if (!isRetryable(error) || attempt === LAST_TRIES) throw error
        await sleep(clock, backoffMs(attempt, 50, 400, random))
      }
    }
  }
}

const LAST_TRIES = 6
const LAST_WORDS_MS = 3_000
