// The unmodified `socket.io-client` as the suites use it, and bare clients of WebSockets and long polling for the messages that it never
// sends.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { io, type ManagerOptions, type Socket, type SocketOptions } from 'socket.io-client';
import WebSocket from 'ws';
import { atEnd } from '../harness/cleanup.ts';
import { url } from '../harness/http.ts';
import type { Server } from '../harness/server.ts';
import { DEADLINE_MS, Inbox, happens, within } from '../harness/wait.ts';

export type Options = Partial<ManagerOptions & SocketOptions>;

/** The answer to a command of the server. */
export interface Answer {
  ok: boolean;
  code?: string;
  message?: string;
  value?: unknown;
  name?: string;
}

/** A new client, which does not have to be connected yet. At the end of the test it closes, with its sockets of other namespaces. */
export function open(t: TestContext, server: Server, options: Options = {}): Socket {
  const socket = io(`http://${server.address}`, { transports: ['websocket'], forceNew: true, reconnection: false, ...options });
  atEnd(t, () => {
    socket.io.reconnection(false);
    socket.disconnect();
    socket.io.engine?.close();
  });
  return socket;
}

/** A new client that has joined `/`. */
export async function connected(t: TestContext, server: Server, options: Options = {}): Promise<Socket> {
  const socket = open(t, server, options);
  await happens(socket, 'connect');
  return socket;
}

/** A socket of another namespace on the connection of `socket`. It does not have to be connected yet. */
export function another(socket: Socket, namespace: string, auth: Record<string, unknown> = {}): Socket {
  const other = socket.io.socket(namespace, { auth });
  if (!other.active) other.connect();
  return other;
}

/** The same after it has joined. */
export async function joined(socket: Socket, namespace: string, auth: Record<string, unknown> = {}): Promise<Socket> {
  const other = another(socket, namespace, auth);
  await happens(other, 'connect');
  return other;
}

/** The answer of the server to a command. */
export function ask(socket: Socket, event: string, ...args: unknown[]): Promise<Answer> {
  return within(DEADLINE_MS, socket.emitWithAck(event, ...args) as Promise<Answer>, `an answer to ${event}`);
}

/** The arguments of all events of a name that the client receives. */
export function received(socket: Socket, event: string): Inbox<unknown[]> {
  const inbox = new Inbox<unknown[]>(`events ${event}`);
  socket.on(event, (...args: unknown[]) => inbox.push(args));
  return inbox;
}

/** A WebSocket on the path of Engine.IO. */
export class BarePeer {
  readonly messages = new Inbox<string>('messages of the server');
  readonly closed: Promise<number>;

  private constructor(readonly socket: WebSocket) {
    socket.on('message', (bytes: Buffer) => this.messages.push(bytes.toString()));
    this.closed = new Promise((done) => socket.once('close', (code) => done(code)));
  }

  /** A peer that has received the open packet. */
  static async open(t: TestContext, server: Server, path = '/socket.io/'): Promise<BarePeer> {
    const socket = new WebSocket(`ws://${server.address}${path}?EIO=4&transport=websocket`);
    const peer = new BarePeer(socket);
    atEnd(t, () => socket.terminate());
    await within(DEADLINE_MS, new Promise((done) => socket.once('open', done)), 'the socket opens');
    return peer;
  }

  /** A peer that has joined `/`. */
  static async join(t: TestContext, server: Server): Promise<BarePeer> {
    const peer = await BarePeer.open(t, server);
    await peer.messages.next();
    peer.send('40');
    await peer.messages.next();
    return peer;
  }

  send(...messages: Array<string | Buffer>): void {
    messages.forEach((message) => this.socket.send(message));
  }
}

/** The byte between two packets of a body. */
export const SEPARATOR = '\x1e';
const PATH = '/socket.io/?EIO=4&transport=';

export interface PollingAnswer {
  status: number;
  type: string | null;
  body: string;
}

/** The answer to a request, with its whole body. */
export async function request(server: Server, query: string, init: RequestInit = {}): Promise<PollingAnswer> {
  const asked = fetch(url(server, `/socket.io/?${query}`), init);
  const response = await within(DEADLINE_MS, asked, `an answer to ${init.method ?? 'GET'} ${query}`);
  return { status: response.status, type: response.headers.get('content-type'), body: await response.text() };
}

/** The content of an open packet. */
export interface Opened {
  sid: string;
  upgrades: string[];
  pingInterval: number;
  pingTimeout: number;
  maxPayload: number;
}

/** A session that polls only when a test requests it. */
export class PollingPeer {
  private constructor(private readonly server: Server, readonly opened: Opened) {}

  /** A peer that has received the open packet. */
  static async open(server: Server): Promise<PollingPeer> {
    const { status, type, body } = await request(server, 'EIO=4&transport=polling');
    assert.deepEqual([status, type, body[0]], [200, 'text/plain; charset=UTF-8', '0']);
    return new PollingPeer(server, JSON.parse(body.slice(1)) as Opened);
  }

  /** A peer that has joined `/`. */
  static async join(server: Server): Promise<PollingPeer> {
    const peer = await PollingPeer.open(server);
    await peer.sends('40');
    assert.match((await peer.due())[0] ?? '', /^40\{"sid":"[\w-]{20}"\}$/);
    return peer;
  }

  get query(): string {
    return `EIO=4&transport=polling&sid=${this.opened.sid}`;
  }

  /** One GET. */
  get(init: RequestInit = {}): Promise<PollingAnswer> {
    return request(this.server, this.query, init);
  }

  /** The packets of one GET, which must succeed. */
  async packets(): Promise<string[]> {
    const { status, body } = await this.get();
    assert.equal(status, 200, body);
    return body.split(SEPARATOR);
  }

  /** The same without pings; it polls again if there is nothing else. */
  async due(): Promise<string[]> {
    for (;;) {
      const packets = await this.packets();
      if (packets.includes('2')) await this.post('3');
      const others = packets.filter((packet) => packet !== '2');
      if (others.length > 0) return others;
    }
  }

  /** The same without the packets that end a poll during an upgrade. */
  async real(): Promise<string[]> {
    for (;;) {
      const packets = (await this.due()).filter((packet) => packet !== '6');
      if (packets.length > 0) return packets;
    }
  }

  /** Polls until `count` packets other than pings have arrived. It answers pings. */
  async messages(count: number): Promise<string[]> {
    const messages: string[] = [];
    while (messages.length < count) messages.push(...(await this.due()));
    return messages;
  }

  /** One POST. */
  post(body: string | Buffer, headers: Record<string, string> = { 'content-type': 'text/plain;charset=UTF-8' }): Promise<PollingAnswer> {
    return request(this.server, this.query, { method: 'POST', body, headers });
  }

  /** A POST of packets, which must succeed. */
  async sends(...packets: string[]): Promise<void> {
    assert.deepEqual(await this.post(packets.join(SEPARATOR)), { status: 200, type: 'text/html', body: 'ok' });
  }

  /** Checks that the session has ended. */
  async isGone(): Promise<void> {
    const unknown = { status: 400, type: 'application/json', body: '{"code":1,"message":"Session ID unknown"}' };
    assert.deepEqual(await this.get(), unknown);
    assert.deepEqual(await this.post('3'), unknown);
  }

  /** A WebSocket for the session. */
  socket(t: TestContext): SwitchingSocket {
    return new SwitchingSocket(t, `ws://${this.server.address}${PATH}websocket&sid=${this.opened.sid}`);
  }
}

/** A WebSocket that is to become the transport of a session. */
export class SwitchingSocket {
  readonly messages = new Inbox<string>('messages of the server');
  readonly opened: Promise<boolean>;
  readonly closed: Promise<number>;
  readonly #socket: WebSocket;

  constructor(t: TestContext, address: string) {
    this.#socket = new WebSocket(address);
    this.#socket.on('error', () => {});
    this.#socket.on('message', (bytes: Buffer) => this.messages.push(bytes.toString()));
    this.opened = new Promise((done) => {
      this.#socket.once('open', () => done(true));
      this.#socket.once('close', () => done(false));
    });
    this.closed = new Promise((done) => this.#socket.once('close', done));
    atEnd(t, () => this.#socket.terminate());
  }

  /** Sends text messages, as soon as the socket is open. */
  async send(...messages: string[]): Promise<void> {
    assert.ok(await within(DEADLINE_MS, this.opened, 'the socket opens'), 'the server refuses the socket');
    messages.forEach((message) => this.#socket.send(message));
  }

  /** The next message apart from pings. */
  async next(): Promise<string> {
    for (;;) {
      const message = await this.messages.next();
      if (message !== '2') return message;
    }
  }

  /** Tests whether messages pass. */
  async probe(): Promise<void> {
    await this.send('2probe');
    assert.equal(await this.messages.next(), '3probe');
  }

  terminate(): void {
    this.#socket.terminate();
  }
}
