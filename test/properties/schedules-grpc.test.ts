/** The same lives of a pipeline over real gRPC: the simulator's server, the real Spanner client, the real clock. */
import fc from 'fast-check'
import PQueue from 'p-queue'
import { describe, expect, test } from 'vitest'
import { serveStream } from '../../src/simulator/index.ts'
import { SpannerChangeStreamClient } from '../../src/sources/spanner-change-stream/connection/spanner-client.ts'
import { anySchedule, type Door, runScheduleThrough } from './schedule.ts'

const SEED = Number(process.env.MILLRACE_SEED ?? 20_261_118)
const SCHEDULES = 100
/** Most of a schedule's real time is waiting: several share the two cores. */
const AT_A_TIME = 8

const grpcDoor: Omit<Door, 'clock'> = {
  speed: 10,
  async connect(stream) {
    const server = await serveStream(stream)
    const clients: SpannerChangeStreamClient[] = []
    return {
      client() {
        const client = new SpannerChangeStreamClient({
          database: server.database,
          stream: server.stream,
          emulatorHost: server.host,
          databaseRole: undefined,
          priority: undefined,
          requestTag: undefined,
          directedRead: undefined,
        })
        clients.push(client)
        return client
      },
      async close() {
        await Promise.all(clients.map((client) => client.close()))
        await server.close()
      },
    }
  },
}

describe('random schedules over gRPC', () => {
  test(`P1-P11: ${SCHEDULES} schedules hold through the second door (seed ${SEED})`, { timeout: 600_000 }, async () => {
    const schedules = fc.sample(anySchedule, { seed: SEED, numRuns: SCHEDULES })
    const queue = new PQueue({ concurrency: AT_A_TIME })
    await queue.addAll(
      schedules.map((schedule, path) => async () => {
        const { violations } = await runScheduleThrough(grpcDoor, schedule)
        const inSimulatedTime = `npm run soak -- --seed ${SEED} --path ${path}`
        expect(violations, `${inSimulatedTime} runs schedule ${JSON.stringify(schedule)}`).toEqual([])
      }),
    )
  })
})
