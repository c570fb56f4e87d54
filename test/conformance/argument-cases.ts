/** Cases about what a server accepts and with which code it refuses the rest; texts of messages are no contract. */
import { describe, expect, test } from 'vitest'
import type { Dialect, PartitionMode } from '../../src/model/change-stream.ts'
import { type Bound, bindings, type ReadArguments, readCall, readFunction } from './raw-probe.ts'
import { codeName, type Scene } from './scene.ts'
import { normalTime } from './server-record.ts'
import type { StreamUnderTest } from './site.ts'

export function argumentCases(dialect: Dialect, mode: PartitionMode, scene: () => Scene): void {
  const nameOf = (stream: string): string => readFunction(dialect, stream, mode)
  const stream = (): StreamUnderTest => scene().site.streams.OLD_AND_NEW_VALUES
  const soon = (ms: number): string => normalTime(new Date(Date.now() + ms).toISOString())
  /** Bounded, so that what is accepted by mistake ends as well. */
  const code = async (given: ReadArguments): Promise<string> => {
    const { start, end } = scene().walk
    const answer = await stream().probe.read(stream().name, { start: normalTime(start), end, ...given })
    return codeName(answer.code)
  }
  const sqlCode = async (sql: string, bound: Record<string, Bound> = {}): Promise<string> =>
    codeName((await stream().probe.query(sql, bound)).code)
  const usual = (): Record<string, Bound> => {
    const { start, end } = scene().walk
    return bindings({ start: normalTime(start), end })
  }
  const call = (): string => readCall(dialect, stream().name, mode)
  const notThere = dialect === 'googlesql' ? 'INVALID_ARGUMENT' : 'NOT_FOUND'

  describe('arguments', () => {
    test.each<[what: string, expected: string, given: (scene: Scene) => ReadArguments]>([
      ['a token that is none', 'INVALID_ARGUMENT', () => ({ token: 'garbage' })],
      ['a start before the creation', 'OUT_OF_RANGE', () => ({ start: soon(-3_600_000) })],
      ['a start beyond the retention', 'OUT_OF_RANGE', () => ({ start: soon(-8 * 86_400_000) })],
      ['a start 11 minutes ahead', 'OUT_OF_RANGE', () => ({ start: soon(660_000), end: soon(661_000) })],
      ['an end before the start', 'INVALID_ARGUMENT', () => ({ end: soon(-3_600_000) })],
      ['a start of NULL', 'INVALID_ARGUMENT', () => ({ start: { value: null, type: 'TIMESTAMP' } })],
      ['a heartbeat of NULL', 'INVALID_ARGUMENT', () => ({ heartbeat: { value: null, type: 'INT64' } })],
      ['a heartbeat of 99 ms', 'OUT_OF_RANGE', () => ({ heartbeat: 99 })],
      ['a heartbeat of 100 ms', 'OK', () => ({ heartbeat: 100 })],
      ['a heartbeat of 300,000 ms', 'OK', () => ({ heartbeat: 300_000 })],
      ['a heartbeat of 300,001 ms', 'OUT_OF_RANGE', () => ({ heartbeat: 300_001 })],
    ])('%s: %s', async (_, expected, given) => {
      expect(await code(given(scene()))).toBe(expected)
    })

    // PostgreSQL looks for another function of that name, which takes such arguments.
    test(`a start as a STRING: ${notThere}`, async () => {
      expect(await code({ start: { value: scene().walk.start, type: 'STRING' } })).toBe(notThere)
    })

    test("another stream's token: INVALID_ARGUMENT", async () => {
      const other = scene().site.streams.NEW_ROW
      const { probe, name } = other
      const start = normalTime(other.start)
      const answer = await probe.read(name, { start, end: start, token: scene().ended.token })
      expect(codeName(answer.code)).toBe('INVALID_ARGUMENT')
    })

    test('a start a moment ahead is waited for', async () => {
      const start = soon(700)
      const { code, values } = await stream().probe.read(stream().name, { start, end: start })
      expect(codeName(code)).toBe('OK')
      expect(values.length).toBeGreaterThan(0)
      expect(soon(0) >= start).toBe(true)
    })

    test(`a stream that does not exist: ${notThere}`, async () => {
      expect(await sqlCode(readCall(dialect, 'nothing', mode), usual())).toBe(notThere)
    })
  })

  describe('forms of the call', () => {
    const forms: readonly [what: string, expected: string, sql: (call: string, stream: string) => string][] =
      dialect === 'googlesql'
        ? [
            [
              'by position, five',
              'OK',
              (_, name) => `SELECT ChangeRecord FROM ${nameOf(name)}(@p1, @p2, @p3, @p4, NULL)`,
            ],
            ['by position, four', 'OK', (_, name) => `SELECT ChangeRecord FROM ${nameOf(name)}(@p1, @p2, @p3, @p4)`],
            [
              'a missing argument',
              'INVALID_ARGUMENT',
              (_, name) => `SELECT ChangeRecord FROM ${nameOf(name)}(@p1, @p2, @p3)`,
            ],
            ['an unknown name', 'INVALID_ARGUMENT', (call) => call.replace('read_options', 'options')],
            ['every column', 'OK', (_, name) => `SELECT * FROM ${nameOf(name)}(@p1, @p2, @p3, @p4, NULL)`],
            ['a WHERE', 'UNIMPLEMENTED', (call) => `${call} WHERE TRUE`],
            ['a LIMIT', 'UNIMPLEMENTED', (call) => `${call} LIMIT 1`],
            ['another column', 'UNIMPLEMENTED', (call) => call.replace('ChangeRecord', 'ChangeRecord, 1')],
            ['a query around it', 'UNIMPLEMENTED', (call) => `SELECT COUNT(*) FROM (${call})`],
          ]
        : [
            ['four arguments', 'OK', (_, name) => `SELECT * FROM spanner.${nameOf(name)}($1, $2, $3, $4)`],
            ['five arguments', 'OK', (_, name) => `SELECT * FROM spanner.${nameOf(name)}($1, $2, $3, $4, NULL)`],
            ['a WHERE', 'UNIMPLEMENTED', (call) => `${call} WHERE true`],
            ['a LIMIT', 'UNIMPLEMENTED', (call) => `${call} LIMIT 1`],
            [
              'the column by its name',
              'OK',
              (_, name) => `SELECT ${nameOf(name)} FROM spanner.${nameOf(name)}($1, $2, $3, $4, NULL)`,
            ],
          ]
    test.each(forms)('%s: %s', async (_, expected, sql) => {
      expect(await sqlCode(sql(call(), stream().name), usual())).toBe(expected)
    })

    test('options that are not NULL: UNIMPLEMENTED', async () => {
      const sql = call().replace(/NULL\)$/, dialect === 'googlesql' ? '@p5)' : '$5)')
      const bound: Record<string, Bound> = { ...usual(), p5: { value: ['x'], type: 'STRINGS' } }
      expect(await sqlCode(sql, bound)).toBe('UNIMPLEMENTED')
    })

    test('literals instead of parameters: OK', async () => {
      const { start, end } = scene().walk
      const { name } = stream()
      const sql =
        dialect === 'googlesql'
          ? `SELECT ChangeRecord FROM ${nameOf(name)}(TIMESTAMP '${start}', TIMESTAMP '${end}', NULL, 1000)`
          : `SELECT * FROM spanner.${nameOf(name)}('${start}', '${end}', NULL, 1000, NULL)`
      expect(await sqlCode(sql)).toBe('OK')
    })
  })

  describe('transactions', () => {
    const inTransaction = async (transaction: Parameters<StreamUnderTest['probe']['query']>[2]): Promise<string> =>
      codeName((await stream().probe.query(call(), usual(), transaction)).code)

    test.each([
      ['single-use and strong', 'OK', { singleUse: { readOnly: { strong: true } } }],
      ['stale by a duration', 'INVALID_ARGUMENT', { singleUse: { readOnly: { exactStaleness: { seconds: 1 } } } }],
      ['stale by a limit', 'INVALID_ARGUMENT', { singleUse: { readOnly: { maxStaleness: { seconds: 1 } } } }],
      ['begun, read-only', 'INVALID_ARGUMENT', { begin: { readOnly: { strong: true } } }],
      ['begun, read-write', 'INVALID_ARGUMENT', { begin: { readWrite: {} } }],
    ])('%s: %s', async (_, expected, transaction) => {
      expect(await inTransaction(transaction)).toBe(expected)
    })

    test('ExecuteSql instead of ExecuteStreamingSql: INVALID_ARGUMENT', async () => {
      expect(codeName(await stream().probe.unary(call(), usual()))).toBe('INVALID_ARGUMENT')
    })
  })
}
