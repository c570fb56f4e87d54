import type { Metadata } from '@grpc/grpc-js'
import { describe, expect, test } from 'vitest'
import { authorization } from '../../../../src/sources/spanner-change-stream/connection/spanner-connection.ts'

const OPTIONS = { service_url: 'https://spanner.googleapis.com/', method_name: 'm' }

function sign(getRequestHeaders: (url: string) => Promise<Headers>): Promise<Metadata | undefined> {
  return new Promise((resolve, reject) => {
    authorization({ getRequestHeaders })(OPTIONS, (error, metadata) => (error ? reject(error) : resolve(metadata)))
  })
}

describe('authorization', () => {
  test('puts the headers of the account into the metadata of a call', async () => {
    const asked: string[] = []
    const metadata = await sign((url) => {
      asked.push(url)
      return Promise.resolve(new Headers({ Authorization: 'Bearer t', 'x-goog-user-project': 'p' }))
    })
    expect(metadata?.getMap()).toEqual({ authorization: 'Bearer t', 'x-goog-user-project': 'p' })
    expect(asked).toEqual([OPTIONS.service_url])
  })

  test('asks anew for each call, so that a renewed token is used', async () => {
    let calls = 0
    const account = (): Promise<Headers> => Promise.resolve(new Headers({ authorization: `Bearer ${++calls}` }))
    await sign(account)
    expect((await sign(account))?.get('authorization')).toEqual(['Bearer 2'])
  })

  test('a failure to sign in is UNAUTHENTICATED, with its cause: as UNKNOWN it would be tried again for ever', async () => {
    const cause = new Error('no token')
    await expect(sign(() => Promise.reject(cause))).rejects.toMatchObject({ code: 16, cause })
  })
})
