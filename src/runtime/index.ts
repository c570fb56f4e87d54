/** Pipelines: defined, loaded, run and stopped. */
export { definePipeline, type Pipeline, type PipelineOptions } from './define-pipeline.ts'
export { ackAll, type DeliveriesOptions, deliveries } from './deliveries.ts'
export { findPipeline, loadPipeline, PIPELINES_FOLDER, type PipelineFile, pipelineFiles } from './load-pipeline.ts'
export { preflight } from './preflight.ts'
export {
  type RunningPipeline,
  type RunOptions,
  type RunStatus,
  type RunSummary,
  runPipeline,
} from './run-pipeline.ts'
export { listenForShutdown, type Shutdown } from './shutdown.ts'
export { type HandlerContext, type SubscribeOptions, subscribe } from './subscribe.ts'
