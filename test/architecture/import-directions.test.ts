/** Holds the folders to their directions: who may import whom, which client library lives where, who reads the environment. */
import { readdirSync, readFileSync } from 'node:fs'
import { posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseSync } from 'vite'
import { describe, expect, test } from 'vitest'

/** Folder -> the folders of `src` that it may import, besides itself. `''` is `src/index.ts`, the public surface. */
const DIRECTIONS: Readonly<Record<string, readonly string[]>> = {
  core: [],
  model: ['core'],
  stores: ['core', 'model'],
  sources: ['core', 'model', 'stores'],
  cluster: ['core', 'model', 'stores'],
  simulator: ['core', 'model', 'stores'],
  operators: ['core', 'model'],
  sinks: ['core'],
  metrics: ['core'],
  jobs: ['core', 'sources', 'sinks'],
  archive: ['core', 'sources', 'sinks'],
  runtime: [...folders('core model stores sources cluster operators sinks metrics jobs archive')],
  cli: [...folders('core model stores sources cluster operators sinks metrics jobs archive runtime simulator')],
  '': [...folders('core model stores sources cluster operators sinks metrics jobs archive runtime')],
}

/** From another folder only `index.ts` is imported; these two have none, every file of theirs is for all. */
const WITHOUT_INDEX = ['core', 'model']

/** Files that other folders import directly, and why. */
const DIRECTLY_IMPORTED: Readonly<Record<string, string>> = {
  'src/sources/source.ts': 'the Source interface: through the index, a type would load the Spanner client',
  'src/stores/partition-store.ts': 'the PartitionStore interface: through the index, a type would load every store',
}

/** Package -> where in `src` it may be imported. A package that is not listed may be imported nowhere. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  '@google-cloud/spanner': ['src/sources/spanner-change-stream/', 'src/stores/', 'src/simulator/'],
  '@grpc/grpc-js': ['src/sources/spanner-change-stream/', 'src/stores/', 'src/simulator/'],
  kafkajs: ['src/sinks/'],
  commander: ['src/cli/'],
  'log-update': ['src/cli/'],
  ix: ['src/core/stage.ts'],
  'p-queue': ['src/'],
  pg: ['src/stores/'],
}

/** Where the environment may be read, and why. Pipeline files may too: they are the user's. */
const ENVIRONMENT_READERS: Readonly<Record<string, string>> = {
  'src/cli/': 'the command line belongs to the process that it runs in',
  'src/model/spanner-address.ts': 'SPANNER_EMULATOR_HOST is honoured by every Spanner client, also in a library',
  'src/sources/spanner-change-stream/index.ts': 'preflight says which key file Google takes',
}

/** Files whose dynamic imports are not literals, and why. */
const COMPUTED_IMPORTS: Readonly<Record<string, string>> = {
  'src/runtime/load-pipeline.ts': "loads the user's pipeline file",
}

describe('import directions', () => {
  test('every file of src and pipelines keeps to them', () => {
    expect(violationsIn(readSources(['src', 'pipelines']))).toEqual([])
  })

  test('the walker reads the files that are there', () => {
    expect([...readSources(['src']).keys()]).toEqual(
      expect.arrayContaining(['src/core/stage.ts', 'src/model/partition.ts', 'src/runtime/define-pipeline.ts']),
    )
  })

  test('every exception still has its file', () => {
    const files = [...readSources(['src']).keys()]
    const exceptions = [DIRECTLY_IMPORTED, ENVIRONMENT_READERS, COMPUTED_IMPORTS].flatMap((table) => Object.keys(table))
    expect(exceptions.filter((path) => !files.some((file) => file.startsWith(path)))).toEqual([])
  })
})

describe('violationsIn', () => {
  const planted: [rule: string, path: string, text: string][] = [
    ['an arrow that turns back', 'src/core/a.ts', `import { b } from '../stores/index.ts'`],
    ['a type import that turns back', 'src/core/a.ts', `import type { B } from '../model/partition.ts'`],
    ['an inline type import that turns back', 'src/core/a.ts', `type B = import('../model/partition.ts').Partition`],
    ['a dynamic import that turns back', 'src/operators/a.ts', `const b = await import('../stores/index.ts')`],
    ['a re-export that turns back', 'src/sinks/index.ts', `export { b } from '../sources/index.ts'`],
    ['a star re-export that turns back', 'src/sinks/index.ts', `export * from '../sources/index.ts'`],
    ['an import for its effects that turns back', 'src/sinks/a.ts', `import '../sources/index.ts'`],
    ['an import of the command line', 'src/runtime/a.ts', `import { main } from '../cli/main.ts'`],
    ['an import of the simulator by the runtime', 'src/runtime/a.ts', `import { s } from '../simulator/index.ts'`],
    ['a file behind the index of its folder', 'src/runtime/a.ts', `import { b } from '../sinks/file-sink.ts'`],
    ['a folder that the table does not know', 'src/utils/a.ts', `import { b } from '../core/b.ts'`],
    ['an import from outside src', 'src/core/a.ts', `import { b } from '../../test/support/b.ts'`],
    ['the package by its own name', 'src/runtime/a.ts', `import { map } from 'millrace/operators'`],
    ['Spanner outside its edge', 'src/runtime/a.ts', `import { Spanner } from '@google-cloud/spanner'`],
    ['a file of Spanner outside its edge', 'src/cli/a.ts', `import { v1 } from '@google-cloud/spanner/build/src/v1'`],
    ['gRPC outside its edge', 'src/sources/from.ts', `import { status } from '@grpc/grpc-js'`],
    ['kafkajs outside its edge', 'src/sources/a.ts', `import type { Kafka } from 'kafkajs'`],
    ['a command line library in a library file', 'src/runtime/a.ts', `import logUpdate from 'log-update'`],
    ['a package that nobody decided on', 'src/core/a.ts', `import _ from 'lodash'`],
    ['a computed import', 'src/core/a.ts', `await import(name)`],
    ['the environment read in a library file', 'src/stores/a.ts', `const host = process.env.HOST`],
    ['the environment read by an index', 'src/stores/a.ts', `const host = globalThis.process['env']['HOST']`],
    ['the environment taken apart', 'src/stores/a.ts', `const { env } = process`],
    ['the environment imported', 'src/stores/a.ts', `import { env } from 'node:process'`],
    ['the process under another name', 'src/stores/a.ts', `import * as p from 'node:process'`],
    ['a source file in a pipeline', 'pipelines/a.ts', `import { map } from '../src/operators/index.ts'`],
    ['a client library in a pipeline', 'pipelines/a.ts', `import { Kafka } from 'kafkajs'`],
  ]
  test.each(planted)('catches %s', (_, path, text) => {
    expect(violationsIn(new Map([[path, text]]))).toEqual([expect.stringContaining(path)])
  })

  test('passes what the rules allow', () => {
    const files = new Map([
      [
        'src/operators/batch.ts',
        `import { a } from '../core/stage.ts'\nimport { b } from './map.ts'\nimport 'node:fs'`,
      ],
      [
        'src/sources/from.ts',
        `import type { A } from '../stores/partition-store.ts'\nimport { b } from '../model/b.ts'`,
      ],
      ['src/sources/spanner-change-stream/a.ts', `import { a } from '../source.ts'\nimport '@google-cloud/spanner'`],
      ['src/runtime/load-pipeline.ts', `export { a } from '../sinks/index.ts'\nawait import(path)`],
      ['src/index.ts', `export { a } from './runtime/index.ts'\nexport type { B } from './core/types.ts'`],
      ['src/cli/main.ts', `import { Command } from 'commander'\nconst port = process.env.PORT`],
      [
        'src/core/a.ts',
        `/** import { x } from '../cli/main.ts' */\nconst text = "import '../cli/main.ts'; process.env"`,
      ],
      [
        'src/stores/a.ts',
        `const { pid, ...rest } = { ...process.versions }\nconst { cwd } = process\nimport 'node:fs'`,
      ],
      ['src/stores/b.ts', `import { pid } from 'node:process'`],
      ['pipelines/demo.ts', `import { a } from 'millrace'\nimport { b } from 'millrace/sinks'\nprocess.env.TOPIC`],
    ])
    expect(violationsIn(files)).toEqual([])
  })
})

function folders(names: string): string[] {
  return names.split(' ')
}

function readSources(roots: readonly string[]): Map<string, string> {
  const base = fileURLToPath(new URL('../../', import.meta.url))
  const paths = roots.flatMap((root) =>
    readdirSync(`${base}${root}`, { recursive: true, encoding: 'utf8' }).map((path) =>
      posix.join(root, path.replaceAll('\\', '/')),
    ),
  )
  return new Map(paths.filter((path) => path.endsWith('.ts')).map((path) => [path, readFileSync(base + path, 'utf8')]))
}

/** One line for each breach: file, import, rule. */
function violationsIn(files: ReadonlyMap<string, string>): string[] {
  return [...files].flatMap(([path, text]) => {
    const { imports, readsEnvironment } = usesIn(path, text)
    const breaches = imports.map((specifier) => [specifier ?? 'import(...)', breach(path, specifier)])
    if (readsEnvironment && path.startsWith('src/') && !isListed(path, ENVIRONMENT_READERS)) {
      breaches.push(['process.env', 'is read in src/cli and in pipeline files only'])
    }
    return breaches.filter(([, rule]) => rule !== undefined).map(([what, rule]) => `${path}: ${what} ${rule}`)
  })
}

/** The rule that an import breaks, if any. `undefined` stands for an import whose target is computed. */
function breach(path: string, specifier: string | undefined): string | undefined {
  if (specifier === undefined) return isListed(path, COMPUTED_IMPORTS) ? undefined : 'must name its target as a literal'
  // node:process is judged with process.env.
  if (specifier.startsWith('node:')) return undefined
  if (path.startsWith('pipelines/')) {
    return /^millrace(\/|$)/.test(specifier) ? undefined : "is not 'millrace' or 'millrace/...', as a user would import"
  }
  if (!specifier.startsWith('.')) {
    const name = specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/')
    const places = PACKAGES[name] ?? []
    return places.some((place) => path.startsWith(place))
      ? undefined
      : `belongs in ${places.join(', ') || 'no file of src'}`
  }
  return directionBreach(path, posix.join(posix.dirname(path), specifier))
}

function directionBreach(path: string, target: string): string | undefined {
  const from = folderOf(path)
  const to = folderOf(target)
  const allowed = from === undefined ? undefined : DIRECTIONS[from]
  if (allowed === undefined) return `is imported by a folder that has no row in the table`
  if (to === undefined) return 'lies outside src'
  if (to === from) return undefined
  if (!allowed.includes(to)) return `turns back: ${from || 'index.ts'} may import ${allowed.join(', ') || 'nothing'}`
  const isOpen = WITHOUT_INDEX.includes(to) || target === `src/${to}/index.ts` || target in DIRECTLY_IMPORTED
  return isOpen ? undefined : `is behind src/${to}/index.ts`
}

/** The folder of `src` that a file lies in; `''` for files of `src` itself. */
function folderOf(path: string): string | undefined {
  const [root, folder, ...rest] = path.split('/')
  if (root !== 'src' || folder === undefined) return undefined
  return rest.length === 0 ? '' : folder
}

function isListed(path: string, table: Readonly<Record<string, string>>): boolean {
  return Object.keys(table).some((place) => path.startsWith(place))
}

interface Uses {
  /** Targets of all imports, `undefined` for computed ones. */
  readonly imports: (string | undefined)[]
  readonly readsEnvironment: boolean
}

/** A syntax tree, so that comments and strings that look like code do not count. */
function usesIn(path: string, text: string): Uses {
  const { program, errors } = parseSync(path, text)
  if (errors.length > 0) throw new Error(`${path} cannot be parsed: ${errors[0]?.message}`)
  const imports: (string | undefined)[] = []
  let readsEnvironment = false
  visit(program, (node) => {
    if (IMPORTING.has(node.type) && isNode(node.source)) imports.push(literal(node.source))
    if (node.type === 'TSExternalModuleReference') imports.push(literal(node.expression))
    readsEnvironment ||= isEnvironment(node)
  })
  return { imports, readsEnvironment }
}

const IMPORTING = new Set([
  'ImportDeclaration',
  'ExportNamedDeclaration',
  'ExportAllDeclaration',
  'ImportExpression',
  'TSImportType',
])

/** The fields of any node that are looked at here. */
interface Node {
  readonly type: string
  readonly source?: unknown
  readonly expression?: unknown
  readonly object?: unknown
  readonly property?: unknown
  readonly id?: unknown
  readonly properties?: unknown
  readonly specifiers?: unknown
  readonly key?: unknown
  readonly imported?: unknown
  readonly init?: unknown
  readonly name?: unknown
  readonly value?: unknown
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value
}

function visit(value: unknown, see: (node: Node) => void): void {
  if (Array.isArray(value)) for (const item of value) visit(item, see)
  else if (isNode(value)) {
    see(value)
    for (const child of Object.values(value)) visit(child, see)
  }
}

/** `process.env`, `const { env } = process`, `import { env } from 'node:process'`, and all of them whole. */
function isEnvironment(node: Node): boolean {
  if (node.type === 'MemberExpression') return isProcess(node.object) && nameOf(node) === 'env'
  if (node.type === 'VariableDeclarator') return isProcess(node.init) && mayTakeEnv(node.id)
  return node.type === 'ImportDeclaration' && /^(node:)?process$/.test(literal(node.source) ?? '') && mayTakeEnv(node)
}

/** False if the names that are taken are listed and `env` is none of them. */
function mayTakeEnv(taker: unknown): boolean {
  const taken = isNode(taker) ? (taker.properties ?? taker.specifiers) : undefined
  if (!Array.isArray(taken)) return true
  return taken.filter(isNode).some((part) => {
    const name = part.key ?? part.imported
    return !isNode(name) || name.name === 'env'
  })
}

function literal(node: unknown): string | undefined {
  return isNode(node) && typeof node.value === 'string' ? node.value : undefined
}

function isProcess(node: unknown): boolean {
  if (!isNode(node)) return false
  return node.type === 'MemberExpression' ? nameOf(node) === 'process' : node.name === 'process'
}

/** `b` of `a.b` and of `a['b']`. */
function nameOf({ property }: Node): unknown {
  return isNode(property) ? (property.name ?? property.value) : undefined
}
