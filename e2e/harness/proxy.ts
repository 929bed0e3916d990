// A TCP proxy between clients and the server that breaks connections as a network does.

import { createServer, connect as dial, type Server as Listener, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { atEnd } from './cleanup.ts';
import { unreadBytes } from './kernel.ts';
import type { Server } from './server.ts';

export class Proxy {
  readonly #pairs = new Set<[Socket, Socket]>();
  /** Sockets to the server, including closed ones. */
  readonly #fars: Socket[] = [];
  readonly #connectedAt: number[] = [];
  #broken = false;
  #silent: 'no' | 'answers' | 'all' = 'no';

  /** Receives all bytes of the server, of all connections. */
  onAnswer: (bytes: Buffer) => void = () => {};
  /** Receives all bytes of the clients. */
  onQuestion: (bytes: Buffer) => void = () => {};

  private constructor(
    private readonly listener: Listener,
    readonly address: string,
  ) {}

  /** Starts a proxy to a port of `server` on a free loopback port; it closes at the end of `test`. */
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

  /** Closes all connections without a close message, and refuses new ones until `restore`. */
  cut(): void {
    this.#broken = true;
    for (const pair of this.#pairs) pair.forEach((socket) => socket.destroy());
  }

  /** Drops all bytes, or only the server's bytes, until `restore`; connections stay open. */
  silence(which: 'answers' | 'all' = 'all'): void {
    this.#silent = which;
  }

  /** Accepts new connections again. Closes connections that lost bytes, because their streams are incomplete. */
  restore(): void {
    if (this.#silent !== 'no') this.cut();
    this.#broken = false;
    this.#silent = 'no';
  }

  /**
   * Stops reading from the server on the current connections, as a client that does not read its socket would. Bytes from the clients
   * still reach the server.
   */
  stall(): void {
    for (const [, far] of this.#pairs) far.pause();
  }

  /** Reads again: first the bytes in kernel buffers arrive, then the end of the connection if the server has closed it. */
  readOn(): void {
    for (const [, far] of this.#pairs) far.resume();
  }

  /** Bytes that the proxy has read from the server. */
  get readBytes(): number {
    return this.#fars.reduce((sum, far) => sum + far.bytesRead, 0);
  }

  /** Bytes that the server has sent: those that the proxy has read, and those in kernel buffers. */
  get sentBytes(): number {
    return this.readBytes + this.#fars.reduce((sum, far) => sum + (far.localPort === undefined ? 0 : unreadBytes(far.localPort)), 0);
  }

  /** When clients connected, in milliseconds. */
  get connectedAt(): readonly number[] {
    return this.#connectedAt;
  }

  /** The number of open connections. */
  get openCount(): number {
    return this.#pairs.size;
  }

  /** Closes the proxy and its connections. */
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
