/** Two ways to stop: the first signal drains, the second closes at once. */

type StopSignal = 'SIGINT' | 'SIGTERM'

export interface Shutdown {
  /** Aborted by the first signal: finish what is in flight. */
  readonly drain: AbortSignal
  /** Aborted by the second signal: stop now. */
  readonly close: AbortSignal
  /** 130 or 143 once a second signal came: what the shell expects of a process that was told to go. */
  readonly exitCode: number | undefined
  /** Gives the signals back to their default. Safe to call twice. */
  stopListening(): void
}

/** The part of `process` that signals come from. */
export interface SignalEmitter {
  on(event: StopSignal, listener: (signal: StopSignal) => void): unknown
  off(event: StopSignal, listener: (signal: StopSignal) => void): unknown
}

export interface ShutdownOptions {
  /**
   * Whether npm started this process. Then one Ctrl-C may come twice, since the terminal sends it and npm passes it on;
   * and a SIGTERM for npm may end npm and its shell only, so that their end is taken for the signal.
   * @default false
   */
  readonly isUnderNpm?: boolean
}

/**
 * Listens for SIGINT and SIGTERM, in any mixture. A third signal changes nothing: by then the process is ending, and
 * whoever called this sees to it that it does.
 */
export function listenForShutdown(
  signals: SignalEmitter = process,
  { isUnderNpm = false }: ShutdownOptions = {},
): Shutdown {
  const drain = new AbortController()
  const close = new AbortController()
  let exitCode: number | undefined
  let firstAtMs = 0

  const received = (signal: StopSignal): void => {
    if (!drain.signal.aborted) {
      firstAtMs = performance.now()
      drain.abort(new Error(`${signal}: draining`))
    } else if (!close.signal.aborted && !(isUnderNpm && performance.now() - firstAtMs < ECHO_MS)) {
      exitCode = EXIT_CODES[signal]
      close.abort(new Error(`${signal}: closing`))
    }
  }
  signals.on('SIGINT', received)
  signals.on('SIGTERM', received)
  const forgetParent = isUnderNpm ? onParentGone(() => received('SIGTERM')) : undefined
  return {
    drain: drain.signal,
    close: close.signal,
    get exitCode() {
      return exitCode
    },
    stopListening() {
      signals.off('SIGINT', received)
      signals.off('SIGTERM', received)
      forgetParent?.()
    },
  }
}

/** An orphan gets another parent; there is no event for it. */
function onParentGone(callback: () => void): () => void {
  const parent = process.ppid
  const timer = setInterval(() => {
    if (process.ppid === parent) return
    clearInterval(timer)
    callback()
  }, PARENT_CHECK_MS)
  timer.unref()
  return () => clearInterval(timer)
}

/** No hand presses twice that fast and means two things. */
const ECHO_MS = 300
const PARENT_CHECK_MS = 500
/** 128 plus the signal's number. */
const EXIT_CODES = { SIGINT: 130, SIGTERM: 143 } as const
