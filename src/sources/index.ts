/** Where changes come from. */
export type {
  ChangeStreamClient,
  Dialect,
  PartitionMode,
  PartitionQuery,
  QueryPart,
  StreamDescription,
} from '../model/change-stream.ts'
export type {
  Change,
  ColumnType,
  DataChangeRecord,
  Gap,
  Mod,
  ModType,
  Row,
  ValueCaptureType,
} from '../model/data-change-record.ts'
export { type FromOptions, from } from './from.ts'
export type { PartitionStatus, Source, SourceContext, SourceRun, SourceStatus } from './source.ts'
export { type SpannerChangeStreamOptions, spannerChangeStream } from './spanner-change-stream/index.ts'
