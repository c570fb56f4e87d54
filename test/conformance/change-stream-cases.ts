/** How a server of change streams behaves, case by case; the same for the simulator and for Spanner's emulator. */
import { afterAll, beforeAll, describe } from 'vitest'
import type { Dialect, PartitionMode } from '../../src/model/change-stream.ts'
import { argumentCases } from './argument-cases.ts'
import { captureCases } from './capture-cases.ts'
import { informationSchemaCases } from './information-schema-cases.ts'
import { lifecycleCases } from './lifecycle-cases.ts'
import { mutableCases } from './mutable-cases.ts'
import { rowShapeCases } from './row-shape-cases.ts'
import { play, type Scene } from './scene.ts'
import type { Site } from './site.ts'

/** Runs all cases against the server that `open` starts. */
export function describeChangeStreams(
  server: string,
  modes: readonly PartitionMode[],
  open: (dialect: Dialect, mode: PartitionMode) => Promise<Site>,
): void {
  const kinds = modes.flatMap((mode) =>
    (['googlesql', 'postgresql'] as const).map((dialect) => [dialect, mode] as const),
  )
  describe.each(kinds)(`change streams of ${server} in %s, %s`, (dialect, mode) => {
    let scene: Scene
    const current = (): Scene => scene

    beforeAll(async () => {
      const site = await open(dialect, mode)
      scene = await play(site)
    })
    afterAll(() => scene?.site.close())

    if (mode === 'mutable') mutableCases(dialect, current)
    else {
      lifecycleCases(current)
      rowShapeCases(dialect, current)
    }
    argumentCases(dialect, mode, current)
    captureCases(current)
    informationSchemaCases(dialect, current)
  })
}
