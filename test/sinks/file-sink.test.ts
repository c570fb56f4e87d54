/** The file sink loses, tears and doubles nothing: through crashes, full disks and odd values. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, type FileHandle, mkdtemp, open, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { ClosedError, ConfigError, SinkError } from '../../src/core/errors.ts'
import { fileSink, type Sink } from '../../src/sinks/index.ts'

let folder: string
let sink: Sink<unknown>

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'file-sink-'))
  sink = fileSink({ path: file() })
})

afterEach(async () => {
  vi.restoreAllMocks()
  await sink.close()
  await rm(folder, { recursive: true, force: true })
})

describe('fileSink', () => {
  test('is named after itself and has one lane', () => {
    expect(sink.name).toBe('fileSink')
    expect(sink.lane).toBeUndefined()
  })

  test.each([[{}], [{ path: '' }], [{ path: 'a', paht: 'b' }], [undefined]])('refuses the options %j', (options) => {
    expect(() => fileSink(options as { path: string })).toThrow(ConfigError)
  })

  test('appends one line of JSON an item, in order', async () => {
    await sink.write([{ a: 1 }, 'two', null, ['x\ny']], signal)
    await sink.write([3], signal)
    expect(await text()).toBe('{"a":1}\n"two"\nnull\n["x\\ny"]\n3\n')
  })

  test('its check tells whether the file could be written, and writes nothing', async () => {
    expect(await sink.check?.(signal)).toMatchObject([{ status: 'ok', message: expect.stringContaining('is made at') }])
    await expect(stat(file())).rejects.toThrow('ENOENT')
    await writeFile(file(), '')
    expect(await sink.check?.(signal)).toMatchObject([
      { status: 'ok', message: expect.stringContaining('appended to') },
    ])
    const below = fileSink({ path: join(file(), 'out.jsonl') })
    expect(await below.check?.(signal)).toMatchObject([
      { status: 'failure', fix: expect.stringContaining('another path') },
    ])
  })

  test('makes folders and file at the first write, not before', async () => {
    const path = join(folder, 'deep', 'er', 'out.jsonl')
    const deep = fileSink({ path })
    await expect(stat(join(folder, 'deep'))).rejects.toThrow('ENOENT')
    await deep.write([1], signal)
    await deep.close()
    expect(await readFile(path, 'utf8')).toBe('1\n')
  })

  test('opens nothing for an empty array', async () => {
    await sink.write([], signal)
    await expect(stat(file())).rejects.toThrow('ENOENT')
  })

  test('appends to what is there', async () => {
    await writeFile(file(), '"old"\n')
    await sink.write(['new'], signal)
    expect(await text()).toBe('"old"\n"new"\n')
  })

  test('goes on at the end of a file that somebody else has emptied', async () => {
    await sink.write(['one'], signal)
    await truncate(file(), 0)
    await sink.write(['two'], signal)
    expect(await text()).toBe('"two"\n')
  })

  test('keeps the order of writes that were called at the same time', async () => {
    const writes = Array.from({ length: 50 }, (_, i) => sink.write([i, `${i}b`], signal))
    await Promise.all(writes)
    expect(await values()).toEqual(Array.from({ length: 50 }, (_, i) => [i, `${i}b`]).flat())
  })

  test('writes a batch of many megabytes whole', async () => {
    const items = Array.from({ length: 40 }, (_, i) => ({ i, filler: 'é'.repeat(300_000) }))
    await sink.write(items, signal)
    expect(await values()).toEqual(items)
  })

  test('writes a batch of ordinary size at once and syncs it before it resolves', async () => {
    const calls: string[] = []
    const handle = await fileHandle()
    for (const name of ['write', 'datasync'] as const) {
      const real = handle[name]
      vi.spyOn(handle, name).mockImplementation(async function (this: FileHandle, ...args: unknown[]) {
        const result: unknown = await Reflect.apply(real, this, args)
        calls.push(name)
        return result as never
      })
    }
    await sink.write(
      Array.from({ length: 500 }, (_, i) => ({ i })),
      signal,
    )
    expect(calls).toEqual(['write', 'datasync'])
  })

  test('keeps keys such as __proto__', async () => {
    const odd = JSON.parse('{"__proto__":{"a":1},"constructor":2}')
    await sink.write([odd], signal)
    expect(await text()).toBe('{"__proto__":{"a":1},"constructor":2}\n')
  })

  test('keeps keys of objects without a prototype', async () => {
    await sink.write([Object.assign(Object.create(null), { toString: 1 })], signal)
    expect(await text()).toBe('{"toString":1}\n')
  })

  test('writes the good items once and names those that JSON cannot hold', async () => {
    const cycle: Record<string, unknown> = { secret: 'row content' }
    cycle.self = cycle
    let deep: unknown = 0
    for (let i = 0; i < 100_000; i++) deep = [deep]
    const items = [1, 10n, 2, cycle, deep, undefined, () => 0, 3]
    const error = await failure(sink.write(items, signal))
    expect(error.failedItems).toEqual([1, 3, 4, 5, 6])
    expect(error.retryable).toBe(false)
    expect(error.hint).toContain('bigint')
    expect(error.message).toContain('5 items')
    expect(error.message).not.toContain('row content')
    expect(error.cause).toBeInstanceOf(AggregateError)
    expect(await text()).toBe('1\n2\n3\n')
  })

  test('writes nothing when no item can be written', async () => {
    const error = await failure(sink.write([1n], signal))
    expect(error.failedItems).toEqual([0])
    expect(error.cause).toBeInstanceOf(TypeError)
    await expect(stat(file())).rejects.toThrow('ENOENT')
  })

  describe('torn lines', () => {
    test.each([
      ['after whole lines', '{"a":1}\n{"b":2}\n', '{"c":'],
      ['of one byte', '{"a":1}\n', '{'],
      ['that is the whole file', '', '{"a":1'],
      ['of several megabytes', '{"a":1}\n', `{"a":"${'x'.repeat(5_000_000)}`],
      ['of several megabytes that is the whole file', '', `{"a":"${'x'.repeat(5_000_000)}`],
      ['of exactly one block', '1\n', 'x'.repeat(64 * 1024)],
      ['of one block less a byte', '1\n', 'x'.repeat(64 * 1024 - 1)],
    ])('cuts off one %s', async (_, whole, torn) => {
      await writeFile(file(), whole + torn)
      await sink.write(['next'], signal)
      expect(await text()).toBe(`${whole}"next"\n`)
    })

    test.each(['', '\n', '{"a":1}\n', `"${'x'.repeat(200_000)}"\n`])(
      'leaves a file alone that has none',
      async (whole) => {
        await writeFile(file(), whole)
        await sink.write(['next'], signal)
        expect(await text()).toBe(`${whole}"next"\n`)
      },
    )
  })

  describe('failures', () => {
    test.each(['ENOSPC', 'EIO', 'EAGAIN', 'EMFILE'])(
      '%s half way takes back the half; a retry doubles nothing',
      async (code) => {
        await sink.write(['before'], signal)
        await tornWrite(code)
        const error = await failure(sink.write(['one', 'two'], signal))
        expect(error).toMatchObject({ retryable: true, failedItems: undefined })
        expect(error.message).toContain(file())
        expect(error.message).not.toContain('one')
        expect(await text()).toBe('"before"\n')
        await sink.write(['one', 'two'], signal)
        expect(await values()).toEqual(['before', 'one', 'two'])
      },
    )

    test('a failed sync takes back what it cannot vouch for', async () => {
      await sink.write(['before'], signal)
      vi.spyOn(await fileHandle(), 'datasync').mockRejectedValueOnce(systemError('EIO'))
      expect(await failure(sink.write(['one'], signal))).toMatchObject({ retryable: true })
      expect(await text()).toBe('"before"\n')
      await sink.write(['one'], signal)
      expect(await values()).toEqual(['before', 'one'])
    })

    test('what could not be taken back at once is taken back by the next write', async () => {
      await sink.write(['before'], signal)
      await tornWrite('ENOSPC')
      vi.spyOn(await fileHandle(), 'truncate').mockRejectedValueOnce(systemError('EIO'))
      await failure(sink.write(['one', 'two'], signal))
      expect(await text()).not.toBe('"before"\n')
      await sink.write(['one', 'two'], signal)
      expect(await values()).toEqual(['before', 'one', 'two'])
    })

    test('what could not be taken back at once is taken back by close', async () => {
      await sink.write(['before'], signal)
      await tornWrite('ENOSPC')
      vi.spyOn(await fileHandle(), 'truncate').mockRejectedValueOnce(systemError('EIO'))
      await failure(sink.write(['one', 'two'], signal))
      await sink.close()
      expect(await text()).toBe('"before"\n')
    })

    test('a short write is continued', async () => {
      const handle = await fileHandle()
      const real = handle.write
      vi.spyOn(handle, 'write').mockImplementationOnce(function (this: FileHandle, bytes: unknown) {
        return Reflect.apply(real, this, [bytes, 0, 7])
      } as never)
      await sink.write(['a longer line', 'two'], signal)
      expect(await values()).toEqual(['a longer line', 'two'])
    })

    test('a failed write does not fail the one queued behind it', async () => {
      await tornWrite('EIO')
      const [first, second] = await Promise.allSettled([sink.write(['one'], signal), sink.write(['two'], signal)])
      expect([first.status, second.status]).toEqual(['rejected', 'fulfilled'])
      expect(await values()).toEqual(['two'])
    })

    // The limit makes the system write a part and refuse the rest, as a full disk does.
    test.skipIf(process.platform === 'win32')(
      'a file that may not grow is left whole by a real short write',
      async () => {
        const script = `
        import { fileSink } from './src/sinks/index.ts'
        const sink = fileSink({ path: process.argv[1] })
        const { signal } = new AbortController()
        await sink.write(['before'], signal)
        const error = await sink.write(Array.from({ length: 100 }, () => 'x'.repeat(1000)), signal).catch((e) => e)
        await sink.write(['after'], signal)
        console.log(error.name, error.retryable, error.hint)
      `
        const limited = spawnSync(
          'sh',
          ['-c', 'ulimit -f 16 && exec "$0" "$@"', process.execPath, ...MODULE, script, file()],
          { cwd: ROOT_FOLDER, encoding: 'utf8' },
        )
        expect(limited.stdout).toMatch(/^SinkError false The file has reached the largest size/)
        expect(await text()).toBe('"before"\n"after"\n')
      },
    )

    test('a folder in place of the file is an error that no retry can help', async () => {
      const wrong = fileSink({ path: folder })
      const error = await failure(wrong.write([1], signal))
      expect(error).toMatchObject({ retryable: false, hint: expect.stringContaining('is a folder') })
      expect(error.message).toContain(folder)
    })

    test('a path below a regular file is an error that no retry can help', async () => {
      await writeFile(join(folder, 'plain'), '')
      const wrong = fileSink({ path: join(folder, 'plain', 'sub', 'out.jsonl') })
      expect(await failure(wrong.write([1], signal))).toMatchObject({
        retryable: false,
        hint: expect.stringContaining('is a file, not a folder'),
      })
    })

    test.skipIf(process.platform === 'win32')('a device in place of the file is refused', async () => {
      const error = await failure(fileSink({ path: '/dev/null' }).write([1], signal))
      expect(error).toMatchObject({ retryable: false, hint: expect.stringContaining('consoleSink') })
    })

    test.skipIf(process.getuid?.() === 0)('a file without write permission is an error with a hint', async () => {
      await writeFile(file(), '', { mode: 0o444 })
      expect(await failure(sink.write([1], signal))).toMatchObject({
        retryable: false,
        hint: expect.stringContaining('may not write'),
      })
    })

    test('the file can be opened after what stood in the way is gone', async () => {
      const path = join(folder, 'plain', 'out.jsonl')
      await writeFile(join(folder, 'plain'), '')
      const later = fileSink({ path })
      await failure(later.write([1], signal))
      await rm(join(folder, 'plain'))
      await later.write([1], signal)
      await later.close()
      expect(await readFile(path, 'utf8')).toBe('1\n')
    })
  })

  describe('abort and close', () => {
    test('an aborted signal writes nothing and throws its reason', async () => {
      const reason = new Error('enough')
      await expect(sink.write([1], AbortSignal.abort(reason))).rejects.toBe(reason)
      await expect(stat(file())).rejects.toThrow('ENOENT')
    })

    test('close waits for the writes under way and may be called twice', async () => {
      const written = sink.write([1], signal)
      const again = sink.write([2], signal)
      await Promise.all([sink.close(), sink.close()])
      await Promise.all([written, again])
      await sink.close()
      expect(await text()).toBe('1\n2\n')
    })

    test('close without a write opens nothing', async () => {
      await sink.close()
      await expect(stat(file())).rejects.toThrow('ENOENT')
    })

    test('a write after close is a ClosedError', async () => {
      await sink.write([1], signal)
      await sink.close()
      await expect(sink.write([2], signal)).rejects.toThrow(ClosedError)
      expect(await text()).toBe('1\n')
    })
  })

  test('P1: a process killed in the middle of its writes leaves whole lines, and all that had resolved', async () => {
    const script = `
      import { fileSink } from './src/sinks/index.ts'
      const sink = fileSink({ path: process.argv[1] })
      const { signal } = new AbortController()
      for (let batch = 0; ; batch++) {
        await sink.write(Array.from({ length: 50 }, (_, i) => ({ n: batch * 50 + i, filler: 'x'.repeat(2000) })), signal)
        console.log((batch + 1) * 50)
      }
    `
    let expected = 0
    for (const batches of [3, 17, 40]) {
      const child = spawn(process.execPath, [...MODULE, script, file()], {
        cwd: ROOT_FOLDER,
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      const exited = once(child, 'exit')
      let resolved = 0
      for await (const line of createInterface(child.stdout)) {
        resolved = Number(line)
        if (resolved === batches * 50) child.kill('SIGKILL')
      }
      expect((await exited)[1]).toBe('SIGKILL')
      expect(resolved).toBeGreaterThanOrEqual(batches * 50)
      // What a restart of the pipeline does: opening repairs the end of the file.
      const restarted = fileSink({ path: file() })
      await restarted.write(['restarted'], signal)
      await restarted.close()

      const lines = await values()
      const run = lines.slice(expected, -1) as { n: number }[]
      expect(lines.at(-1)).toBe('restarted')
      expect(run.map((line) => line.n)).toEqual(run.map((_, i) => i))
      expect(run.length).toBeGreaterThanOrEqual(resolved)
      expected = lines.length
    }
  })

  test('P1: a line torn by a loss of power after the kill is cut off, too', async () => {
    await sink.write([{ n: 1 }], signal)
    await sink.close()
    await appendFile(file(), '{"n":2}\n{"n":3,"fil')
    sink = fileSink({ path: file() })
    await sink.write([{ n: 4 }], signal)
    expect(await values()).toEqual([{ n: 1 }, { n: 2 }, { n: 4 }])
  })
})

const { signal } = new AbortController()
const MODULE = ['--input-type=module-typescript', '-e'] as const
const ROOT_FOLDER = fileURLToPath(new URL('../../', import.meta.url))

function file(): string {
  return join(folder, 'out.jsonl')
}

function text(): Promise<string> {
  return readFile(file(), 'utf8')
}

async function values(): Promise<unknown[]> {
  const lines = (await text()).split('\n')
  expect(lines.pop()).toBe('')
  return lines.map((line) => JSON.parse(line))
}

async function failure(written: Promise<void>): Promise<SinkError> {
  const error = await written.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  if (!(error instanceof SinkError)) throw new Error('the write was to fail with a SinkError', { cause: error })
  return error
}

/** What all file handles of Node share, where a fault can be injected: no test can fill the disk of the machine. */
async function fileHandle(): Promise<FileHandle> {
  const handle = await open(tmpdir(), 'r')
  await handle.close()
  return Object.getPrototypeOf(handle)
}

/** The next write to any file writes half of what it is given and then fails. */
async function tornWrite(code: string): Promise<void> {
  const handle = await fileHandle()
  const real = handle.write
  vi.spyOn(handle, 'write')
    .mockImplementationOnce(function (this: FileHandle, bytes: Buffer) {
      return Reflect.apply(real, this, [bytes, 0, Math.ceil(bytes.length * 0.7)])
    } as never)
    .mockRejectedValueOnce(systemError(code))
}

function systemError(code: string): Error {
  return Object.assign(new Error(`${code}: injected`), { code })
}
