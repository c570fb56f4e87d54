/** How a server of change streams behaves, case by case; the same for the simulator and for Spanner's emulator. */
import { afterAll, beforeAll, describe } from 'vitest'
import type { Dialect } from '../../src/model/change-stream.ts'
import { argumentCases } from './argument-cases.ts'
import { captureCases } from './capture-cases.ts'
import { informationSchemaCases } from './information-schema-cases.ts'
import { lifecycleCases } from './lifecycle-cases.ts'
import { rowShapeCases } from './row-shape-cases.ts'
import { play, type Scene } from './scene.ts'
import type { Site } from './site.ts'

/** Runs all cases against the server that `open` starts. */
export function describeChangeStreams(server: string, open: (dialect: Dialect) => Promise<Site>): void {
  describe.each(['googlesql', 'postgresql'] as const)(`change streams of ${server} in %s`, (dialect) => {
    let scene: Scene
    const current = (): Scene => scene

    beforeAll(async () => {
      const site = await open(dialect)
      scene = await play(site)
    })
    afterAll(() => scene?.site.close())

    lifecycleCases(current)
    rowShapeCases(dialect, current)
    argumentCases(dialect, current)
    captureCases(current)
    informationSchemaCases(dialect, current)
  })
}
