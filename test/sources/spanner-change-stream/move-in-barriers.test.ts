import { describe, expect, test } from 'vitest'
import { InFlightBudget } from '../../../src/core/in-flight-budget.ts'
import { LivePartition, type Reading } from '../../../src/sources/spanner-change-stream/live-partition.ts'
import { MoveInBarriers } from '../../../src/sources/spanner-change-stream/move-in-barriers.ts'
import { settled } from '../../support/recording-clock.ts'
import { at } from './scripted-stream.ts'

/** Counts how many partitions are looked at. */
class CountedMap extends Map<string, LivePartition> {
  looks = 0

  override get(token: string): LivePartition | undefined {
    this.looks++
    return super.get(token)
  }

  override *values(): MapIterator<LivePartition> {
    for (const partition of super.values()) {
      this.looks++
      yield partition
    }
  }
}

/** Partitions that all stand at the time 0, and barriers over them. */
class Scene {
  readonly live = new CountedMap()
  readonly passed: string[] = []
  readonly barriers = new MoveInBarriers(this.live, () => Promise.resolve(false))
  readonly #budget = new InFlightBudget({ maxInFlight: 1e6, maxInFlightBytes: 1e9 })
  readonly #stop = new AbortController()

  constructor(partitions: number) {
    for (let n = 0; n < partitions; n++) this.add(`p${n}`)
  }

  add(token: string): void {
    const row = { token, parentTokens: [], start: at(0), state: 'RUNNING' as const, endedAt: null }
    const progress = { watermark: at(0), boundaryIds: [], owner: 'o', epoch: 1, leaseUntilMs: 0 }
    const partition = new LivePartition({ ...row, ...progress }, 'o')
    partition.beginReading(this.#budget, {
      acked: (of) => this.barriers.progressed(of),
      nacked: () => false,
      decide: () => 'stop',
    })
    this.live.set(token, partition)
  }

  reading(token: string): Reading {
    return Map.prototype.get.call(this.live, token).reading
  }

  /** Hands out a change; returns what settles it. */
  change(token: string, nanos: number): () => void {
    const reading = this.reading(token)
    reading.position.observe(at(nanos), String(nanos))
    const sequence = reading.tracker.enter(at(nanos), String(nanos), 0, 1)
    this.barriers.progressed(token)
    return () => reading.acked(sequence)
  }

  heartbeat(token: string, nanos: number): void {
    this.reading(token).position.observe(at(nanos))
    this.barriers.progressed(token)
  }

  /** The partition stands at a move and waits. */
  moveIn(token: string, nanos: number, moveInFrom: string[]): void {
    const reading = this.reading(token)
    reading.position.observe(at(nanos))
    reading.eventAt = at(nanos)
    const event = { commitTimestamp: at(nanos), recordSequence: '0', token, moveInFrom, moveOutTo: [] }
    const waited = this.barriers.wait(Map.prototype.get.call(this.live, token), event, this.#stop.signal)
    waited.then(
      () => this.passed.push(token),
      () => undefined,
    )
  }

  finish(token: string): void {
    this.live.delete(token)
    this.barriers.finished(token)
  }

  /** Partitions that are looked at while this happens and until everyone who hears of it has acted. */
  async looksDuring(work: () => void): Promise<number> {
    await settled()
    const before = this.live.looks
    work()
    await settled()
    return this.live.looks - before
  }

  close(): void {
    this.#stop.abort(new Error('over'))
  }
}

describe('MoveInBarriers', () => {
  test('P3: who waits for a known source goes on when that has read past the move and settled what came before', async () => {
    const scene = new Scene(3)
    const settle = scene.change('p1', 5)
    scene.moveIn('p0', 10, ['p1'])
    await settled()
    scene.heartbeat('p1', 11)
    await settled()
    expect(scene.passed).toEqual([])
    settle()
    await settled()
    expect(scene.passed).toEqual(['p0'])
  })

  test('P3: who waits for a source that is not known goes on when everyone has read past the move', async () => {
    const scene = new Scene(4)
    scene.moveIn('p0', 10, ['unheard of'])
    scene.moveIn('p1', 20, ['unheard of'])
    for (const token of ['p2', 'p3']) {
      scene.heartbeat(token, 9)
      await settled()
    }
    scene.heartbeat('p3', 11)
    await settled()
    expect(scene.passed).toEqual([])
    scene.heartbeat('p2', 12)
    await settled()
    expect(scene.passed).toEqual(['p0'])
    // Who is finished holds up nobody.
    scene.heartbeat('p0', 30)
    scene.heartbeat('p2', 30)
    await settled()
    expect(scene.passed).toEqual(['p0'])
    scene.finish('p3')
    await settled()
    expect(scene.passed).toEqual(['p0', 'p1'])
  })

  test('P3: a source that is announced later is waited for like one that was known', async () => {
    const scene = new Scene(3)
    scene.moveIn('p0', 10, ['late'])
    await settled()
    scene.add('late')
    scene.barriers.progressed('late')
    scene.heartbeat('p1', 15)
    scene.heartbeat('p2', 15)
    await settled()
    expect(scene.passed).toEqual([])
    scene.heartbeat('late', 15)
    await settled()
    expect(scene.passed).toEqual(['p0'])
  })

  test('P3: a source that ends lets go who waits for it, also when others wait for the slowest of all', async () => {
    const scene = new Scene(4)
    scene.moveIn('p0', 10, ['p2'])
    scene.moveIn('p1', 10, ['unheard of', 'p2'])
    scene.heartbeat('p3', 15)
    await settled()
    expect(scene.passed).toEqual([])
    scene.finish('p2')
    await settled()
    expect(scene.passed).toEqual(['p0', 'p1'])
  })

  test('P7: a settlement costs nothing that grows with the partitions or with who waits', async () => {
    const known = new Scene(1000)
    for (let n = 0; n < 500; n++) known.moveIn(`p${n}`, 10, [`p${n + 500}`])
    const unknown = new Scene(1000)
    for (let n = 0; n < 500; n++) unknown.moveIn(`p${n}`, 10, [`unheard of ${n}`])
    for (const scene of [known, unknown]) {
      const settlements = [500, 600, 700].flatMap((n) => [1, 2, 3, 4, 5].map((time) => scene.change(`p${n}`, time)))
      const looks = await scene.looksDuring(() => {
        for (const settle of settlements) settle()
      })
      // Three partitions got on, and each of them is waited for by one or by none.
      expect(looks).toBeLessThanOrEqual(6)
      scene.close()
    }
  })

  test('P7: who has read least is found once for all who wait for it, and not before it gets on', async () => {
    const scene = new Scene(1000)
    for (let n = 0; n < 500; n++) scene.moveIn(`p${n}`, 10, [`unheard of ${n}`])
    for (let n = 501; n < 1000; n++) scene.heartbeat(`p${n}`, 5)
    expect(await scene.looksDuring(() => scene.heartbeat('p700', 6))).toBe(0)
    // All partitions once, and the one source of each who waits.
    expect(await scene.looksDuring(() => scene.heartbeat('p500', 7))).toBeLessThanOrEqual(1000 + 500)
    scene.close()
  })
})
