// HTTP/2 to the server under test: sessions of Node's own client, and a peer whose frames the test makes itself.

import { once } from 'node:events';
import { connect, constants, type ClientHttp2Session, type ClientSessionOptions, type IncomingHttpHeaders } from 'node:http2';
import type { TestContext } from 'node:test';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { atEnd } from './cleanup.ts';
import { readStream, type Piece } from './event-stream.ts';
import type { Server } from './server.ts';
import { DEADLINE_MS, Inbox, within } from './wait.ts';

/** A response with its complete body. */
export interface Http2Answer {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
}

/** The optional parts of a request. */
export interface Http2Request {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
}

/** A session that is closed at the end of `test`. */
export async function openSession(
  test: TestContext,
  server: Server,
  options: ClientSessionOptions & { rejectUnauthorized?: boolean } = {},
): Promise<ClientHttp2Session> {
  const session = connect(`https://${server.tlsAddress}`, { rejectUnauthorized: false, ...options });
  atEnd(test, () => session.destroy());
  // A test that expects an error at the end of its session checks it itself.
  session.on('error', () => {});
  await within(DEADLINE_MS, once(session, 'remoteSettings'), 'the settings of the server');
  return session;
}

/** Sends a request and reads the response to its end. */
export async function ask(session: ClientHttp2Session, path: string, request: Http2Request = {}): Promise<Http2Answer> {
  const { method = 'GET', headers = {}, body } = request;
  const stream = session.request({ ':method': method, ':path': path, ...headers }, { endStream: body === undefined });
  if (body !== undefined) stream.end(body);
  const [answer] = (await within(DEADLINE_MS, once(stream, 'response'), `an answer to ${path}`)) as [IncomingHttpHeaders];
  let text = '';
  for await (const part of stream.setEncoding('utf8')) text += part;
  return { status: Number(answer[':status']), headers: answer, text };
}

/** A stream of server-sent events. */
export interface Http2EventStream {
  status: number;
  pieces: Inbox<Piece>;
  comments: Inbox<string>;
  close: () => void;
}

/** Opens a stream of server-sent events on a session. */
export async function openEvents(session: ClientHttp2Session, path: string): Promise<Http2EventStream> {
  const stream = session.request({ ':path': path });
  stream.on('error', () => {});
  const [answer] = (await within(DEADLINE_MS, once(stream, 'response'), `an answer to ${path}`)) as [IncomingHttpHeaders];
  const pieces = new Inbox<Piece>('pieces');
  const comments = new Inbox<string>('comments');
  void readStream(stream, pieces, comments);
  const close = (): void => stream.close(constants.NGHTTP2_CANCEL);
  return { status: Number(answer[':status']), pieces, comments, close };
}

/** Frame types (RFC 9113, section 6). */
export const FRAME = { DATA: 0, HEADERS: 1, PRIORITY: 2, RST_STREAM: 3, SETTINGS: 4, PING: 6, GOAWAY: 7, WINDOW_UPDATE: 8, CONTINUATION: 9, UNKNOWN: 200 } as const;
/** Frame flags. */
export const FLAG = { NONE: 0, END_STREAM: 1, END_HEADERS: 4 } as const;

const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
const HEAD_BYTES = 9;

/** One frame of the server. */
export interface Frame {
  type: number;
  flags: number;
  stream: number;
  payload: Buffer;
}

/** The bytes of a frame. */
export function frame(type: number, flags: number, stream: number, payload: Uint8Array = new Uint8Array()): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** A 32-bit number as the payload of a frame. */
export function number32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** The head of a request; it uses only the static table for compression (RFC 7541). */
export function head(path: string, method: 'GET' | 'POST' = 'GET'): Buffer {
  const literal = (index: number, text: string): Buffer => Buffer.concat([Buffer.from([index, text.length]), Buffer.from(text)]);
  // The method and `:scheme: https`, then literals without indexing, with the names of `:path`, `:authority`, `content-type`.
  const indexed = Buffer.from([method === 'GET' ? 0x82 : 0x83, 0x87]);
  const type = Buffer.concat([Buffer.from([0x0f, 31 - 15]), literal(0, 'application/json').subarray(1)]);
  return Buffer.concat([indexed, literal(4, path), literal(1, 'localhost'), type]);
}

/** A peer that sends the given frames and records the frames of the server. */
export class Http2Peer {
  readonly frames = new Inbox<Frame>('frames of the server');
  /** Resolves when the connection has ended. */
  readonly closed: Promise<void>;

  private constructor(private readonly socket: TLSSocket) {
    let unread = Buffer.alloc(0);
    socket.on('data', (bytes: Buffer) => {
      unread = Buffer.concat([unread, bytes]);
      while (unread.length >= HEAD_BYTES && unread.length >= HEAD_BYTES + unread.readUIntBE(0, 3)) {
        const end = HEAD_BYTES + unread.readUIntBE(0, 3);
        const [type, flags, stream] = [unread.readUInt8(3), unread.readUInt8(4), unread.readUInt32BE(5)];
        this.frames.push({ type, flags, stream, payload: unread.subarray(HEAD_BYTES, end) });
        unread = unread.subarray(end);
      }
    });
    this.closed = new Promise((done) => socket.once('close', () => done()));
    socket.on('error', () => socket.destroy());
  }

  /** A connection on which nothing was sent yet; it is closed at the end of `test`. */
  static async dial(test: TestContext, server: Server): Promise<Http2Peer> {
    const options = { host: '127.0.0.1', port: server.tlsPort, rejectUnauthorized: false, ALPNProtocols: ['h2'] };
    const socket = connectTls(options);
    atEnd(test, () => void socket.destroy());
    await within(DEADLINE_MS, once(socket, 'secureConnect'), 'the handshake');
    return new Http2Peer(socket);
  }

  /** A connection with its preface and `settings` sent. */
  static async open(test: TestContext, server: Server, settings: Uint8Array = new Uint8Array()): Promise<Http2Peer> {
    const peer = await Http2Peer.dial(test, server);
    peer.send(Buffer.from(PREFACE), frame(FRAME.SETTINGS, FLAG.NONE, 0, settings));
    return peer;
  }

  /** Sends all frames at once. */
  send(...frames: Uint8Array[]): void {
    if (this.socket.writable) this.socket.write(Buffer.concat(frames));
  }

  /** Waits for the end, and returns the reason of the server's last GOAWAY frame. */
  async goodbye(): Promise<number | undefined> {
    await within(DEADLINE_MS, this.closed, 'the server ends the connection');
    const last = this.frames.seen.findLast(({ type }) => type === FRAME.GOAWAY);
    return last?.payload.readUInt32BE(4);
  }
}
