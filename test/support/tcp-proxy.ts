/** A way to a server of this machine that can be made silent, or cut, at any moment. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

export interface TcpProxy extends AsyncDisposable {
  readonly port: number
  /** From now on the server hears what is said, but its answers are lost. */
  mute(): void
  /** Breaks all connections; new ones work again. */
  cut(): void
}

export async function startTcpProxy(host: string, port: number): Promise<TcpProxy> {
  const sockets = new Set<Socket>()
  const track = (socket: Socket): void => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.on('close', () => sockets.delete(socket))
  }
  let isMuted = false
  const listener = createServer({ noDelay: true }, (near) => {
    const far = connect({ host, port, noDelay: true })
    for (const socket of [near, far]) track(socket)
    near.pipe(far)
    far.on('data', (data) => isMuted || near.write(data))
    near.on('close', () => far.destroy())
    far.on('close', () => near.destroy())
  })
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve))
  const cut = (): void => {
    isMuted = false
    for (const socket of sockets) socket.destroy()
  }
  return {
    port: (listener.address() as AddressInfo).port,
    mute: () => {
      isMuted = true
    },
    cut,
    async [Symbol.asyncDispose]() {
      const closed = new Promise((resolve) => listener.close(resolve))
      cut()
      await closed
    },
  }
}
