/** The public surface of `millrace`. */

export type { Check } from './core/check.ts'
export { type Clock, systemClock, type Timer } from './core/clock.ts'
export { type Failure, join, type Origin, SourceDelivery } from './core/delivery.ts'
export {
  type ErrorPolicy,
  type FailureContext,
  type OnError,
  type RetryOptions,
  type RetryPolicy,
  retry,
  skip,
  stop,
} from './core/error-policy.ts'
export {
  ClosedError,
  ConfigError,
  EnvironmentError,
  HistoryExpiredError,
  OperatorError,
  SinkError,
  SourceError,
  StoreError,
  StreamError,
  type TimeGap,
} from './core/errors.ts'
export { type Checkpoint, InFlightTracker, type OpenDelivery } from './core/in-flight-tracker.ts'
export {
  type Chunk,
  chunkOperator,
  type Item,
  isMark,
  type Mark,
  mark,
  type Operator,
  operator,
  type Stage,
  stage,
} from './core/stage.ts'
export type { CommitTimestamp, Decision, Delivery, Logger, NackOptions, Sink } from './core/types.ts'
export type { Change, ColumnType, DataChangeRecord, Gap, Mod, Row } from './model/data-change-record.ts'
export { changeId } from './model/data-change-record.ts'
export type { JsonValue } from './model/exact-json.ts'
export type { TypedChange, TypedDataChangeRecord, TypedMod, TypedRow, TypedValue } from './model/typed-values.ts'
export {
  ackAll,
  type DeliveriesOptions,
  definePipeline,
  deliveries,
  type HandlerContext,
  type Pipeline,
  type PipelineOptions,
  type RunningPipeline,
  type RunOptions,
  type RunStatus,
  type RunSummary,
  runPipeline,
  type SubscribeOptions,
  subscribe,
} from './runtime/index.ts'
