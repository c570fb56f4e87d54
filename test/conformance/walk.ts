/** Reads a whole stream, from its first query to an end, partition by partition as they are announced. */

import type { PartitionMode } from '../../src/model/change-stream.ts'
import type { Answer } from './raw-probe.ts'
import { recordOf, type ServerRecord } from './server-record.ts'
import type { StreamUnderTest } from './site.ts'

export interface WalkedPartition {
  readonly token: string
  readonly start: string
  readonly answer: Answer
  readonly records: readonly ServerRecord[]
}

export interface Walk {
  readonly start: string
  readonly end: string
  readonly first: WalkedPartition
  readonly partitions: ReadonlyMap<string, WalkedPartition>
}

/** Each query has the end, since the emulator heeds no cancel. */
export async function walk(stream: StreamUnderTest, end: string, heartbeat: number): Promise<Walk> {
  const { start } = stream
  const partitions = new Map<string, WalkedPartition>()
  const asked = new Map<string, Promise<void>>()
  const visit = (records: readonly ServerRecord[]): Promise<unknown> => {
    const visits: Promise<void>[] = []
    for (const record of records) {
      if (record.kind !== 'children' || record.time > end) continue
      for (const { token } of record.children) {
        const seen = asked.get(token) ?? readOne(token, record.time)
        asked.set(token, seen)
        visits.push(seen)
      }
    }
    return Promise.all(visits)
  }
  const readOne = async (token: string, from: string): Promise<void> => {
    const partition = await read(stream, token, from, end, heartbeat)
    partitions.set(token, partition)
    await visit(partition.records)
  }
  const first = await read(stream, undefined, start, end, heartbeat)
  await visit(first.records)
  return { start, end, first, partitions }
}

export async function read(
  { probe, name }: StreamUnderTest,
  token: string | undefined,
  start: string,
  end: string | undefined,
  heartbeat = 1000,
): Promise<WalkedPartition> {
  const answer = await probe.read(name, {
    start,
    heartbeat,
    ...(end !== undefined && { end }),
    ...(token !== undefined && { token }),
  })
  const records = answer.values.map((value) => recordOf(probe.dialect, probe.mode, value))
  return { token: token ?? '', start, answer, records }
}

/** When the children of a partition start, or its end record; undefined if it had not ended. */
export function endOf({ records }: WalkedPartition, mode: PartitionMode): string | undefined {
  return records.find(({ kind }) => kind === (mode === 'mutable' ? 'end' : 'children'))?.time
}

/** A time so many microseconds later. */
export function later(time: string, micros: number): string {
  const total = BigInt(Date.parse(`${time.slice(0, 19)}Z`)) * 1000n + BigInt(time.slice(20, 26)) + BigInt(micros)
  const seconds = new Date(Number(total / 1000n)).toISOString().slice(0, 19)
  return `${seconds}.${String(total % 1_000_000n).padStart(6, '0')}000Z`
}
