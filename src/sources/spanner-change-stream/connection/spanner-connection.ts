/** How Spanner is reached: credentials and address, and the few requests that are encoded with its definitions. */
import type { protos } from '@google-cloud/spanner'
import { type ChannelCredentials, credentials, Metadata } from '@grpc/grpc-js'
import { GrpcChannels } from './grpc-channels.ts'
import type { Statement } from './read-statement.ts'
import type { SpannerClientOptions } from './spanner-client.ts'

export async function openChannels({ database, emulatorHost }: SpannerClientOptions): Promise<GrpcChannels> {
  if (emulatorHost !== undefined) return new GrpcChannels(emulatorHost, credentials.createInsecure(), database)
  return new GrpcChannels(SPANNER, await googleCredentials(), database)
}

/** Application default credentials, found and renewed as every client of Google's does it. */
async function googleCredentials(): Promise<ChannelCredentials> {
  const { v1 } = await loadSpanner()
  const account = await new v1.SpannerClient().auth.getClient()
  return credentials.combineChannelCredentials(
    credentials.createSsl(),
    credentials.createFromMetadataGenerator(authorization(account)),
  )
}

/** Who can sign a request. */
interface Account {
  getRequestHeaders(url: string): Promise<Headers>
}

/** By hand: `createFromGoogleCredential` of grpc-js looks for plain keys and would find none in `Headers`. */
export function authorization(account: Account): Parameters<typeof credentials.createFromMetadataGenerator>[0] {
  return ({ service_url }, callback) => {
    account.getRequestHeaders(service_url).then(
      (headers) => {
        const metadata = new Metadata()
        for (const [name, value] of headers) metadata.set(name, value)
        callback(null, metadata)
      },
      // Without a code of its own grpc-js would call it UNKNOWN, which is tried again for ever.
      (cause: unknown) => callback(Object.assign(new Error('signing in failed', { cause }), { code: UNAUTHENTICATED })),
    )
  }
}

export interface SpannerCodec {
  createSession(database: string, role: string | undefined): Uint8Array
  deleteSession(name: string): Uint8Array
  /** The name in an encoded session. */
  sessionName(session: Buffer): string
  executeSql(session: string, statement: Statement, options: SpannerClientOptions): Uint8Array
}

let codec: Promise<SpannerCodec> | undefined

export function spannerCodec(): Promise<SpannerCodec> {
  codec ??= loadSpanner().then(({ protos }) => makeCodec(protos.google.spanner.v1))
  return codec
}

function makeCodec(v1: typeof protos.google.spanner.v1): SpannerCodec {
  return {
    createSession: (database, role) =>
      v1.CreateSessionRequest.encode({
        database,
        session: { multiplexed: true, ...(role && { creatorRole: role }) },
      }).finish(),
    deleteSession: (name) => v1.DeleteSessionRequest.encode({ name }).finish(),
    sessionName: (session) => v1.Session.decode(session).name,
    executeSql: (session, statement, { priority, requestTag, directedRead }) =>
      v1.ExecuteSqlRequest.encode(
        // Names of enum values pass through `fromObject`; `encode` alone would take them for zeros.
        v1.ExecuteSqlRequest.fromObject({
          ...statement,
          session,
          transaction: { singleUse: { readOnly: { strong: true } } },
          requestOptions: {
            ...(priority && { priority: `PRIORITY_${priority.toUpperCase()}` }),
            ...(requestTag && { requestTag }),
          },
          ...(directedRead && { directedReadOptions: directedRead }),
        }),
      ).finish(),
  }
}

/** Loading takes half a second, so commands that do not read do not pay for it. */
function loadSpanner(): Promise<typeof import('@google-cloud/spanner')> {
  return import('@google-cloud/spanner')
}

const SPANNER = 'spanner.googleapis.com:443'
const UNAUTHENTICATED = 16
