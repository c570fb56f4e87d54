/** Where values end. */
export type { Sink } from '../core/types.ts'
export { type ConsoleSinkOptions, consoleSink } from './console-sink.ts'
export { type FileSinkOptions, fileSink } from './file-sink.ts'
