import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { fileAccess } from '../../src/core/file-access.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-access-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

describe('fileAccess', () => {
  test('finds a file, or a place for it, and makes nothing', async () => {
    writeFileSync(join(folder, 'there'), '')
    expect(await fileAccess(join(folder, 'there'))).toBe('exists')
    expect(await fileAccess(join(folder, 'new'))).toBe('can be made')
    expect(await fileAccess(join(folder, 'a/b/c'))).toBe('can be made')
    expect(readdirSync(folder)).toEqual(['there'])
  })

  test('refuses what a write would meet', async () => {
    mkdirSync(join(folder, 'sub'))
    writeFileSync(join(folder, 'file'), '')
    await expect(fileAccess(join(folder, 'sub'))).rejects.toMatchObject({ code: 'EISDIR' })
    await expect(fileAccess(join(folder, 'file/x'))).rejects.toMatchObject({ code: 'ENOTDIR' })
    await expect(fileAccess(join(folder, 'file/x/y'))).rejects.toMatchObject({ code: 'ENOTDIR' })
  })
})
