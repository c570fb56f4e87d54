import { describe, expect, test } from 'vitest'
import { SimulatedStream } from '../../../../src/simulator/index.ts'
import { checkGrants, roleGrants } from '../../../../src/sources/spanner-change-stream/preflight/grants.ts'

describe('roleGrants', () => {
  test.each([
    ['googlesql', 'immutable', 'GRANT EXECUTE ON TABLE FUNCTION READ_Orders TO ROLE reader;'],
    ['googlesql', 'mutable', 'GRANT EXECUTE ON TABLE FUNCTION READ_Orders TO ROLE reader;'],
    ['postgresql', 'immutable', 'GRANT EXECUTE ON FUNCTION spanner."read_json_Orders" TO "reader";'],
    ['postgresql', 'mutable', 'GRANT EXECUTE ON FUNCTION spanner."read_proto_bytes_Orders" TO "reader";'],
  ] as const)('names the read function of %s, %s', (dialect, mode, grant) => {
    const [select, execute] = roleGrants({ stream: 'Orders' }, 'reader', { dialect, mode }).split('\n')
    expect(select).toMatch(/^GRANT SELECT ON CHANGE STREAM "?Orders"? TO (ROLE reader|"reader");$/)
    expect(execute).toBe(grant)
  })
})

describe('checkGrants', () => {
  test.each(['immutable', 'mutable'] as const)('reads the first partitions of a stream, %s', async (mode) => {
    const stream = new SimulatedStream({ seed: 1, mode })
    const access = { database: 'd', stream: stream.name, databaseRole: undefined, heartbeatMs: 1000 }
    const layout = { dialect: 'googlesql', mode } as const
    const signal = new AbortController().signal
    const check = await checkGrants(stream.client(), access, layout, stream.now(), signal)
    expect(check).toEqual({ name: 'grants', status: 'ok', message: 'this account may read the stream' })
    expect(stream.openQueries).toBe(0)
  })
})
