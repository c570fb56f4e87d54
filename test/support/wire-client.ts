/** A simulated stream whose records are written and read as over gRPC, in simulated time: each dialect and mode differs. */
import type { ChangeStreamClient } from '../../src/model/change-stream.ts'
import type { SimulatedStream } from '../../src/simulator/index.ts'
import { rowEncoding } from '../../src/simulator/row-encoding.ts'
import { encodeMessage, metadataOf, toProto } from '../../src/simulator/spanner-messages.ts'
import { RecordCaches } from '../../src/sources/spanner-change-stream/decode/record-caches.ts'
import { RecordStream } from '../../src/sources/spanner-change-stream/decode/record-stream.ts'

/** The stream's own client would hand over records as they are, the same for both dialects. */
export function wireClient(stream: SimulatedStream): ChangeStreamClient {
  const { dialect, mode, name } = stream
  const client = stream.client()
  const { type, columnName, encode } = rowEncoding(dialect, mode)
  const metadata = metadataOf([{ name: columnName(name), type }])
  const caches = new RecordCaches()
  return {
    describe: (signal) => client.describe(signal),
    async *query(query, signal) {
      const decoder = new RecordStream(dialect, mode, query.token ?? '', caches)
      for await (const { records, resumeToken } of client.query(query, signal)) {
        const values = records.map((record) => toProto(encode(record)))
        yield decoder.take([encodeMessage({ metadata, values, ...(resumeToken && { resumeToken }) })])
        decoder.assertWell()
      }
      decoder.end()
    },
    close: () => client.close(),
  }
}
