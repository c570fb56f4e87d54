/** What the cases look at: a server whose stream was written to and read for some seconds. */
import { GRPC_CODES, type GrpcCode } from '../../src/model/grpc-code.ts'
import { type DataRecord, normalTime, type ServerRecord } from './server-record.ts'
import type { Site } from './site.ts'
import { endOf, type Walk, type WalkedPartition, walk } from './walk.ts'

export interface Scene {
  readonly site: Site
  readonly walk: Walk
  /** Commit timestamps by the id of the row that they wrote. */
  readonly committed: ReadonlyMap<string, string>
  /** A partition that has ended, and holds data. */
  readonly ended: WalkedPartition & { readonly end: string }
}

export function codeName(code: number): GrpcCode | 'OK' {
  return (Object.keys(GRPC_CODES) as GrpcCode[]).find((name) => GRPC_CODES[name] === code) ?? 'OK'
}

/** Writes for some seconds while the stream is read, over several generations of partitions. */
export async function play(site: Site): Promise<Scene> {
  const stream = site.streams.OLD_AND_NEW_VALUES
  const end = normalTime(new Date(Date.parse(stream.start) + 5000).toISOString())
  const walking = walk(stream, end, 100)
  const committed = new Map<string, string>()
  for (let id = 1; ; id++) {
    const time = await stream.commit([{ op: 'insert', id, name: `row ${id}`, count: id }])
    if (time > end) break
    committed.set(String(id), time)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  const walked = await walking
  const ended = [...walked.partitions.values()].flatMap((partition) => {
    const endsAt = endOf(partition, stream.probe.mode)
    const isBusy = partition.records.filter(({ kind }) => kind === 'data').length > 2
    return endsAt !== undefined && isBusy ? [{ ...partition, end: endsAt }] : []
  })
  if (ended[0] === undefined)
    throw new Error('no partition with data has ended: the stream does not change its partitions')
  return { site, walk: walked, committed, ended: ended[0] }
}

export function dataOf(records: readonly ServerRecord[]): DataRecord[] {
  return records.filter((record) => record.kind === 'data')
}
