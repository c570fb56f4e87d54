/** The simulator: a seeded change stream to test pipelines with, in process or over gRPC, in real or simulated time. */

export { GRPC_CODES, type GrpcCode } from '../model/grpc-code.ts'
export type {
  Fault,
  FaultChances,
  FaultKind,
  FaultPlan,
  ScriptedFault,
} from './faults.ts'
export type { ServedStream, ServeStreamOptions } from './grpc-server.ts'
export { QueryStatusError } from './grpc-status.ts'
export type { Ledger, LedgerChange, LedgerFault, LedgerTopologyEvent } from './ledger.ts'
export { KEY_SPACE, type KeyRange, pointOf, type SimulatedPartition } from './partition-tree.ts'
export { SeededRandom } from './seeded-random.ts'
export { serveStream } from './serve-stream.ts'
export { SimulatedStream, type SimulatedStreamOptions } from './simulated-stream.ts'
export type { CommitOptions } from './stream-history.ts'
export type { ColumnDefinition, RowWrite, TableDefinition } from './table-rows.ts'
export { SimulationStalledError, VirtualClock, type VirtualClockOptions } from './virtual-clock.ts'
export { type RandomWorkloadOptions, randomWorkload, shopTables } from './workload.ts'
