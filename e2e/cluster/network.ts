// The network between the nodes of a cluster and to its store: TCP proxies that drop bytes, in one direction or both, as a network does
// that has lost a route. Connections stay open, so that a node learns of a cut from silence only.

import { createServer, connect as dial, type AddressInfo, type Server as Listener, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { atEnd } from '../harness/cleanup.ts';
import { freePort } from '../harness/ports.ts';

/** Each node has two addresses: its own one, from which its connections come, and one of the proxy through which the others reach it. */
const OWN = '127.77.0';
const THROUGH = '127.77.1';

/** The store counts as node 0. */
export const STORE = 0;

interface Stream {
  from: number;
  to: number;
  sockets: [Socket, Socket];
  /** Whether a direction has lost bytes, so that the rest can't be used. */
  isBroken: boolean;
}

/** The addresses of a node. */
export interface Place {
  number: number;
  /** The options of the section `cluster`. */
  cluster: { host: string; port: number; advertise: string };
  /** The port at which the node reaches the store. */
  storePort: number;
}

export class Network {
  readonly #listeners: Listener[] = [];
  readonly #streams = new Set<Stream>();
  /** The directions that are cut, as `from>to`. */
  readonly #cut = new Set<string>();
  #count = 0;

  private constructor(private storePort: number) {}

  /** A network whose nodes use the store at a port of this machine. */
  static during(test: TestContext, storePort: number): Network {
    const network = new Network(storePort);
    atEnd(test, () => network.#close());
    return network;
  }

  /** The addresses of one node more; its number is the next one from 1 on. */
  async place(): Promise<Place> {
    this.#count += 1;
    const number = this.#count;
    const [host, port] = [`${OWN}.${number}`, await freePort()];
    const numberOf = (socket: Socket): number => Number(socket.remoteAddress?.split('.').at(-1));
    const peers = await this.#listen(`${THROUGH}.${number}`, (socket) => this.#join(socket, dial(port, host), numberOf(socket), number));
    const store = await this.#listen('127.0.0.1', (socket) => this.#join(socket, dial(this.storePort, '127.0.0.1'), number, STORE));
    return { number, cluster: { host, port, advertise: `${peers.address}:${peers.port}` }, storePort: store.port };
  }

  /** Leads later connections to the store to another port, as an address does that a standby server takes over. */
  moveStore(port: number): void {
    this.storePort = port;
  }

  /** Drops all bytes from a node to another one, or to the store. */
  cutOneWay(from: number, to: number): void {
    this.#cut.add(`${from}>${to}`);
  }

  /** Drops all bytes between two nodes, or a node and the store. */
  cut(one: number, other: number): void {
    this.cutOneWay(one, other);
    this.cutOneWay(other, one);
  }

  /** Drops all bytes between a node and the other nodes. */
  isolate(node: number): void {
    for (let other = 1; other <= this.#count; other += 1) if (other !== node) this.cut(node, other);
  }

  /** Delivers again. Connections that have lost bytes end. */
  restore(): void {
    this.#cut.clear();
    for (const stream of this.#streams) if (stream.isBroken) stream.sockets.forEach((socket) => socket.destroy());
  }

  async #listen(address: string, take: (socket: Socket) => void): Promise<AddressInfo> {
    const listener = createServer(take);
    this.#listeners.push(listener);
    await new Promise<void>((done) => listener.listen(0, address, done));
    return listener.address() as AddressInfo;
  }

  #join(near: Socket, far: Socket, from: number, to: number): void {
    const stream: Stream = { from, to, sockets: [near, far], isBroken: false };
    this.#streams.add(stream);
    const end = (): void => {
      // The end of a connection does not pass a cut either.
      if (this.#isCut(from, to) || this.#isCut(to, from)) {
        stream.isBroken = true;
        return;
      }
      this.#streams.delete(stream);
      stream.sockets.forEach((socket) => socket.destroy());
    };
    for (const [source, target, one, other] of [[near, far, from, to], [far, near, to, from]] as const) {
      source.on('data', (bytes: Buffer) => {
        if (this.#isCut(one, other)) stream.isBroken = true;
        else if (!stream.isBroken || !target.destroyed) target.write(bytes);
      });
      source.on('error', end);
      source.on('close', end);
    }
  }

  #isCut(from: number, to: number): boolean {
    return this.#cut.has(`${from}>${to}`);
  }

  #close(): void {
    this.#listeners.forEach((listener) => listener.close());
    for (const { sockets } of this.#streams) sockets.forEach((socket) => socket.destroy());
  }
}
