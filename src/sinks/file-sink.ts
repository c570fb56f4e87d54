/** Appends items to a file, one line of JSON each; what resolved is on the disk, and no crash leaves half a line. */
import { type FileHandle, mkdir, open } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { type Check, failedCheck } from '../core/check.ts'
import { ClosedError, ConfigError, describeThrown, SinkError } from '../core/errors.ts'
import { fileAccess } from '../core/file-access.ts'
import { knownKeys, nonEmptyString } from '../core/options.ts'
import type { Sink } from '../core/types.ts'

export interface FileSinkOptions {
  /** The file; it and its folders are made at the first write. */
  readonly path: string
}

/**
 * Appends items as lines of JSON, in the order of the writes. A write resolves when its lines are synced to the disk;
 * one that fails takes back what it wrote, so that a retry doubles nothing. A torn last line, left by a crash, is cut
 * off when the file is opened. Items that JSON cannot hold (bigint, cycles, undefined, too deep) are named in
 * `failedItems` of a SinkError; the other items of that write are in the file by then.
 * One process per file: a second one would mistake the lines under way for torn ones.
 * @example definePipeline({ source, sink: fileSink({ path: 'orders.jsonl' }) })
 */
export function fileSink<T = unknown>(options: FileSinkOptions): Sink<T> {
  if (typeof options !== 'object' || options === null) throw new ConfigError(`${OWNER}: takes an options object`)
  knownKeys(OWNER, options, ['path'])
  return new FileSink<T>(nonEmptyString(OWNER, 'path', options.path))
}

/** What `format` made of the items, each with a line feed at its end, and the items it could not handle. */
interface Lines {
  readonly chunks: readonly string[]
  readonly failedItems: readonly number[]
  readonly errors: readonly unknown[]
}

/** Formats what can be formatted, in pieces of a few megabytes, since a string has a largest size. */
export function toLines<T>(items: readonly T[], format: (item: T) => string | undefined): Lines {
  const chunks: string[] = []
  const failedItems: number[] = []
  const errors: unknown[] = []
  let chunk = ''
  for (const [index, item] of items.entries()) {
    try {
      const line = format(item)
      if (typeof line !== 'string') throw new TypeError('the item has no text form')
      if (chunk.length + line.length > MAX_CHUNK_LENGTH && chunk !== '') {
        chunks.push(chunk)
        chunk = ''
      }
      chunk += `${line}\n`
    } catch (error) {
      failedItems.push(index)
      errors.push(error)
    }
  }
  if (chunk !== '') chunks.push(chunk)
  return { chunks, failedItems, errors }
}

/** For a write whose other items are written. */
export function unwritable(owner: string, { failedItems, errors }: Lines, hint: string): SinkError {
  const items = failedItems.length === 1 ? 'one item' : `${failedItems.length} items`
  const cause = errors.length === 1 ? errors[0] : new AggregateError(errors, `${errors.length} items failed`)
  return new SinkError(`${owner}: ${items} of the batch cannot be written: ${describeThrown(errors[0])}`, {
    cause,
    failedItems,
    hint,
  })
}

class FileSink<T> implements Sink<T> {
  readonly name = OWNER
  readonly #path: string
  readonly #file: string
  #handle: FileHandle | undefined
  /** Where the lines end that are known to be whole and durable, while the file may hold more than that. */
  #cutAt: number | undefined
  #lastWrite: Promise<unknown> = Promise.resolve()
  #closing: Promise<void> | undefined

  constructor(path: string) {
    this.#path = path
    // A later change of the working directory must not lead to another file.
    this.#file = resolve(path)
  }

  async write(items: readonly T[], signal: AbortSignal): Promise<void> {
    if (this.#closing !== undefined) throw new ClosedError(`${OWNER}: write after close of ${this.#path}`)
    const written = this.#lastWrite.then(() => this.#writeNow(items, signal))
    this.#lastWrite = written.catch(() => undefined)
    return written
  }

  /** Waits for the writes under way. */
  close(): Promise<void> {
    this.#closing ??= this.#lastWrite.then(() => this.#closeNow())
    return this.#closing
  }

  async check(): Promise<Check[]> {
    try {
      const message = (await fileAccess(this.#file)) === 'exists' ? 'is appended to' : 'is made at the first write'
      return [{ name: 'sink', status: 'ok', message: `${OWNER}: ${this.#path} ${message}` }]
    } catch (error) {
      return [failedCheck('sink', this.#failure('write', error))]
    }
  }

  async #writeNow(items: readonly T[], signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    const lines = toLines(items, (item) => JSON.stringify(item))
    try {
      if (lines.chunks.length > 0) await this.#append(lines.chunks)
    } catch (error) {
      throw this.#failure('write', error)
    }
    if (lines.failedItems.length > 0) throw unwritable(OWNER, lines, UNWRITABLE_HINT)
  }

  async #append(chunks: readonly string[]): Promise<void> {
    this.#handle ??= await openRepaired(this.#file)
    const handle = this.#handle
    await this.#cutBack(handle)
    const { size } = await handle.stat()
    try {
      for (const chunk of chunks) await writeAll(handle, Buffer.from(chunk))
      await handle.datasync()
    } catch (error) {
      // Also after a failed sync: nobody can say which of the lines reached the disk.
      this.#cutAt = size
      await this.#cutBack(handle).catch(() => undefined) // the next write tries again
      throw error
    }
  }

  async #cutBack(handle: FileHandle): Promise<void> {
    if (this.#cutAt === undefined) return
    await handle.truncate(this.#cutAt)
    this.#cutAt = undefined
  }

  async #closeNow(): Promise<void> {
    const handle = this.#handle
    if (handle === undefined) return
    try {
      await this.#cutBack(handle).finally(() => handle.close())
    } catch (error) {
      throw this.#failure('close', error)
    }
  }

  #failure(doing: 'write' | 'close', cause: unknown): SinkError {
    if (cause instanceof SinkError) return cause
    const code = String((cause as { code?: unknown }).code)
    return new SinkError(`${OWNER}: cannot ${doing} ${this.#path}: ${describeThrown(cause)}`, {
      cause,
      retryable: PASSING.has(code),
      hint: HINTS[code] ?? 'Check the path, the rights of this user and the disk.',
    })
  }
}

/** Opens for appending, makes what is missing, and cuts off a line that a crash left unfinished. */
async function openRepaired(file: string): Promise<FileHandle> {
  const folder = dirname(file)
  const firstMade = await mkdir(folder, { recursive: true })
  const handle = await open(file, 'a+')
  try {
    const stats = await handle.stat()
    if (!stats.isFile()) {
      throw new SinkError(`${OWNER}: ${file} is not a regular file`, {
        hint: 'For pipes and terminals use consoleSink().',
      })
    }
    const end = await endOfLastLine(handle, stats.size)
    if (end < stats.size) await handle.truncate(end)
    await syncFolders(folder, firstMade === undefined ? folder : dirname(firstMade))
    return handle
  } catch (error) {
    await handle.close()
    throw error
  }
}

/** Reads backwards in blocks: a torn line may be long, and the file may be larger than memory. */
async function endOfLastLine(handle: FileHandle, size: number): Promise<number> {
  const block = Buffer.allocUnsafe(BLOCK_BYTES)
  for (let end = size; end > 0; ) {
    const start = Math.max(0, end - BLOCK_BYTES)
    const { bytesRead } = await handle.read(block, 0, end - start, start)
    if (bytesRead < end - start)
      throw new SinkError(`${OWNER}: the file shrinks while it is opened`, { retryable: true })
    const lineFeed = block.subarray(0, bytesRead).lastIndexOf(LINE_FEED)
    if (lineFeed >= 0) return start + lineFeed + 1
    end = start
  }
  return 0
}

/** A file whose folder is not synced may be gone after a loss of power, whatever was synced in it. */
async function syncFolders(from: string, upTo: string): Promise<void> {
  if (process.platform === 'win32') return
  for (let folder = from; folder.startsWith(upTo); folder = dirname(folder)) {
    const handle = await open(folder, 'r')
    await handle.sync().finally(() => handle.close())
    if (folder === upTo) return
  }
}

async function writeAll(handle: FileHandle, bytes: Buffer): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.length - done)
    done += bytesWritten
  }
}

const OWNER = 'fileSink'
const LINE_FEED = 0x0a
const BLOCK_BYTES = 64 * 1024
const MAX_CHUNK_LENGTH = 4 * 1024 * 1024
const UNWRITABLE_HINT = 'Turn what JSON cannot hold, such as bigint, into strings in a step before the sink.'

/** What may be gone at the next try. */
const PASSING: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT', 'EIO', 'EAGAIN', 'EBUSY', 'EMFILE', 'ENFILE'])

const HINTS: Readonly<Record<string, string>> = {
  ENOSPC: 'The disk is full: make room.',
  EDQUOT: 'The disk quota is used up: make room.',
  EFBIG: 'The file has reached the largest size allowed: give another path.',
  EACCES: 'This user may not write there: change the rights, or give another path.',
  EISDIR: 'The path is a folder: give the path of a file.',
  EEXIST: 'The folder of the path is a file: give another path.',
  ENOTDIR: 'A part of the path is a file, not a folder: give another path.',
  EROFS: 'The disk is read-only: give a path on another one.',
  EMFILE: 'Too many open files: raise the limit (ulimit -n).',
}
