/**
 * A process that plays Spanner for the benchmark: plain HTTP/2 with gRPC frames, records encoded beforehand, written as
 * fast as the reader takes them. A stream is called `Bench_<partitions>_<rows a message>_<records a partition>`.
 * A query with a heartbeat of HOLD_MS stays open behind its last record and beats; any other ends there.
 */
import { createServer, type ServerHttp2Stream } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { protos } from '@google-cloud/spanner'
import { HOLD_MS } from './hold.ts'
import { childrenFrame, frameBytes, heartbeatFrame, metadataFrame, RecordFrame, rowsFrame } from './wire-records.ts'

const v1 = protos.google.spanner.v1

const START = '2026-11-18T00:00:00.000000000Z'

const frames = new Map<number, RecordFrame>()
const metadata = metadataFrame()

const server = createServer()
server.on('stream', (stream, headers) => {
  const parts: Buffer[] = []
  stream.on('error', () => undefined)
  stream.on('data', (part: Buffer) => parts.push(part))
  stream.on('end', () => {
    const request = Buffer.concat(parts).subarray(5)
    stream.respond({ ':status': 200, 'content-type': 'application/grpc+proto' }, { waitForTrailers: true })
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
    const method = String(headers[':path']).split('/').at(-1)
    if (method === 'ExecuteStreamingSql') execute(stream, v1.ExecuteSqlRequest.decode(request))
    else if (method === 'BatchCreateSessions') stream.end(frameBytes(sessions(request)))
    else if (method === 'CreateSession') {
      const session = { name: 'projects/p/instances/i/databases/d/sessions/s', multiplexed: true }
      stream.end(frameBytes(v1.Session.encode(session).finish()))
    } else stream.end(frameBytes(Buffer.alloc(0)))
  })
})

function sessions(request: Buffer): Uint8Array {
  const { sessionCount } = v1.BatchCreateSessionsRequest.decode(request)
  const session = Array.from({ length: sessionCount }, (_, n) => ({
    name: `projects/p/instances/i/databases/d/sessions/${n}`,
  }))
  return v1.BatchCreateSessionsResponse.encode({ session }).finish()
}

function execute(stream: ServerHttp2Stream, { sql, params }: protos.google.spanner.v1.ExecuteSqlRequest): void {
  const read = /READ_Bench_(\d+)_(\d+)_(\d+)/.exec(sql)
  if (read === null) {
    stream.end(information(sql))
    return
  }
  const [partitions, rows, count] = read.slice(1).map(Number) as [number, number, number]
  const token = params?.fields?.token?.stringValue
  stream.write(metadata)
  if (!token) {
    stream.end(
      childrenFrame(
        Array.from({ length: partitions }, (_, n) => `partition-${n}`),
        START,
      ),
    )
    return
  }
  const mustHold = params?.fields?.heartbeat?.stringValue === String(HOLD_MS)
  sendRecords(stream, rows, count, mustHold)
}

function sendRecords(stream: ServerHttp2Stream, rows: number, count: number, mustHold: boolean): void {
  const frame = frames.get(rows) ?? new RecordFrame(rows)
  frames.set(rows, frame)
  let sent = 0
  const fill = (): void => {
    // One write a message, as gRPC servers do it.
    while (sent < count) {
      const hasRoom = stream.write(frame.stamp(sent))
      sent += rows
      if (hasRoom) continue
      stream.once('drain', fill)
      return
    }
    if (mustHold) hold(stream, count)
    else stream.end()
  }
  fill()
}

/** Beats in the stream's own time, which goes on from the last record. */
function hold(stream: ServerHttp2Stream, count: number): void {
  let beats = 0
  const timer = setInterval(() => {
    const seconds = Math.ceil(count / 1e6) + ++beats
    stream.write(heartbeatFrame(new Date(Date.parse(START) + seconds * 1000).toISOString().replace('Z', '000000Z')))
  }, HOLD_MS)
  stream.on('close', () => clearInterval(timer))
}

/** What the client asks before it reads. */
function information(sql: string): Buffer {
  if (sql.includes('database_options')) return rowsFrame(['option_value'], [['GOOGLE_STANDARD_SQL']])
  if (sql.includes('change_stream_options')) {
    return rowsFrame(['a', 'b', 'c'], [['', 'retention_period', '7d']])
  }
  if (sql.includes('change_stream_tables')) return rowsFrame(['a', 'b'], [])
  return rowsFrame(
    ['change_stream_name', 'all'],
    streamNames().map((name) => [name, 'true']),
  )
}

/** All that the benchmark may ask for. */
function streamNames(): string[] {
  return (process.argv[2] ?? '').split(',')
}

server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port))
process.on('disconnect', () => process.exit(0))
