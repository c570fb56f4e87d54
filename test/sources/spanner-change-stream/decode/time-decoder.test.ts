import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseTimestamp } from '../../../../src/model/commit-timestamp.ts'
import { MalformedRecord } from '../../../../src/sources/spanner-change-stream/decode/malformed.ts'
import { TimeDecoder } from '../../../../src/sources/spanner-change-stream/decode/time-decoder.ts'
import { WireReader } from '../../../../src/sources/spanner-change-stream/decode/wire-reader.ts'
import { valueBytes, type Wire } from './wire-writer.ts'

const decode = (decoder: TimeDecoder, value: Wire): string => {
  const bytes = valueBytes(value)
  return decoder.decode(new WireReader(bytes), 0, bytes.length, 'timestamp')
}

const seconds = fc.constantFrom(
  '2026-11-18T09:30:00',
  '2026-11-18T09:30:01',
  '2026-11-18T10:30:00',
  '0001-01-01T00:00:00',
)
const oddSeconds = fc.constantFrom(
  '2026-02-30T00:00:00',
  '2026-11-18T24:00:00',
  '2026-11-18 09:30:00',
  '2026-11-18t09:30:00',
  '',
)
const fraction = fc.stringMatching(/^\d{0,9}$/).map((digits) => (digits === '' ? '' : `.${digits}`))
const oddFraction = fc.constantFrom('.', '.1234567890', '.12a', ',5', '.-1', '. 1', '.１', '.12Z', '.+5')
const zone = fc.constantFrom('Z', 'Z', 'Z', 'z', '+00:00', '+02:00', '-11:30')
const oddZone = fc.constantFrom('', 'ZZ', '+25:99', 'Y', ' Z')

const anyTime = fc
  .tuple(
    fc.oneof({ weight: 9, arbitrary: seconds }, oddSeconds),
    fc.oneof({ weight: 9, arbitrary: fraction }, oddFraction),
    fc.oneof({ weight: 9, arbitrary: zone }, oddZone),
  )
  .map((parts) => parts.join(''))

describe('TimeDecoder', () => {
  test('reads any times in any order as parseTimestamp does, and refuses what it refuses', () => {
    let refused = 0
    let read = 0
    fc.assert(
      fc.property(fc.array(anyTime, { maxLength: 30 }), (times) => {
        const decoder = new TimeDecoder()
        for (const time of times) {
          let expected: string | undefined
          try {
            expected = parseTimestamp(time)
          } catch {
            refused++
            expect(() => decode(decoder, time)).toThrow(new MalformedRecord('timestamp', 'is not a timestamp'))
            continue
          }
          read++
          expect(decode(decoder, time)).toBe(expected)
        }
      }),
      { numRuns: 1500, seed: 1118 },
    )
    expect(read).toBeGreaterThan(5000)
    expect(refused).toBeGreaterThan(1000)
  })

  test('a time that is the same again is the same text', () => {
    const decoder = new TimeDecoder()
    for (const time of ['2026-11-18T09:30:00.5Z', '2026-11-18T09:30:00.50Z', '2026-11-18T09:30:00.500000000Z']) {
      expect(decode(decoder, time)).toBe('2026-11-18T09:30:00.500000000Z')
    }
    expect(decode(decoder, '2026-11-18T09:30:00Z')).toBe('2026-11-18T09:30:00.000000000Z')
  })

  test.each<[Wire]>([[null], [true], [7], [['2026-11-18T09:30:00Z']], [{ bytes: Buffer.alloc(0) }]])(
    '%j is no time',
    (value) => {
      const decoder = new TimeDecoder()
      expect(() => decode(decoder, value)).toThrow(new MalformedRecord('timestamp', 'is not a text'))
      expect(decode(decoder, '2026-11-18T09:30:00Z')).toBe('2026-11-18T09:30:00.000000000Z')
    },
  )
})
