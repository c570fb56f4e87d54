/** How the tests run: sources directly through the package's own export map, no build first. */
import { defineConfig, type ViteUserConfig } from 'vitest/config'

const config: ViteUserConfig = defineConfig({
  // Not 'import': these are given to Node as well, which would then load ES modules where CommonJS asks with require.
  ssr: { resolve: { conditions: ['@millrace/source', 'node'] } },
  test: {
    include: ['test/**/*.test.ts'],
    typecheck: { enabled: false },
    testTimeout: 60_000,
    hookTimeout: 60_000,
    pool: 'forks',
    // Much of the suite waits for real processes: every core works, not all but one.
    maxWorkers: '100%',
  },
})

export default config
