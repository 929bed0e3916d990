// A TCP proxy between clients and the server that can break the connection in the ways a network does.

import { createServer, connect as dial, type Server as Listener, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { atEnd } from './cleanup.ts';
import { unreadBytes } from './kernel.ts';
import type { Server } from './server.ts';

export class Proxy {
  readonly #pairs = new Set<[Socket, Socket]>();
  /** Towards the server, also those that have ended. */
  readonly #fars: Socket[] = [];
  readonly #connectedAt: number[] = [];
  #broken = false;
  #silent: 'no' | 'answers' | 'all' = 'no';

  /** Hears all bytes of the server, of all connections. */
  onAnswer: (bytes: Buffer) => void = () => {};
  /** Hears all bytes of the clients. */
  onQuestion: (bytes: Buffer) => void = () => {};

  private constructor(
    private readonly listener: Listener,
    readonly address: string,
  ) {}

  /** Starts a proxy to a port of `server` on a free loopback port; it ends with `test`. */
  static async during(test: TestContext, server: Server, port = server.port): Promise<Proxy> {
    const listener = createServer();
    await new Promise<void>((done) => listener.listen(0, '127.0.0.1', done));
    const place = listener.address();
    if (place === null || typeof place === 'string') throw new Error('a TCP listener has no port');
    const proxy = new Proxy(listener, `127.0.0.1:${place.port}`);
    listener.on('connection', (near) => proxy.#join(near, dial(port, '127.0.0.1')));
    atEnd(test, () => proxy.close());
    return proxy;
  }

  /** Ends all connections at once, without a goodbye, and refuses new ones until `restore`. */
  cut(): void {
    this.#broken = true;
    for (const pair of this.#pairs) pair.forEach((socket) => socket.destroy());
  }

  /** Loses all bytes, or those of the server only, while connections stay open, until `restore`. */
  silence(which: 'answers' | 'all' = 'all'): void {
    this.#silent = which;
  }

  /** Lets new connections through. Connections that lost bytes are ended, since their streams are torn. */
  restore(): void {
    if (this.#silent !== 'no') this.cut();
    this.#broken = false;
    this.#silent = 'no';
  }

  /**
   * Reads no more of what the server sends on the connections of this moment, as a client that does not read its socket.
   * What the client says still arrives.
   */
  stall(): void {
    for (const [, far] of this.#pairs) far.pause();
  }

  /** Reads on: what the kernels have kept arrives, then the end of the connection if it was ended meanwhile. */
  readOn(): void {
    for (const [, far] of this.#pairs) far.resume();
  }

  /** Bytes of the server that were read here. */
  get readBytes(): number {
    return this.#fars.reduce((sum, far) => sum + far.bytesRead, 0);
  }

  /** Bytes that the server has given to its kernel: those that were read here, and those that may still be. */
  get sentBytes(): number {
    return this.readBytes + this.#fars.reduce((sum, far) => sum + (far.localPort === undefined ? 0 : unreadBytes(far.localPort)), 0);
  }

  /** When clients have connected, in milliseconds. */
  get connectedAt(): readonly number[] {
    return this.#connectedAt;
  }

  /** Connections that are open. */
  get openCount(): number {
    return this.#pairs.size;
  }

  /** Ends the proxy and its connections. */
  close(): void {
    this.cut();
    this.listener.close();
  }

  #join(near: Socket, far: Socket): void {
    const pair: [Socket, Socket] = [near, far];
    this.#connectedAt.push(performance.now());
    this.#pairs.add(pair);
    this.#fars.push(far);
    const end = (): void => {
      this.#pairs.delete(pair);
      near.destroy();
      far.destroy();
    };
    for (const [from, to] of [[near, far], [far, near]] as const) {
      from.on('data', (bytes: Buffer) => {
        if (from === near) this.onQuestion(bytes);
        else this.onAnswer(bytes);
        if (this.#silent === 'no' || (this.#silent === 'answers' && from === near)) to.write(bytes);
      });
      from.on('error', end);
      from.on('close', end);
    }
    if (this.#broken) end();
  }
}
