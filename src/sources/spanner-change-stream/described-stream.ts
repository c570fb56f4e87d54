/** What the stream says of itself: asked at the start, with a few tries, and again when its retention matters. */
import { type Clock, sleep } from '../../core/clock.ts'
import { backoffMs } from '../../core/error-policy.ts'
import { describeThrown, StreamError } from '../../core/errors.ts'
import { abortable } from '../../core/signals.ts'
import type { Logger } from '../../core/types.ts'
import type { ChangeStreamClient, PartitionMode, StreamDescription } from '../../model/change-stream.ts'
import { type GrpcCode, PASSING_CODES } from '../../model/grpc-code.ts'
import { grpcCode } from './connection/grpc-errors.ts'

export interface DescribingContext {
  readonly clock: Clock
  readonly random: () => number
  readonly logger: Logger
}

/** The retention can be changed while the stream is read; nothing else that matters here can. */
export class DescribedStream {
  readonly mode: PartitionMode
  readonly #client: ChangeStreamClient
  readonly #context: DescribingContext
  readonly #signal: AbortSignal
  #retentionMs: number
  #askedAtMs: number
  #asking: Promise<void> | undefined

  private constructor(
    client: ChangeStreamClient,
    context: DescribingContext,
    description: StreamDescription,
    signal: AbortSignal,
  ) {
    this.mode = description.mode
    this.#signal = signal
    this.#client = client
    this.#context = context
    this.#retentionMs = description.retentionMs
    this.#askedAtMs = context.clock.now()
  }

  /**
   * Tries again what may pass, but not for long: whoever gave a wrong address is to hear of it soon.
   * `signal`: aborted when the stream is no longer read.
   */
  static async open(
    client: ChangeStreamClient,
    context: DescribingContext,
    signal: AbortSignal,
  ): Promise<DescribedStream> {
    const { clock, random, logger } = context
    const giveUpAtMs = clock.now() + MAX_OPENING_MS
    for (let attempt = 1; ; attempt++) {
      try {
        return new DescribedStream(client, context, await abortable(client.describe(signal), signal), signal)
      } catch (error) {
        const isLast = attempt === MAX_TRIES || clock.now() >= giveUpAtMs
        if (signal.aborted || isLast || !mayPass(error)) throw error
        logger.warn('the stream could not be reached and is tried again', { attempt, error: describeThrown(error) })
        await sleep(clock, backoffMs(attempt, 300, 1_200, random), signal)
      }
    }
  }

  get retentionMs(): number {
    return this.#retentionMs
  }

  /** As it is now, for whoever decides by it that history is lost: all who ask at once share one answer. */
  async askRetentionMs(signal: AbortSignal): Promise<number> {
    const isFresh = this.#asking === undefined && this.#context.clock.now() - this.#askedAtMs < FRESH_MS
    if (!isFresh) await this.#askAgain(signal)
    return this.#retentionMs
  }

  /** To be called now and then: asks again about once an hour. */
  refresh(): void {
    if (this.#context.clock.now() - this.#askedAtMs < REFRESH_MS) return
    this.#askAgain(this.#signal).catch(() => undefined)
  }

  /** A stream that does not answer now is taken as it was. */
  async #askAgain(signal: AbortSignal): Promise<void> {
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined
    })
    await abortable(this.#asking, signal)
  }

  async #ask(): Promise<void> {
    const { clock, logger } = this.#context
    this.#askedAtMs = clock.now()
    try {
      const { retentionMs } = await this.#client.describe(this.#signal)
      if (retentionMs === this.#retentionMs) return
      logger.info("the stream's retention has changed", { fromMs: this.#retentionMs, toMs: retentionMs })
      this.#retentionMs = retentionMs
    } catch (error) {
      logger.debug('the stream could not be described again', { error: describeThrown(error) })
    }
  }
}

function mayPass(error: unknown): boolean {
  if (!(error instanceof StreamError)) return false
  const code = grpcCode(error.cause)
  return error.retryable || (code !== undefined && PASSING.has(code))
}

const PASSING: ReadonlySet<GrpcCode> = new Set(PASSING_CODES)
const MAX_TRIES = 4
const MAX_OPENING_MS = 10_000
const FRESH_MS = 1_000
const REFRESH_MS = 3_600_000
