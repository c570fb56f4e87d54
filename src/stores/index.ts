/** Where partition progress is kept. */
export { type MemoryPartitionStoreOptions, memoryPartitionStore } from './memory-partition-store.ts'
export type { CheckpointWrite, NewPartition, Ownership, PartitionStore, PartitionTable } from './partition-store.ts'
export { type SqlitePartitionStoreOptions, sqlitePartitionStore } from './sqlite-partition-store.ts'
