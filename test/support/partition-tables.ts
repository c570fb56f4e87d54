/** What tests of single stores begin with. */
import type { StoreError } from '../../src/core/errors.ts'
import type { PartitionStore, PartitionTable } from '../../src/stores/index.ts'

export const ROOT = { token: 'root', parentTokens: [], start: '2026-01-01T00:00:00.000000000Z' }

/** Makes the root, held by ann and RUNNING. */
export async function runningRoot(table: PartitionTable): Promise<{ owner: string; epoch: number }> {
  if (!(await table.createRoot(ROOT, 'ann', 60_000))) throw new Error('there are rows already')
  const ann = { owner: 'ann', epoch: 1 }
  await table.advance('root', ann, 'CREATED', 'RUNNING')
  return ann
}

/** What opening the store throws. */
export async function openFailure(store: PartitionStore): Promise<StoreError> {
  const error = await store.open('orders').catch((thrown: unknown) => thrown)
  await store.close()
  if (!(error instanceof Error)) throw new Error('the store was to fail')
  return error as StoreError
}
