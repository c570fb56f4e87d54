/** A throw-away project folder with pipeline files, and the real command line run in it. */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export interface CliResult {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface CliProject extends Disposable {
  readonly folder: string
  /** Runs `millrace <args>` to its end. */
  millrace(args: readonly string[], env?: NodeJS.ProcessEnv): Promise<CliResult>
  /** Starts `millrace <args>`, in the project's folder or another one, and lets the test talk to it. */
  start(args: readonly string[], env?: NodeJS.ProcessEnv, cwd?: string, stdout?: 'pipe' | number): StartedCli
}

export interface StartedCli {
  readonly process: ChildProcess
  /** Resolves once stdout and stderr together contain the text; rejects if it ends without. */
  printed(text: string | RegExp): Promise<void>
  readonly ended: Promise<CliResult>
}

export const REPOSITORY: string = fileURLToPath(new URL('../../', import.meta.url))
const MAIN = join(REPOSITORY, 'src/cli/main.ts')

/** Files by path below the folder. The package itself is linked in, as an install would put it. */
export function cliProject(files: Readonly<Record<string, string>> = {}): CliProject {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-cli-test-'))
  const all = { 'package.json': '{ "type": "module" }', ...files }
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
  mkdirSync(join(folder, 'node_modules'), { recursive: true })
  symlinkSync(REPOSITORY, join(folder, 'node_modules/millrace'), 'dir')
  const start: CliProject['start'] = (args, env = {}, cwd = folder, stdout = 'pipe') => startCli(cwd, args, env, stdout)
  return {
    folder,
    start,
    millrace: (args, env) => start(args, env).ended,
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  }
}

function startCli(cwd: string, args: readonly string[], env: NodeJS.ProcessEnv, output: 'pipe' | number): StartedCli {
  const { npm_lifecycle_event: _event, FORCE_COLOR: _colour, ...inherited } = process.env
  const child = spawn(process.execPath, ['--conditions=@millrace/source', MAIN, ...args], {
    cwd,
    env: { ...inherited, ...env },
    stdio: ['ignore', output, 'pipe'],
  })
  let stdout = ''
  let stderr = ''
  const watchers = new Set<() => void>()
  const arrived = (): void => {
    for (const watch of watchers) watch()
  }
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
    arrived()
  })
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
    arrived()
  })
  const ended = new Promise<CliResult>((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code) => resolve({ code, stdout, stderr }))
  })
  return {
    process: child,
    ended,
    printed: (text) =>
      new Promise((resolve, reject) => {
        const watch = (): void => {
          if ((stdout + stderr).search(text) === -1) return
          watchers.delete(watch)
          resolve()
        }
        watchers.add(watch)
        watch()
        ended.then(
          () => reject(new Error(`ended without printing ${text}:\n${stdout}${stderr}`)),
          (error) => reject(error),
        )
      }),
  }
}
