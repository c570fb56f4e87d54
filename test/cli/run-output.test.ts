import { describe, expect, test } from 'vitest'
import { type LogFormat, type RunOutput, runOutput } from '../../src/cli/run-output.ts'

function written(format: LogFormat, use: (output: RunOutput) => void, verbose = false): string[] {
  const texts: string[] = []
  use(runOutput({ format, verbose, write: (text) => texts.push(text) }))
  return texts
}

describe('runOutput', () => {
  test('writes level, message and fields as text', () => {
    const texts = written('text', ({ logger }) =>
      logger.warn('the stream is read again', { partition: 'a1b2', attempt: 3, reason: 'two words', ids: ['x'] }),
    )
    expect(texts).toEqual(['warn  the stream is read again partition=a1b2 attempt=3 reason="two words" ids=["x"]\n'])
  })

  test('keeps a line a line and the terminal as it is, whatever is logged', () => {
    const [text] = written('text', ({ logger }) =>
      logger.info('a\nb\x1b[31m', { field: 'c\nd\x1b]0;x\x07', e: '\u009b1m' }),
    )
    expect(text?.trimEnd()).not.toMatch(/\p{Cc}/u)
  })

  test('writes the fields of pino as JSON lines', () => {
    const [text] = written('json', ({ logger }) => logger.error('gone', { code: 'SINK_WRITE' }))
    expect(text?.endsWith('\n')).toBe(true)
    const line = JSON.parse(text!) as Record<string, unknown>
    expect(line).toMatchObject({ level: 50, msg: 'gone', code: 'SINK_WRITE', pid: process.pid })
    expect(line).toHaveProperty('time')
    expect(line).toHaveProperty('hostname')
  })

  test('P12: shows class and code of a logged error, not its message', () => {
    const error = Object.assign(new TypeError('row content'), { code: 'E1' })
    for (const format of ['text', 'json'] as const) {
      const [text] = written(format, ({ logger }) => logger.error('failed', { error, big: 12n }))
      expect(text).toContain('TypeError')
      expect(text).toContain('E1')
      expect(text).not.toContain('row content')
    }
  })

  test('writes debug lines only if verbose', () => {
    const debug = ({ logger }: RunOutput): void => logger.debug('detail')
    expect(written('text', debug)).toEqual([])
    expect(written('text', debug, true)).toEqual(['debug detail\n'])
  })

  test('writes an event as its line, or as its fields', () => {
    const event = (output: RunOutput): void => output.event('progress', 'written 5', { written: 5 })
    expect(written('text', event)).toEqual(['written 5\n'])
    expect(JSON.parse(written('json', event)[0]!)).toMatchObject({ level: 30, msg: 'progress', written: 5 })
  })
})
