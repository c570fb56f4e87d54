/** Cases about what the information schema tells of streams: a reader learns dialect, mode and retention from it. */
import { describe, expect, test } from 'vitest'
import type { Dialect } from '../../src/model/change-stream.ts'
import type { Scene } from './scene.ts'
import { CAPTURES } from './site.ts'

export function informationSchemaCases(dialect: Dialect, scene: () => Scene): void {
  const parameter = dialect === 'googlesql' ? '@p1' : '$1'
  const select = async (sql: string, stream?: string): Promise<Record<string, unknown>[]> => {
    const { probe } = scene().site.streams.NEW_ROW
    const bound = stream === undefined ? {} : { p1: { value: stream, type: 'STRING' as const } }
    const { code, fields, rows } = await probe.query(sql, bound)
    expect(code).toBe(0)
    return rows.map((row) => Object.fromEntries(fields.map(({ name }, index) => [name.toLowerCase(), row[index]])))
  }
  const of = (columns: string, table: string): string =>
    `SELECT ${columns} FROM information_schema.${table} WHERE change_stream_name = ${parameter}`

  describe('the information schema', () => {
    test('tells the dialect', async () => {
      const sql = "SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'"
      const name = dialect === 'googlesql' ? 'GOOGLE_STANDARD_SQL' : 'POSTGRESQL'
      expect(await select(sql)).toEqual([{ option_value: name }])
    })

    test('knows the streams that there are, and no others', async () => {
      const all = dialect === 'googlesql' ? '`ALL`' : '"all"'
      const columns = `change_stream_schema, change_stream_name, ${all}`
      const { name } = scene().site.streams.NEW_ROW
      const schema = dialect === 'googlesql' ? '' : 'public'
      const isAll = dialect === 'googlesql' ? false : 'NO'
      expect(await select(of(columns, 'change_streams'), name)).toEqual([
        { change_stream_schema: schema, change_stream_name: name, all: isAll },
      ])
      expect(await select(of(columns, 'change_streams'), 'nothing')).toEqual([])
    })

    test('names the watched tables', async () => {
      const { name, table } = scene().site.streams.NEW_ROW
      expect(await select(of('table_name', 'change_stream_tables'), name)).toEqual([{ table_name: table }])
    })

    test.each(CAPTURES)('tells the options: %s', async (capture) => {
      const stream = scene().site.streams[capture]
      const { code, rows } = await stream.probe.query(of('option_name, option_value', 'change_stream_options'), {
        p1: { value: stream.name, type: 'STRING' },
      })
      expect(code).toBe(0)
      expect(rows).toContainEqual(['value_capture_type', capture])
    })
  })
}
