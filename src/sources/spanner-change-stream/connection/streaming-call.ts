/** The messages of one streaming call, pulled: what has arrived together comes together, and no more is read ahead. */

/** A call under way. It brings one message for each `startRead`. */
export interface RunningCall {
  startRead(): void
  /** How much may wait for the consumer before no more is asked for. One message always may. */
  readonly maxAheadBytes: number
}

/** Who hears what a call brings: messages, then once how it ended (undefined if well). */
export interface CallListener {
  message(bytes: Buffer): void
  ended(error: unknown): void
}

/**
 * Yields what has arrived since the last time, at least one message. Asks for more while at most `maxAheadBytes` wait
 * for the consumer, so a consumer that stands still stops the server by flow control.
 * Ends with the call; throws its error behind everything that came before it, or the signal's reason at once.
 */
export async function* messagesOf(
  open: (listener: CallListener) => RunningCall,
  signal: AbortSignal,
): AsyncGenerator<Buffer[], void, undefined> {
  signal.throwIfAborted()
  const inbox = new Inbox(open)
  const abort = (): void => inbox.fail(signal.reason)
  signal.addEventListener('abort', abort, { once: true })
  try {
    for (;;) {
      const messages = await inbox.take()
      if (messages === undefined) return
      yield messages
    }
  } finally {
    signal.removeEventListener('abort', abort)
    inbox.close()
  }
}

class Inbox implements CallListener {
  readonly #call: RunningCall
  #messages: Buffer[] = []
  #bytes = 0
  /** Whether a message has been asked for and has not come yet. */
  #isAsked = false
  #end: { readonly error: unknown } | undefined
  #wake: (() => void) | undefined
  #gathering: NodeJS.Immediate | undefined

  constructor(open: (listener: CallListener) => RunningCall) {
    this.#call = open(this)
    this.#ask()
  }

  /** Undefined at the end. What has arrived before an error comes before it. */
  async take(): Promise<Buffer[] | undefined> {
    if (this.#messages.length === 0 && this.#end === undefined) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    if (this.#messages.length === 0) {
      if (this.#end?.error !== undefined) throw this.#end.error
      return undefined
    }
    const messages = this.#messages
    this.#messages = []
    this.#bytes = 0
    this.#ask()
    return messages
  }

  /** Ends the waiting at once; what has arrived is not wanted any more. */
  fail(error: unknown): void {
    this.#messages = []
    this.#end = { error }
    this.#wakeNow()
  }

  close(): void {
    this.#end ??= { error: undefined }
    if (this.#gathering !== undefined) clearImmediate(this.#gathering)
  }

  message(bytes: Buffer): void {
    this.#isAsked = false
    if (this.#end !== undefined) return
    this.#messages.push(bytes)
    this.#bytes += bytes.length
    this.#ask()
    // What arrives in the same turn of the event loop is taken together.
    if (this.#wake !== undefined) this.#gathering ??= setImmediate(this.#wakeNow)
  }

  ended(error: unknown): void {
    this.#end ??= { error }
    this.#wakeNow()
  }

  #ask(): void {
    if (this.#isAsked || this.#end !== undefined || this.#bytes >= this.#call.maxAheadBytes) return
    this.#isAsked = true
    this.#call.startRead()
  }

  readonly #wakeNow = (): void => {
    if (this.#gathering !== undefined) clearImmediate(this.#gathering)
    this.#gathering = undefined
    const wake = this.#wake
    this.#wake = undefined
    wake?.()
  }
}
