/** Warns while there is time: how much of the stream's retention the lag has used up. */
import type { Clock } from '../../core/clock.ts'
import type { Logger } from '../../core/types.ts'
import { type CommitTimestamp, timestampToMs } from '../../model/commit-timestamp.ts'

type Level = 'calm' | 'warning' | 'error'

/** Logs when the lag passes half of the retention and when it passes four fifths, once each until it has recovered. */
export class RetentionGuard {
  readonly #stream: { readonly retentionMs: number }
  readonly #clock: Clock
  readonly #logger: Logger
  #level: Level = 'calm'

  /** The retention of `stream` may change. */
  constructor(stream: { readonly retentionMs: number }, clock: Clock, logger: Logger) {
    this.#stream = stream
    this.#clock = clock
    this.#logger = logger
  }

  /** 0 is no lag; from 1 on history is lost. */
  share(lowWatermark: CommitTimestamp | undefined): number | undefined {
    if (lowWatermark === undefined) return undefined
    return Math.max(0, this.#clock.now() - timestampToMs(lowWatermark)) / this.#stream.retentionMs
  }

  check(lowWatermark: CommitTimestamp | undefined): void {
    const share = this.share(lowWatermark)
    if (share === undefined) return
    const level = levelOf(share)
    if (level === this.#level) return
    const isWorse = LEVELS.indexOf(level) > LEVELS.indexOf(this.#level)
    this.#level = level
    const fields = { lowWatermark, retentionUsed: share, retentionMs: this.#stream.retentionMs }
    const lag = `the lag has used ${Math.floor(share * 100)} % of the stream's retention`
    if (!isWorse) this.#logger.info(`${lag}: it recovers`, fields)
    else if (level === 'error') this.#logger.error(`${lag}: changes will be lost soon`, fields)
    else this.#logger.warn(`${lag}: beyond it changes are lost`, fields)
  }
}

function levelOf(share: number): Level {
  if (share >= 0.8) return 'error'
  return share >= 0.5 ? 'warning' : 'calm'
}

const LEVELS: readonly Level[] = ['calm', 'warning', 'error']
