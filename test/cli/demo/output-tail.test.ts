import { appendFileSync, mkdtempSync, rmSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { OutputTail } from '../../../src/cli/demo/output-tail.ts'

describe('OutputTail', () => {
  let folder: string
  let path: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'millrace-tail-test-'))
    path = join(folder, 'out.jsonl')
  })
  afterEach(() => rmSync(folder, { recursive: true, force: true }))

  test('has no lines while there is no file', () => {
    expect(new OutputTail(path).readLines()).toEqual([])
  })

  test('gives each line once', () => {
    const tail = new OutputTail(path)
    appendFileSync(path, 'a\nb\n')
    expect(tail.readLines()).toEqual(['a', 'b'])
    expect(tail.readLines()).toEqual([])
    appendFileSync(path, 'c\n')
    expect(tail.readLines()).toEqual(['c'])
    tail.close()
  })

  test('waits for the end of a line', () => {
    const tail = new OutputTail(path)
    appendFileSync(path, 'a\nhal')
    expect(tail.readLines()).toEqual(['a'])
    appendFileSync(path, 'f ü\n')
    expect(tail.readLines()).toEqual(['half ü'])
    tail.close()
  })

  test('forgets a torn line that its writer cut off', () => {
    const tail = new OutputTail(path)
    appendFileSync(path, 'a\ntorn')
    expect(tail.readLines()).toEqual(['a'])
    truncateSync(path, 2)
    appendFileSync(path, 'b\n')
    expect(tail.readLines()).toEqual(['b'])
    tail.close()
  })

  test('reads more than its buffer holds', () => {
    const line = 'x'.repeat(999)
    const tail = new OutputTail(path)
    appendFileSync(path, `${line}\n`.repeat(3000))
    expect(tail.readLines()).toHaveLength(3000)
    tail.close()
  })
})
