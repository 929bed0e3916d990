// A peer without the client library on the JSON endpoint (`spec/deepstream-json.md`). It sends and receives one object per text message,
// exactly as a test writes it.

import WebSocket from 'ws';
import { C, type Message } from './client.ts';
import type { Server } from './server.ts';
import { DEADLINE_MS, Inbox, within } from './wait.ts';

export const JSON_PATH = '/deepstream-json';

/** A message as it is in the JSON text. */
export type JsonMessage = Omit<Partial<Message>, 'data' | 'parsedData'> & { topic: number; action: number; parsedData?: unknown; data?: unknown };

/** How a connection ended. */
export interface Ended {
  code: number;
  reason: string;
}

export class JsonPeer {
  /** All messages of the server, and their texts. */
  readonly received = new Inbox<JsonMessage>('messages of the server');
  readonly texts: string[] = [];
  readonly closed: Promise<Ended>;

  private constructor(private readonly socket: WebSocket) {
    socket.on('message', (bytes: Buffer, isBinary: boolean) => {
      if (isBinary) throw new Error('the server sent bytes where text was spoken');
      this.texts.push(bytes.toString());
      this.received.push(JSON.parse(bytes.toString()) as JsonMessage);
    });
    this.closed = new Promise((done) => {
      socket.once('close', (code, reason) => done({ code, reason: reason.toString() }));
    });
    socket.on('error', () => socket.terminate());
  }

  /** A new socket on which nothing was sent. */
  static async dial(server: Server, options: WebSocket.ClientOptions = {}, url = `ws://${server.address}`): Promise<JsonPeer> {
    const socket = new WebSocket(`${url}${JSON_PATH}`, { perMessageDeflate: false, ...options });
    const peer = new JsonPeer(socket);
    await within(DEADLINE_MS, new Promise((done) => socket.once('open', done)), 'the socket opens');
    return peer;
  }

  /** A socket that waits for a login. */
  static async challenge(...dialled: Parameters<typeof JsonPeer.dial>): Promise<JsonPeer> {
    const peer = await JsonPeer.dial(...dialled);
    const [server] = dialled;
    peer.send({ topic: C.TOPIC.CONNECTION, action: C.CONNECTION_ACTION.CHALLENGE, url: server.address, protocolVersion: '0.1a' });
    await peer.expect(C.TOPIC.CONNECTION, C.CONNECTION_ACTION.ACCEPT);
    return peer;
  }

  /** A socket that has passed the challenge and the login. */
  static async login(server: Server, details: object = {}, ...dialled: [options?: WebSocket.ClientOptions, url?: string]): Promise<JsonPeer> {
    const peer = await JsonPeer.challenge(server, ...dialled);
    peer.send({ topic: C.TOPIC.AUTH, action: C.AUTH_ACTION.REQUEST, ...payload(details) });
    await peer.expect(C.TOPIC.AUTH, C.AUTH_ACTION.AUTH_SUCCESSFUL);
    return peer;
  }

  send(message: JsonMessage): void {
    this.sendText(JSON.stringify(message));
  }

  /** Sends `text` as one text frame, JSON or not. */
  sendText(text: string): void {
    this.socket.send(text);
  }

  /** Sends `bytes` as one binary frame. */
  sendBytes(bytes: Uint8Array): void {
    this.socket.send(bytes);
  }

  /** The first message of this kind that the server sent. */
  async expect(topic: number, action: number, matches: (message: JsonMessage) => boolean = () => true): Promise<JsonMessage> {
    return this.received.find((message) => message.topic === topic && message.action === action && matches(message));
  }

  /** Waits until the server has processed all earlier messages: it answers one more request. */
  async settle(): Promise<void> {
    const { CONNECTION } = C.TOPIC;
    const { PING, PONG } = C.CONNECTION_ACTION;
    const pongs = (): number => this.received.seen.filter(({ topic, action }) => topic === CONNECTION && action === PONG).length;
    const before = pongs();
    this.send({ topic: CONNECTION, action: PING });
    await this.received.until(() => pongs() > before, DEADLINE_MS, 'a PONG');
  }

  get isOpen(): boolean {
    return this.socket.readyState === WebSocket.OPEN;
  }

  /** The extensions that the handshake agreed on. */
  get extensions(): string {
    return this.socket.extensions;
  }

  close(): void {
    this.socket.close();
  }

  /** Ends the connection without a closing handshake. */
  abort(): void {
    this.socket.terminate();
  }
}

/** `value` in both forms, as deepstream's client sends it. */
export function payload(value: unknown): { data: string; parsedData: unknown } {
  return { data: JSON.stringify(value), parsedData: value };
}

/** The payload of a message from the server, in either form. */
export function valueOf(message: JsonMessage): unknown {
  if (message.parsedData !== undefined) return message.parsedData;
  return typeof message.data === 'string' ? (JSON.parse(message.data) as unknown) : undefined;
}

/** Options that make the unmodified client use JSON. */
export const JSON_CLIENT = { path: JSON_PATH, socketOptions: { jsonTransportMode: true } as C.JSONObject };
