/** The store in memory passes the contract of all stores. */
import { describe, expect, test } from 'vitest'
import { ConfigError } from '../../src/core/errors.ts'
import { memoryPartitionStore } from '../../src/stores/index.ts'
import { partitionStoreContract } from '../contracts/partition-store-contract.ts'

partitionStoreContract('memoryPartitionStore: contract', (clock) => memoryPartitionStore({ clock }))

describe('memoryPartitionStore', () => {
  test('measures leases with the clock of the machine by default', async () => {
    const table = await memoryPartitionStore().open('orders')
    const before = Date.now()
    await table.createRoot({ token: 'root', parentTokens: [], start: '2026-01-01T00:00:00.000000000Z' }, 'ann', 5000)
    const [row] = await table.list()
    expect(row?.leaseUntilMs).toBeGreaterThanOrEqual(before + 5000)
    expect(row?.leaseUntilMs).toBeLessThanOrEqual(Date.now() + 5000)
  })

  test('keeps two stores apart', async () => {
    const [one, other] = [await memoryPartitionStore().open('orders'), await memoryPartitionStore().open('orders')]
    await one.createRoot({ token: 'root', parentTokens: [], start: '2026-01-01T00:00:00.000000000Z' }, 'ann', 5000)
    expect(await other.list()).toEqual([])
  })

  test('refuses options that it does not know', () => {
    expect(() => memoryPartitionStore({ clok: 1 } as object)).toThrow(ConfigError)
  })
})
