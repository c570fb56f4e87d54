/** Watches for rejections that nobody hears: outside of a test each of them would end the process. */

/** Begins to listen; the returned function waits a turn, stops listening and gives what was heard. */
export function unhandledRejections(): () => Promise<unknown[]> {
  const heard: unknown[] = []
  const listen = (reason: unknown): void => {
    heard.push(reason)
  }
  process.on('unhandledRejection', listen)
  return async () => {
    // Node reports them when all that is ready has run.
    await new Promise((resolve) => setImmediate(resolve))
    process.off('unhandledRejection', listen)
    return heard
  }
}
