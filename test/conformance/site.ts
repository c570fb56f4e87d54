/** What the conformance cases need of a server: streams with a table each, and a way to write to them. */
import type { Dialect } from '../../src/model/change-stream.ts'
import type { ValueCaptureType } from '../../src/model/data-change-record.ts'
import type { RawProbe } from './raw-probe.ts'

/** A row of the stream's table: `id` is the key, `name` a text, `count` a whole number. */
export interface Write {
  readonly op: 'insert' | 'update' | 'delete'
  readonly id: number
  readonly name?: string | null
  readonly count?: number | null
}

/** One stream that watches one table. Its partitions change about every second. */
export interface StreamUnderTest {
  readonly name: string
  readonly table: string
  readonly capture: ValueCaptureType
  readonly probe: RawProbe
  /** A time at which it exists. */
  readonly start: string
  /** Writes in one transaction; returns its commit timestamp. */
  commit(writes: readonly Write[]): Promise<string>
}

/** One server with one database in one dialect. */
export interface Site {
  readonly dialect: Dialect
  /** One for each capture type. */
  readonly streams: Readonly<Record<ValueCaptureType, StreamUnderTest>>
  close(): Promise<void>
}

export const CAPTURES = ['OLD_AND_NEW_VALUES', 'NEW_VALUES', 'NEW_ROW', 'NEW_ROW_AND_OLD_VALUES'] as const
export const tableOf = (capture: ValueCaptureType): string => `items_${capture.toLowerCase()}`
export const streamOf = (capture: ValueCaptureType): string => `changes_${capture.toLowerCase()}`
