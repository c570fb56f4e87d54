/** The process that runs the demo's pipeline, seen from the process that starts, kills and restarts it. */
import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { RunStatus } from '../../runtime/index.ts'
import { DEMO_FILE } from './demo-file.ts'

export interface WorkerExit {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** One life of the worker: the same node, the same command line, told by its environment where to read and write. */
export class DemoWorker {
  /** Settles when the process is gone. */
  readonly exit: Promise<WorkerExit>
  readonly #process: ChildProcess
  #status: RunStatus | undefined
  #lastWords: string[] = []
  #isGone = false

  constructor(env: Readonly<Record<string, string>>) {
    // Its own process group: a Ctrl-C in the terminal is for the demo to handle, which then tells the worker.
    this.#process = spawn(process.execPath, [...process.execArgv, MAIN, 'run', DEMO_FILE.path], {
      detached: true,
      env: { ...process.env, ...env, MILLRACE_STATUS_IPC: '1' },
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    })
    this.#process.on('message', (status) => {
      this.#status = status as RunStatus
    })
    this.#process.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#lastWords = [...this.#lastWords, ...text.split('\n').filter(Boolean)].slice(-20)
    })
    this.exit = new Promise((resolve) => {
      const gone = (code: number | null, signal: NodeJS.Signals | null): void => {
        this.#isGone = true
        resolve({ code, signal })
      }
      this.#process.once('error', (error) => {
        this.#lastWords.push(error.message)
        gone(null, null)
      })
      this.#process.once('close', gone)
    })
  }

  /** The newest word of the worker about itself: for the screen only, never for the verdict. */
  get status(): RunStatus | undefined {
    return this.#isGone ? undefined : this.#status
  }

  get isGone(): boolean {
    return this.#isGone
  }

  /** What it said last on stderr. */
  get lastWords(): readonly string[] {
    return this.#lastWords
  }

  /** No chance to finish anything: a crash. */
  kill(): void {
    this.#process.kill('SIGKILL')
  }

  /** Lets it drain. */
  terminate(): void {
    this.#process.kill('SIGTERM')
  }
}

const MAIN: string = fileURLToPath(
  new URL(import.meta.url.endsWith('.ts') ? '../main.ts' : '../main.js', import.meta.url),
)
