/** The edges of a run, recorded: its partition store, its sink and its client write down what really happened. */
import { SinkError } from '../../src/core/errors.ts'
import type { Sink } from '../../src/core/types.ts'
import type { ChangeStreamClient } from '../../src/model/change-stream.ts'
import { type Change, changeId, type Gap, recordId, rowKey } from '../../src/model/data-change-record.ts'
import type { PartitionStore, PartitionTable } from '../../src/stores/index.ts'
import type { Fate, Trouble } from './fate.ts'
import type { History } from './history.ts'

export function recordedStore(
  store: PartitionStore,
  run: number,
  owner: string,
  history: History,
  fate: Fate,
  trouble: Trouble,
): PartitionStore {
  return {
    name: store.name,
    async open(pipeline) {
      return recordedTable(await store.open(pipeline), run, owner, history, fate, trouble)
    },
    close: () => Promise.resolve(),
  }
}

function recordedTable(
  table: PartitionTable,
  run: number,
  owner: string,
  history: History,
  fate: Fate,
  trouble: Trouble,
): PartitionTable {
  const step = <T>(apply: () => Promise<T>): Promise<T> => fate.step('store', trouble, apply)
  return {
    list: () => fate.look(trouble, () => table.list()),
    get: (token) => fate.look(trouble, () => table.get(token)),
    createRoot: (root, by, leaseMs) =>
      step(async () => {
        const accepted = await table.createRoot(root, by, leaseMs)
        history.storeWrite(run, { op: 'createRoot', token: root.token, owner, epoch: 1, accepted })
        return accepted
      }),
    reopen: (end) => step(() => table.reopen(end)),
    claim: (by, leaseMs) =>
      step(async () => {
        const before = new Map((await table.list()).map((row) => [row.token, row]))
        const rows = await table.claim(by, leaseMs)
        for (const { token, epoch, owner: holder, leaseUntilMs } of rows) {
          const row = before.get(token)
          const accepted = holder === owner && row?.epoch !== epoch
          if (!accepted) continue
          // The new lease began at the store's present.
          const isTaken = row !== undefined && row.owner !== null && row.owner !== owner
          const leaseLeftMs = isTaken ? Math.max(0, row.leaseUntilMs - (leaseUntilMs - leaseMs)) : 0
          history.storeWrite(run, { op: 'claim', token, owner, epoch, accepted, leaseLeftMs })
        }
        return rows
      }),
    addChildren: (parent, ownership, children, leaseMs) =>
      step(async () => {
        const inserted = await table.addChildren(parent, ownership, children, leaseMs)
        history.storeWrite(run, {
          op: 'addChildren',
          token: parent,
          ...ownership,
          accepted: inserted !== undefined,
        })
        return inserted
      }),
    advance: (token, ownership, from, to) =>
      step(async () => {
        const accepted = await table.advance(token, ownership, from, to)
        history.storeWrite(run, { op: 'advance', token, ...ownership, accepted, state: to })
        return accepted
      }),
    checkpoint: (by, writes, leaseMs) => {
      const askedAt = history.position
      return step(async () => {
        const before = new Map((await table.list()).map((row) => [row.token, row]))
        const lost = await table.checkpoint(by, writes, leaseMs)
        for (const { token, epoch, watermark, boundaryIds } of writes) {
          const row = before.get(token)
          const now = await table.get(token)
          // What a store does not call lost it has taken, whether or not it changed anything.
          const isForeign = (row?.owner !== owner || row.epoch !== epoch) && !lost.includes(token)
          const accepted = now?.watermark === watermark && now.boundaryIds.length === boundaryIds.length
          const isChange = row?.watermark !== now?.watermark || row?.boundaryIds.length !== now?.boundaryIds.length
          history.storeWrite(run, {
            op: 'checkpoint',
            token,
            owner,
            epoch,
            watermark,
            boundaryIds,
            accepted: (accepted && isChange) || isForeign,
            askedAt,
          })
        }
        return lost
      })
    },
    finish: (token, ownership, checkpoint, endedAt) => {
      const askedAt = history.position
      return step(async () => {
        const accepted = await table.finish(token, ownership, checkpoint, endedAt)
        history.storeWrite(run, {
          op: 'finish',
          token,
          ...ownership,
          ...checkpoint,
          accepted,
          state: 'FINISHED',
          askedAt,
        })
        return accepted
      })
    },
    release: (by) =>
      step(async () => {
        await table.release(by)
      }),
  }
}

type Item = Change | Gap

function keyOf(item: Item): string {
  return item.op === 'gap' ? item.partitionToken : rowKey(item.table, item.keys)
}

export interface SinkTrouble extends Trouble {
  /** Chance that only some items of a batch are written. */
  readonly halfBatches: number
}

/** A sink that writes into the history. Items are changes and gaps, or lists of them behind a `batch`. */
export function recordedSink(
  run: number,
  history: History,
  fate: Fate,
  trouble: SinkTrouble,
  random: { chance(p: number): boolean },
  lane: ((key: string) => string) | undefined,
  noteGap: (gap: Gap) => void = () => undefined,
): Sink<Item | readonly Item[]> {
  const put = (item: Item | readonly Item[]): void => {
    for (const change of [item].flat() as Item[]) {
      if (change.op === 'gap') {
        noteGap(change)
        continue
      }
      const { table, keys, commitTimestamp: timestamp } = change
      history.written(run, { id: changeId(change), key: rowKey(table, keys), timestamp })
    }
  }
  return {
    name: 'recordedSink',
    async write(items) {
      await fate.step('sink', trouble, async () => {
        if (!random.chance(trouble.halfBatches)) {
          for (const item of items) put(item)
          return
        }
        // As the contract of a sink says: behind an item that failed, none of the same key is written.
        const failedItems: number[] = []
        const failedKeys = new Set<string>()
        for (const [index, item] of items.entries()) {
          const keys = ([item].flat() as Item[]).map(keyOf)
          if (random.chance(0.5) && !keys.some((key) => failedKeys.has(key))) {
            put(item)
            continue
          }
          // What merely stands behind a failed item need not be named.
          if (!keys.every((key) => failedKeys.has(key)) || random.chance(0.5)) failedItems.push(index)
          for (const key of keys) failedKeys.add(key)
        }
        if (failedItems.length > 0) throw new SinkError('injected: half a batch', { retryable: true, failedItems })
      })
    },
    close: () => Promise.resolve(),
    ...(lane && { lane: (_: unknown, key: string) => lane(key) }),
  }
}

export function recordedClient(
  client: ChangeStreamClient,
  run: number,
  history: History,
  fate: Fate,
): ChangeStreamClient {
  return {
    describe: (signal) => client.describe(signal),
    async *query(query, signal) {
      fate.assertAlive()
      const { token, start, resumeToken } = query
      history.queryStarted(run, token, start, resumeToken !== undefined)
      try {
        for await (const part of client.query(query, signal)) {
          fate.assertAlive()
          for (const item of part.records) {
            if (item.kind === 'data') {
              const ids = item.record.mods.map((_, index) => `${recordId(item.record)}/${index}`)
              history.queryReturned(run, token, 'data', { timestamp: item.record.commitTimestamp, ids })
            } else if (item.kind === 'heartbeat') {
              history.queryReturned(run, token, 'heartbeat', { timestamp: item.record.timestamp })
            } else if (item.kind === 'event') {
              history.queryReturned(run, token, 'event', { timestamp: item.record.commitTimestamp })
            } else if (item.kind === 'end') {
              history.queryReturned(run, token, 'last', { timestamp: item.record.endTimestamp })
            } else {
              // New partitions are the children of the first query only; elsewhere they say nothing about an end.
              const kind = item.kind === 'children' || token === null ? 'children' : 'event'
              history.queryReturned(run, token, kind, { timestamp: item.record.startTimestamp })
            }
          }
          yield part
        }
      } catch (error) {
        if (!fate.isDead && !signal.aborted) history.queryReturned(run, token, 'error')
        throw error
      }
      fate.assertAlive()
      history.queryReturned(run, token, 'end')
    },
    close: () => client.close(),
  }
}
