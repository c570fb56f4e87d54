/** The demo's pipeline file, which comes with this package. */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { PipelineFile } from '../../runtime/index.ts'

/** The same depth below the package's root from `src/cli/demo` and from `dist/cli/demo`. */
export const DEMO_FILE: PipelineFile = {
  name: 'demo',
  path: fileURLToPath(new URL('../../../pipelines/demo.ts', import.meta.url)),
}

/** Whether this is our own demo, and not a user's pipeline of that name. */
export function isBuiltInDemo(file: PipelineFile): boolean {
  return file.name === DEMO_FILE.name && realpathSync(file.path) === realpathSync(DEMO_FILE.path)
}
