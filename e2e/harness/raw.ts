// A peer without the client library: a WebSocket that sends exactly the messages of a test, including invalid ones.

import { getMessage } from '@deepstream/protobuf/dist/src/message-builder.js';
import { parse } from '@deepstream/protobuf/dist/src/message-parser.js';
import WebSocket from 'ws';
import { C, type Message } from './client.ts';
import type { Server } from './server.ts';
import { DEADLINE_MS, Inbox, within } from './wait.ts';

/** How to dial a server that accepts TLS only. */
export interface Dialled {
  /** A URL such as `wss://127.0.0.1:1`. */
  url: string;
  /** Socket options, such as certificates. */
  options: Record<string, unknown>;
}

export class RawPeer {
  /** All messages of the server, decoded. */
  readonly received = new Inbox<Message>('messages of the server');
  /** Resolves with the close code when the connection has ended. */
  readonly closed: Promise<number>;

  private constructor(private readonly socket: WebSocket) {
    socket.on('message', (bytes: Buffer) => parse(bytes).forEach((message) => this.received.push(message as Message)));
    this.closed = new Promise((done) => socket.once('close', done));
    socket.on('error', () => socket.terminate());
  }

  /** A new socket on which nothing was sent. */
  static async dial(server: Server, dialled?: Dialled): Promise<RawPeer> {
    const url = dialled?.url ?? `ws://${server.address}`;
    const socket = new WebSocket(`${url}/deepstream`, { perMessageDeflate: false, ...dialled?.options });
    const peer = new RawPeer(socket);
    await within(DEADLINE_MS, new Promise((done) => socket.once('open', done)), 'the socket opens');
    return peer;
  }

  /** A socket that has passed the challenge and the login. */
  static async login(server: Server, details: object = {}, dialled?: Dialled): Promise<RawPeer> {
    const peer = await RawPeer.challenge(server, dialled);
    peer.send({ topic: C.TOPIC.AUTH, action: C.AUTH_ACTION.REQUEST, data: JSON.stringify(details) });
    await peer.expect(C.TOPIC.AUTH, C.AUTH_ACTION.AUTH_SUCCESSFUL);
    return peer;
  }

  /** A socket that waits for a login. */
  static async challenge(server: Server, dialled?: Dialled): Promise<RawPeer> {
    const peer = await RawPeer.dial(server, dialled);
    const { CHALLENGE, ACCEPT } = C.CONNECTION_ACTION;
    const hello = { url: server.address, protocolVersion: '0.1a', sdkVersion: '7.0.5', sdkType: 'javascript' };
    peer.send({ topic: C.TOPIC.CONNECTION, action: CHALLENGE, ...hello });
    await peer.expect(C.TOPIC.CONNECTION, ACCEPT);
    return peer;
  }

  /** Sends one message. `data` is sent unchanged, even if it is malformed. */
  send(message: Partial<Message> & { topic: number; action: number }): void {
    this.sendBytes(getMessage(message, false));
  }

  /** Sends `bytes` as one binary frame. */
  sendBytes(bytes: Uint8Array): void {
    this.socket.send(bytes);
  }

  /** Sends `text` as one text frame. */
  sendText(text: string): void {
    this.socket.send(text);
  }

  /** The first message of this kind that the server sent. */
  async expect(topic: number, action: number, matches: (message: Message) => boolean = () => true): Promise<Message> {
    return this.received.find((message) => message.topic === topic && message.action === action && matches(message));
  }

  /** Waits for `count` messages of this kind. */
  async expectCount(topic: number, action: number, count: number): Promise<void> {
    const matches = (message: Message): boolean => message.topic === topic && message.action === action;
    await this.received.until((seen) => seen.filter(matches).length >= count);
  }

  /** Waits until the server has processed all earlier messages: it answers one more request. */
  async settle(): Promise<void> {
    const pongs = (): number => this.received.seen.filter(isPong).length;
    const before = pongs();
    this.send({ topic: C.TOPIC.CONNECTION, action: C.CONNECTION_ACTION.PING });
    await this.received.until(() => pongs() > before, DEADLINE_MS, 'a PONG');
  }

  /** Bytes in the send buffer. */
  get unsentBytes(): number {
    return this.socket.bufferedAmount;
  }

  get isOpen(): boolean {
    return this.socket.readyState === WebSocket.OPEN;
  }

  close(): void {
    this.socket.close();
  }

  /** Ends the connection without a closing handshake. */
  abort(): void {
    this.socket.terminate();
  }
}

function isPong(message: Message): boolean {
  return message.topic === C.TOPIC.CONNECTION && message.action === C.CONNECTION_ACTION.PONG;
}
