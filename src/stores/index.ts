/** Where partition progress is kept. */
export type { Partition, PartitionState } from '../model/partition.ts'
export { type MemoryPartitionStoreOptions, memoryPartitionStore } from './memory-partition-store.ts'
export type { CheckpointWrite, NewPartition, Ownership, PartitionStore, PartitionTable } from './partition-store.ts'
export type { PostgresConnection, PostgresPool } from './postgres-database.ts'
export { type PostgresPartitionStoreOptions, postgresPartitionStore } from './postgres-partition-store.ts'
export { type SpannerPartitionStoreOptions, spannerPartitionStore } from './spanner-partition-store.ts'
export { type SqlitePartitionStoreOptions, sqlitePartitionStore } from './sqlite-partition-store.ts'
