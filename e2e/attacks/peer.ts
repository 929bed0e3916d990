// The connections of an attacker: sockets that send exactly the given bytes and ignore errors.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { getMessage } from '@deepstream/protobuf/dist/src/message-builder.js';
import { parse } from '@deepstream/protobuf/dist/src/message-parser.js';
import { C, type Message } from '../harness/client.ts';

/** The fields of a deepstream message that an attack needs. */
export type Said = Partial<Message> & { topic: number; action: number };

export interface Frame {
  opcode?: number;
  isLast?: boolean;
  isMasked?: boolean;
  /** The reserved bits of the head; no extension is negotiated. */
  reserved?: number;
  /** The length in the head, if it differs from the length of the payload. */
  announced?: bigint;
}

/** A TCP connection. */
export class Peer {
  #received = Buffer.alloc(0);
  #sent = 0;
  readonly #opened = performance.now();
  #ended: number | undefined;

  private constructor(readonly socket: Socket) {
    socket.on('error', () => {});
    socket.once('close', () => (this.#ended = performance.now()));
    socket.on('data', (bytes: Buffer) => {
      if (this.#received.length < 65_536) this.#received = Buffer.concat([this.#received, bytes]);
    });
  }

  /** Connects from the source address `from`; `undefined` if the server refuses. */
  static async dial(address: string, from = '127.0.0.1'): Promise<Peer | undefined> {
    const [host, port] = address.split(':') as [string, string];
    const peer = new Peer(connect({ host, port: Number(port), localAddress: from }));
    await Promise.race([once(peer.socket, 'connect').catch(() => {}), once(peer.socket, 'close')]);
    return peer.isOpen ? peer : undefined;
  }

  /** Connects and sends the given bytes unchanged. */
  static async saying(address: string, text: string | Uint8Array): Promise<Peer | undefined> {
    const peer = await Peer.dial(address);
    await peer?.write(text);
    return peer;
  }

  /** Sends requests and waits for the first response or the end of the connection; returns the status, or 0 without a response. */
  static async ask(address: string, text: string | Uint8Array): Promise<number> {
    const peer = await Peer.saying(address, text);
    if (!(await peer?.hears(/^HTTP\/1\.1 [2-9]\d\d [^]*\r\n\r\n/))) return 0;
    peer?.end();
    return peer?.statuses[0] ?? 0;
  }

  /** Connects and opens a WebSocket; `undefined` if the server refuses. */
  static async upgrade(address: string, headers: Record<string, string> = {}, from?: string): Promise<Peer | undefined> {
    const peer = await Peer.dial(address, from);
    if (!peer) return undefined;
    const all = {
      Host: address,
      Upgrade: 'websocket',
      Connection: 'Upgrade',
      'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Key': randomBytes(16).toString('base64'),
      ...headers,
    };
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
    await peer.write(`GET /deepstream HTTP/1.1\r\n${lines.join('')}\r\n`);
    if ((await peer.hears(/^HTTP[^]*\r\n\r\n/)) && peer.received.toString('latin1').startsWith('HTTP/1.1 101 ')) return peer;
    peer.end();
    return undefined;
  }

  /** Opens a WebSocket, completes the challenge and logs in; `undefined` if the server refuses. */
  static async login(address: string, details: object = {}, from?: string): Promise<Peer | undefined> {
    const peer = await Peer.upgrade(address, {}, from);
    if (!peer) return undefined;
    const { TOPIC, CONNECTION_ACTION, AUTH_ACTION } = C;
    await peer.say({ topic: TOPIC.CONNECTION, action: CONNECTION_ACTION.CHALLENGE, url: address });
    await peer.say({ topic: TOPIC.AUTH, action: AUTH_ACTION.REQUEST, data: JSON.stringify(details) });
    // One frame answers the challenge, one answers the login.
    return (await peer.hearsFrames(2)) && peer.isOpen ? peer : undefined;
  }

  get isOpen(): boolean {
    return this.socket.readyState === 'open';
  }

  /** Milliseconds from the start to the end of the connection, or until now. */
  get lifeMs(): number {
    return (this.#ended ?? performance.now()) - this.#opened;
  }

  /** Bytes that the kernel has accepted. */
  get sentBytes(): number {
    return this.#sent;
  }

  get received(): Buffer {
    return this.#received;
  }

  /** The messages received so far. */
  get messages(): Message[] {
    return frames(this.#received).flatMap((frame) => parse(frame) as Message[]);
  }

  /** The statuses of the responses received so far. */
  get statuses(): number[] {
    return [...this.#received.toString('latin1').matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status]) => Number(status));
  }

  /** Writes and waits until the kernel has accepted the bytes or the connection has ended. */
  async write(bytes: string | Uint8Array): Promise<void> {
    if (!this.isOpen) return;
    await new Promise<void>((done) => {
      this.socket.once('close', done);
      this.socket.write(bytes, () => {
        this.socket.off('close', done);
        this.#sent += bytes.length;
        done();
      });
    });
  }

  /** Sends one frame. */
  async frame(payload: Uint8Array, options: Frame = {}): Promise<void> {
    const { opcode = 2, isLast = true, isMasked = true, reserved = 0, announced = BigInt(payload.length) } = options;
    const head = Buffer.alloc(isMasked ? 14 : 10);
    head[0] = (isLast ? 0x80 : 0) | (reserved << 4) | opcode;
    let length = 2;
    if (announced < 126n) {
      head[1] = Number(announced);
    } else if (announced < 65_536n) {
      head[1] = 126;
      head.writeUInt16BE(Number(announced), 2);
      length = 4;
    } else {
      head[1] = 127;
      head.writeBigUInt64BE(announced, 2);
      length = 10;
    }
    // A mask of zeros does not change the payload.
    if (isMasked) {
      head[1] |= 0x80;
      length += 4;
    }
    await this.write(Buffer.concat([head.subarray(0, length), payload]));
  }

  /** Sends a deepstream message. */
  async say(message: Said): Promise<void> {
    await this.frame(getMessage(message, false));
  }

  /** Waits until the received bytes match; false if the connection ends first. */
  async hears(pattern: RegExp): Promise<boolean> {
    return this.hearsBytes((bytes) => pattern.test(bytes.toString('latin1')));
  }

  async hearsBytes(matches: (bytes: Buffer) => boolean): Promise<boolean> {
    while (!matches(this.#received)) {
      if (!this.isOpen) return false;
      await Promise.race([once(this.socket, 'data').catch(() => {}), once(this.socket, 'close')]);
    }
    return true;
  }

  /** Waits until `count` frames have arrived; false if the connection ends first. */
  async hearsFrames(count: number): Promise<boolean> {
    return this.hearsBytes((bytes) => frames(bytes).length >= count);
  }

  /** Stops reading. */
  sleep(): void {
    this.socket.pause();
  }

  end(): void {
    this.socket.resetAndDestroy();
  }
}

/** The payloads of the complete frames after the head of the server's response. */
function frames(bytes: Buffer): Buffer[] {
  let place = bytes.indexOf('\r\n\r\n') + 4;
  const whole: Buffer[] = [];
  while (place >= 4 && place + 2 <= bytes.length) {
    const short = (bytes[place + 1] as number) & 0x7f;
    const from = place + (short < 126 ? 2 : 4);
    place = from + (short < 126 ? short : place + 4 <= bytes.length ? bytes.readUInt16BE(place + 2) : 0);
    if (place <= bytes.length) whole.push(bytes.subarray(from, place));
  }
  return whole;
}

/** An HTTP request with all necessary fields and the given ones. */
export function request(line: string, fields: Record<string, string> = {}, body = ''): string {
  const length = body === '' ? {} : { 'Content-Length': String(Buffer.byteLength(body)) };
  const lines = Object.entries({ Host: '127.0.0.1', ...length, ...fields }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${line} HTTP/1.1\r\n${lines.join('')}\r\n${body}`;
}

/** A batch of commands. */
export function batch(commands: unknown, fields: Record<string, string> = {}): string {
  return request('POST /api', { 'Content-Type': 'application/json', ...fields }, JSON.stringify({ body: commands }));
}
