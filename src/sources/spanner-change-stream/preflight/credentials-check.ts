/** Looks for credentials as Google's client will, and says whose they are; never what they are. */
import type { v1 } from '@google-cloud/spanner'
import type { Check } from '../../../core/check.ts'
import { describeThrown } from '../../../core/errors.ts'
import { abortable } from '../../../core/signals.ts'

export interface CredentialsOptions {
  readonly emulatorHost: string | undefined
  /** Whether the host comes from SPANNER_EMULATOR_HOST. */
  readonly isHostFromEnvironment: boolean
  /** GOOGLE_APPLICATION_CREDENTIALS */
  readonly keyFile: string | undefined
}

type Auth = v1.SpannerClient['auth']

/** Asks for an access token, and throws it away. */
export async function checkCredentials(options: CredentialsOptions, signal: AbortSignal): Promise<Check> {
  const { emulatorHost, isHostFromEnvironment, keyFile } = options
  if (emulatorHost !== undefined) {
    const host = isHostFromEnvironment ? `SPANNER_EMULATOR_HOST=${emulatorHost}` : `emulatorHost ${emulatorHost}`
    return { name: NAME, status: 'ok', message: `none needed (${host})` }
  }
  try {
    const { v1 } = await import('@google-cloud/spanner')
    const { auth } = new v1.SpannerClient()
    const token = await abortable(auth.getAccessToken(), signal)
    if (!token) throw new Error('no token')
    return { name: NAME, status: 'ok', message: await abortable(principalOf(auth), signal) }
  } catch (error) {
    // The message of the error is left out: it may quote the key file.
    const from = keyFile === undefined ? 'the default places' : `GOOGLE_APPLICATION_CREDENTIALS=${keyFile}`
    const fix = keyFile === undefined ? SIGN_IN : `${KEY_FILE}\n${SIGN_IN}`
    return { name: NAME, status: 'failure', message: `none that work, from ${from} (${describeThrown(error)})`, fix }
  }
}

async function principalOf(auth: Auth): Promise<string> {
  const client = await auth.getClient()
  const kind = KINDS[client.constructor.name] ?? 'application default credentials'
  try {
    const { client_email: email } = await auth.getCredentials()
    return email ? `${kind} ${email}` : kind
  } catch {
    // A user's sign-in has no address to show.
    return kind
  }
}

const NAME = 'credentials'
const KINDS: Readonly<Record<string, string>> = {
  JWT: 'service account',
  Compute: 'service account of this machine',
  Impersonated: 'impersonated service account',
  UserRefreshClient: 'sign-in of a user (gcloud auth application-default login)',
}
const KEY_FILE = 'Is the file there, and is it a key of a service account or another credential file of Google?'
const SIGN_IN =
  'Sign in: gcloud auth application-default login; or set GOOGLE_APPLICATION_CREDENTIALS to a key file; for an emulator set SPANNER_EMULATOR_HOST.'
