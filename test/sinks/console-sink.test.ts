/** The console sink prints lines, waits for slow readers and survives those that leave. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { PassThrough, Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { ClosedError, ConfigError, SinkError } from '../../src/core/errors.ts'
import { consoleSink } from '../../src/sinks/index.ts'

describe('consoleSink', () => {
  test('is named after itself and has one lane', () => {
    expect(consoleSink().name).toBe('consoleSink')
    expect(consoleSink().lane).toBeUndefined()
  })

  test('refuses options that it does not know and a format that is no function', () => {
    expect(() => consoleSink({ steam: process.stdout } as object)).toThrow(ConfigError)
    expect(() => consoleSink({ format: 'json' } as object)).toThrow(ConfigError)
  })

  test('prints one line of JSON an item', async () => {
    const { stream, printed } = collector()
    const sink = consoleSink({ stream })
    await sink.write([{ a: 1 }, 'x\ny'], signal)
    await sink.write([null], signal)
    expect(printed()).toBe('{"a":1}\n"x\\ny"\nnull\n')
  })

  test('prints what format returns', async () => {
    const { stream, printed } = collector()
    await consoleSink<{ n: number }>({ stream, format: (item) => `n is ${item.n}` }).write([{ n: 1 }, { n: 2 }], signal)
    expect(printed()).toBe('n is 1\nn is 2\n')
  })

  test('prints to the standard output by default', async () => {
    const child = start(`await consoleSink().write([{ a: 1 }, { b: 2 }], signal)`)
    expect(await text(child.stdout)).toBe('{"a":1}\n{"b":2}\n')
  })

  test('prints the good items and names those that have no text form', async () => {
    const { stream, printed } = collector()
    const error = await failure(consoleSink({ stream }).write([1, 2n, undefined, 3], signal))
    expect(error).toMatchObject({ retryable: false, failedItems: [1, 2] })
    expect(printed()).toBe('1\n3\n')
  })

  test('names the items that the format throws at', async () => {
    const { stream, printed } = collector()
    const thrown = new Error('row content')
    const format = (item: number): string => {
      if (item === 2) throw thrown
      return String(item)
    }
    const error = await failure(consoleSink<number>({ stream, format }).write([1, 2, 3], signal))
    expect(error).toMatchObject({ failedItems: [1], cause: thrown })
    expect(error.message).not.toContain('row content')
    expect(printed()).toBe('1\n3\n')
  })

  test('P7: waits for a slow reader', async () => {
    let passOn: (() => void) | undefined
    const stream = new Writable({
      highWaterMark: 1,
      write: (_chunk, _encoding, done) => {
        passOn = done
      },
    })
    let isWritten = false
    const written = consoleSink({ stream })
      .write(['a'], signal)
      .then(() => {
        isWritten = true
      })
    await new Promise(setImmediate)
    expect(isWritten).toBe(false)
    passOn?.()
    await written
  })

  test('an abort ends the wait for a reader that never reads', async () => {
    const stream = new Writable({ write: () => undefined })
    const abort = new AbortController()
    const written = consoleSink({ stream }).write(['a'], abort.signal)
    const reason = new Error('enough')
    abort.abort(reason)
    await expect(written).rejects.toBe(reason)
  })

  test('an aborted signal prints nothing', async () => {
    const { stream, printed } = collector()
    const reason = new Error('enough')
    await expect(consoleSink({ stream }).write(['a'], AbortSignal.abort(reason))).rejects.toBe(reason)
    expect(printed()).toBe('')
  })

  test.each([
    ['EPIPE', false],
    ['ENOSPC', true],
    ['EBADF', false],
  ])('an error %s of the stream is a SinkError, retryable: %s', async (code, retryable) => {
    const cause = Object.assign(new Error(`${code}: write`), { code })
    const stream = new Writable({ write: (_chunk, _encoding, done) => done(cause) })
    const sink = consoleSink({ stream })
    const error = await failure(sink.write(['a'], signal))
    expect(error).toMatchObject({ retryable, cause })
    expect(error.message).toContain(code)
    await sink.close()
    await new Promise(setImmediate) // an error event without a listener would fail this test
  })

  test('a write to a destroyed stream is a SinkError', async () => {
    const stream = new PassThrough()
    stream.destroy()
    expect(await failure(consoleSink({ stream }).write(['a'], signal))).toMatchObject({ retryable: false })
  })

  test('P12: a closed pipe is an error that the process survives', async () => {
    const child = start(`
      process.stdin.resume()
      await new Promise((resolve) => process.stdin.on('end', resolve))
      const sink = consoleSink()
      const errors = []
      for (let i = 0; i < 100 && errors.length < 2; i++) {
        await sink.write(['x'.repeat(100_000)], signal).catch((error) => errors.push(error))
      }
      await sink.close()
      await new Promise(setImmediate)
      console.error(errors.map((e) => [e.name, e.code, e.retryable, e.cause.code].join(' ')).join('; '))
    `)
    child.stdout.destroy()
    await once(child.stdout, 'close')
    const said = text(child.stderr)
    child.stdin.end()
    const [exitCode] = await once(child, 'exit')
    expect(await said).toBe('SinkError SINK_WRITE false EPIPE; SinkError SINK_WRITE false EPIPE\n')
    expect(exitCode).toBe(0)
  })

  test('close leaves the stream open and without its listener, and may be called twice', async () => {
    const { stream, printed } = collector()
    const sink = consoleSink({ stream })
    await sink.write(['a'], signal)
    await sink.write(['b'], signal)
    expect(stream.listenerCount('error')).toBe(1)
    await sink.close()
    await sink.close()
    expect(stream.listenerCount('error')).toBe(0)
    stream.write('more')
    expect(printed()).toBe('"a"\n"b"\nmore')
  })

  test('a write after close is a ClosedError', async () => {
    const { stream } = collector()
    const sink = consoleSink({ stream })
    await sink.close()
    await expect(sink.write(['a'], signal)).rejects.toThrow(ClosedError)
  })
})

const { signal } = new AbortController()

function collector(): { stream: Writable; printed: () => string } {
  let printed = ''
  const stream = new Writable({
    write: (chunk, _encoding, done) => {
      printed += String(chunk)
      done()
    },
  })
  return { stream, printed: () => printed }
}

async function failure(written: Promise<void>): Promise<SinkError> {
  const error = await written.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  if (!(error instanceof SinkError)) throw new Error('the write was to fail with a SinkError', { cause: error })
  return error
}

function start(body: string): ChildProcessWithoutNullStreams {
  const script = `
    import { consoleSink } from './src/sinks/index.ts'
    const { signal } = new AbortController()
    ${body}
  `
  return spawn(process.execPath, ['--input-type=module-typescript', '-e', script], {
    cwd: fileURLToPath(new URL('../../', import.meta.url)),
    stdio: ['pipe', 'pipe', 'pipe'],
  })
}
