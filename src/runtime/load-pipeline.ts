/** Finds pipeline files by name or path and loads them; whatever is wrong with a file is said in one message. */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { registerHooks, stripTypeScriptTypes } from 'node:module'
import { basename, extname, join, relative, resolve, sep } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { ConfigError, StreamError } from '../core/errors.ts'
import { nearestName } from '../core/options.ts'
import type { Pipeline } from './define-pipeline.ts'

export interface PipelineFile {
  /** The file's base name without extension. */
  readonly name: string
  /** Absolute. */
  readonly path: string
}

/** Where names are looked up, below the working directory. */
export const PIPELINES_FOLDER = 'pipelines'

/**
 * The pipeline files in a working directory's `pipelines` folder, by name. Where two files share a name, the first
 * of `.ts`, `.mts`, `.js`, `.mjs` counts.
 */
export async function pipelineFiles(cwd: string): Promise<PipelineFile[]> {
  const folder = join(cwd, PIPELINES_FOLDER)
  const entries = await readdir(folder).catch(() => [])
  const byName = new Map<string, PipelineFile>()
  for (const extension of EXTENSIONS) {
    for (const entry of entries.sort()) {
      const name = basename(entry, extension)
      if (extname(entry) !== extension || /\.(d|test)$/.test(name) || byName.has(name)) continue
      byName.set(name, { name, path: join(folder, entry) })
    }
  }
  return [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}

/** Finds a pipeline by its name in `pipelines/`, or by the path of its file. Throws a ConfigError that lists what exists. */
export async function findPipeline(nameOrPath: string, cwd: string): Promise<PipelineFile> {
  if (isPath(nameOrPath)) return fileAt(nameOrPath, cwd)
  if (!NAME.test(nameOrPath)) {
    throw new ConfigError(
      `a pipeline's name has letters, digits, '.', '-' and '_' only, got ${JSON.stringify(nameOrPath.slice(0, 100))}`,
      { hint: 'To run a file from elsewhere, give its path: ./folder/file.ts' },
    )
  }
  const files = await pipelineFiles(cwd)
  const found = files.find((file) => file.name === nameOrPath)
  if (found) return found
  throw new ConfigError(`there is no pipeline '${nameOrPath}' in ./${PIPELINES_FOLDER}`, {
    hint: unknownPipelineHint(nameOrPath, [...files.map((file) => file.name), 'demo']),
  })
}

/**
 * Loads a pipeline file and returns its default export. The file's own code runs; nothing is opened by us.
 * Every failure is a ConfigError that names file and line, except what the file itself throws as another StreamError.
 */
export async function loadPipeline(file: PipelineFile, cwd: string = process.cwd()): Promise<Pipeline> {
  const shown = shownPath(file.path, cwd)
  let exports: Record<string, unknown>
  try {
    exports = await importFile(file.path)
  } catch (thrown) {
    throw loadError(thrown, file.path, cwd)
  }
  const pipeline = exports.default
  if (isPipeline(pipeline)) return pipeline
  const problem =
    pipeline === undefined ? 'has no default export' : `exports ${kindOf(pipeline)} by default, not a pipeline`
  throw new ConfigError(`${shown} ${problem}`, { hint: `End the file with: export default definePipeline({ ... })` })
}

function isPath(nameOrPath: string): boolean {
  return /[\\/]/.test(nameOrPath) || EXTENSIONS.includes(extname(nameOrPath))
}

function fileAt(path: string, cwd: string): PipelineFile {
  const absolute = resolve(cwd, path)
  if (!existsSync(absolute)) {
    throw new ConfigError(`there is no file ${path}`, {
      hint: `Paths count from ${cwd}; a bare name is looked up in ./${PIPELINES_FOLDER}.`,
    })
  }
  if (!statSync(absolute).isFile() || !EXTENSIONS.includes(extname(absolute))) {
    throw new ConfigError(`${path} is not a pipeline file`, { hint: `It must be a file: ${EXTENSIONS.join(', ')}.` })
  }
  return { name: basename(absolute, extname(absolute)), path: absolute }
}

function unknownPipelineHint(name: string, known: readonly string[]): string {
  const nearest = nearestName(name, known)
  const exist = `There are: ${[...new Set(known)].sort().join(', ')}.`
  return nearest ? `Did you mean '${nearest}'? ${exist}` : exist
}

/** Imports by path. Node strips no types below node_modules, where the demo lies once this package is installed. */
async function importFile(path: string): Promise<Record<string, unknown>> {
  const url = pathToFileURL(path).href
  if (!path.includes(`${sep}node_modules${sep}`) || !/\.m?ts$/.test(path)) return await import(url)
  const hooks = registerHooks({
    load(requested, context, nextLoad) {
      if (requested !== url) return nextLoad(requested, context)
      return { format: 'module', source: withoutTypes(readFileSync(path, 'utf8')), shortCircuit: true }
    },
  })
  try {
    return await import(url)
  } finally {
    hooks.deregister()
  }
}

function withoutTypes(source: string): string {
  const { emitWarning } = process
  process.emitWarning = () => undefined // the function is marked experimental, and says so on the user's screen
  try {
    return stripTypeScriptTypes(source)
  } finally {
    process.emitWarning = emitWarning
  }
}

function isPipeline(value: unknown): value is Pipeline {
  // Not by class: the file may have been resolved to another copy of this package.
  return typeof value === 'object' && value !== null && (value as { isPipeline?: unknown }).isPipeline === true
}

function kindOf(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'a list'
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

function loadError(thrown: unknown, path: string, cwd: string): StreamError {
  const shown = shownPath(path, cwd)
  if (!(thrown instanceof Error)) {
    return new ConfigError(`${shown}: threw ${thrown === null ? 'null' : `a ${typeof thrown}`} while loading`, {
      cause: thrown,
    })
  }
  const { code, hint } = thrown as { code?: unknown; hint?: unknown }
  if (code === 'ERR_MODULE_NOT_FOUND') return missingModule(thrown, cwd)
  const place = shownPlace(thrown instanceof SyntaxError ? syntaxPlace(thrown, path) : throwPlace(thrown), shown, cwd)
  if (code === 'CONFIG_INVALID') {
    const options = typeof hint === 'string' ? { cause: thrown, hint } : { cause: thrown }
    return new ConfigError(`${place}: ${thrown.message}`, options)
  }
  if (thrown instanceof StreamError) return thrown
  if (code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') {
    return new ConfigError(`${place}: ${thrown.message}`, {
      cause: thrown,
      hint: 'Node only strips types: no enum, namespace, parameter property or decorator in a pipeline file.',
    })
  }
  if (thrown instanceof SyntaxError) {
    return new ConfigError(`${place}: syntax error: ${thrown.message}`, {
      cause: thrown,
      hint: 'Correct that line and run it again; nothing was read or written.',
    })
  }
  return new ConfigError(`${place}: ${thrown.name}: ${thrown.message}`, { cause: thrown })
}

function missingModule(thrown: Error, cwd: string): ConfigError {
  const [, kind, module = '', importer = ''] =
    /^Cannot find (package|module) '(.+?)' imported from (.+)$/.exec(thrown.message) ?? []
  const place = shownPath(importer.startsWith('file:') ? fileURLToPath(importer) : importer, cwd)
  if (kind === 'package') {
    return new ConfigError(`${place}: the package '${module}' is not installed`, {
      cause: thrown,
      hint: `npm install ${module}`,
    })
  }
  if (kind === undefined) return new ConfigError(thrown.message, { cause: thrown })
  return new ConfigError(`${place}: there is no file ${shownPath(module, cwd)} to import`, {
    cause: thrown,
    hint: "Imports of own files need the file's whole name: import { x } from './x.ts'",
  })
}

interface Place {
  readonly path: string
  readonly line: string
}

function shownPlace(place: Place | undefined, file: string, cwd: string): string {
  return place ? `${shownPath(place.path, cwd)}:${place.line}` : file
}

function shownPath(path: string, cwd: string): string {
  const below = relative(cwd, path)
  return below.startsWith('..') ? path : below
}

/** Node puts `path:line` above the message of some syntax errors; for the others the file is parsed again. */
function syntaxPlace(error: SyntaxError, path: string): Place | undefined {
  return firstLinePlace(error.stack) ?? firstLinePlace(parseAgain(path))
}

function firstLinePlace(text: string | undefined): Place | undefined {
  const [, path, line] = /^(.+):(\d+)\r?\n/.exec(text ?? '') ?? []
  if (path === undefined || line === undefined) return undefined
  return { path: path.startsWith('file:') ? fileURLToPath(path) : path, line }
}

function parseAgain(path: string): string {
  const script = `
    import { readFileSync } from 'node:fs'
    import { stripTypeScriptTypes } from 'node:module'
    import { SourceTextModule } from 'node:vm'
    const [path] = process.argv.slice(1)
    const source = readFileSync(path, 'utf8')
    new SourceTextModule(/ts$/.test(path) ? stripTypeScriptTypes(source) : source, { identifier: path })`
  const flags = ['--no-warnings', '--experimental-vm-modules', '--input-type=module']
  return spawnSync(process.execPath, [...flags, '-e', script, path], { encoding: 'utf8', timeout: 10_000 }).stderr
}

/** The innermost frame of the user's own code. */
function throwPlace(error: Error): Place | undefined {
  for (const [, url = '', line = ''] of (error.stack ?? '').matchAll(/(file:\/\/[^\s()]+):(\d+):\d+/g)) {
    const isOurs = url.startsWith(OWN_CODE) || url.includes('/node_modules/')
    if (!isOurs) return { path: fileURLToPath(url), line }
  }
  return undefined
}

const EXTENSIONS: readonly string[] = ['.ts', '.mts', '.js', '.mjs']
const NAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$/
/** `src/` or `dist/` of this package. */
const OWN_CODE = new URL('../', import.meta.url).href
