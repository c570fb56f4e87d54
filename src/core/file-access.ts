/** Whether a file could be written, found out without writing it. */
import { access, constants, stat } from 'node:fs/promises'
import { dirname } from 'node:path'

export type FileAccess = 'exists' | 'can be made'

/**
 * Looks at the file, or at the nearest folder above it that exists. Rejects with the error of the file system that a
 * write would meet: EACCES, EROFS, EISDIR, ENOTDIR. Makes nothing.
 */
export async function fileAccess(file: string): Promise<FileAccess> {
  const stats = await statIfThere(file)
  if (stats?.isDirectory()) throw refused('EISDIR', file)
  if (stats !== undefined) {
    await access(file, constants.R_OK | constants.W_OK)
    return 'exists'
  }
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    const found = await statIfThere(folder)
    if (found === undefined && dirname(folder) !== folder) continue
    if (found !== undefined && !found.isDirectory()) throw refused('ENOTDIR', folder)
    await access(folder, constants.W_OK | constants.X_OK)
    return 'can be made'
  }
}

async function statIfThere(path: string): Promise<Awaited<ReturnType<typeof stat>> | undefined> {
  try {
    return await stat(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

function refused(code: string, path: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`${code}: ${path}`), { code })
}
