/** The lint is part of the safety net: these tests plant what it must catch. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'

const root = join(import.meta.dirname, '../..')

describe('npm run lint', () => {
  test('fails on an import cycle', () => {
    const report = lint({
      'a.ts': "import { b } from './b.ts'\n\nexport const a = (): number => b()\n",
      'b.ts': "import { a } from './a.ts'\n\nexport const b = (): number => a()\n",
    })
    expect(report.status).not.toBe(0)
    expect(report.output).toContain('noImportCycles')
  })

  test('fails on a floating promise', () => {
    const report = lint({
      'a.ts': 'async function work(): Promise<void> {}\n\nexport function start(): void {\n  work()\n}\n',
    })
    expect(report.status).not.toBe(0)
    expect(report.output).toContain('noFloatingPromises')
  })

  test('passes what is in order', () => {
    expect(lint({ 'a.ts': 'export const a = 1\n' })).toMatchObject({ status: 0 })
  })
})

/** Lints files in a folder of their own with the rules of this repository. */
function lint(files: Readonly<Record<string, string>>): { readonly status: number | null; readonly output: string } {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-lint-'))
  try {
    const { $schema: _, vcs: __, ...rules } = JSON.parse(readFileSync(join(root, 'biome.json'), 'utf8'))
    writeFileSync(join(folder, 'biome.json'), JSON.stringify(rules))
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text)
    const biome = join(root, 'node_modules/@biomejs/biome/bin/biome')
    const { status, stdout, stderr } = spawnSync(process.execPath, [biome, 'lint', '.'], {
      cwd: folder,
      encoding: 'utf8',
    })
    return { status, output: stdout + stderr }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
