// The unmodified `socket.io-client` as the suites use it, and a bare WebSocket for the messages that it never sends.

import type { TestContext } from 'node:test';
import { io, type ManagerOptions, type Socket, type SocketOptions } from 'socket.io-client';
import WebSocket from 'ws';
import { atEnd } from '../harness/cleanup.ts';
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
