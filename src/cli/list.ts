/** `millrace list`: the pipelines of this folder, and why a file does not load. */
import { loadPipeline, PIPELINES_FOLDER, type Pipeline, type PipelineFile, pipelineFiles } from '../runtime/index.ts'
import { isBuiltInDemo } from './demo/demo-file.ts'
import { EXIT, withoutControls } from './report-error.ts'

export interface ListOptions {
  readonly json?: true
}

export interface ListedPipeline {
  readonly name: string
  readonly file: string
  readonly source?: string
  readonly sinks?: readonly string[]
  /** Why the file does not load. */
  readonly error?: string
}

/** Loads every pipeline file, one after the other, and prints what it is; a broken file is a line, not a failure. */
export async function list(
  options: ListOptions,
  cwd: string = process.cwd(),
  limitMs: number = LOAD_LIMIT_MS,
): Promise<number> {
  const listed: ListedPipeline[] = []
  for (const file of await pipelineFiles(cwd)) listed.push(await describeFile(file, cwd, limitMs))
  process.stdout.write(options.json ? `${JSON.stringify(listed, undefined, 2)}\n` : table(listed))
  return EXIT.ok
}

async function describeFile(file: PipelineFile, cwd: string, limitMs: number): Promise<ListedPipeline> {
  const listed = { name: file.name, file: file.path.slice(cwd.length + 1) }
  if (isBuiltInDemo(file)) return { ...listed, source: 'simulated shop', sinks: ['fileSink'] }
  try {
    const pipeline = await withinLimit(loadPipeline(file, cwd), limitMs)
    if (pipeline === undefined) return { ...listed, error: `${listed.file} does not load within ${limitMs / 1000} s` }
    return { ...listed, ...describePipeline(pipeline) }
  } catch (error) {
    return { ...listed, error: withoutControls((error as Error).message).split('\n')[0]! }
  }
}

/** A file may wait for what never comes; the others are listed all the same. */
async function withinLimit<T>(promise: Promise<T>, limitMs: number): Promise<T | undefined> {
  const { promise: limit, resolve } = Promise.withResolvers<undefined>()
  const timer = setTimeout(() => resolve(undefined), limitMs)
  try {
    return await Promise.race([promise, limit])
  } finally {
    clearTimeout(timer)
  }
}

function describePipeline({ source, sinks }: Pipeline): Pick<ListedPipeline, 'source' | 'sinks'> {
  return { source: source.defaultName, sinks: sinks.map((sink) => sink.name) }
}

function table(listed: readonly ListedPipeline[]): string {
  if (listed.length === 0) {
    return `There is no pipeline in ./${PIPELINES_FOLDER} yet. To see one at work: millrace run demo\n`
  }
  const nameWidth = Math.max(...listed.map(({ name }) => name.length))
  const sourceWidth = Math.max(...listed.map(({ source = '' }) => source.length))
  const lines = listed.map(({ name, source = '', sinks = [], error }) => {
    if (error !== undefined) return `${name.padEnd(nameWidth)}  ✗ ${error}`
    return `${name.padEnd(nameWidth)}  ${source.padEnd(sourceWidth)}  → ${sinks.join(', ')}`
  })
  return `${lines.join('\n')}\n`
}

const LOAD_LIMIT_MS = 10_000
