// What an attacker's connections are made of: sockets that say exactly what they are told to, and never complain.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { getMessage } from '@deepstream/protobuf/dist/src/message-builder.js';
import { parse } from '@deepstream/protobuf/dist/src/message-parser.js';
import { C, type Message } from '../harness/client.ts';

/** A message of deepstream as far as it matters. */
export type Said = Partial<Message> & { topic: number; action: number };

export interface Frame {
  opcode?: number;
  isLast?: boolean;
  isMasked?: boolean;
  /** Bits that nobody has agreed on. */
  reserved?: number;
  /** The length in the head, where it is not that of the payload. */
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

  /** Connects; `undefined` if nobody lets it in. `from` is the source address. */
  static async dial(address: string, from = '127.0.0.1'): Promise<Peer | undefined> {
    const [host, port] = address.split(':') as [string, string];
    const peer = new Peer(connect({ host, port: Number(port), localAddress: from }));
    await Promise.race([once(peer.socket, 'connect').catch(() => {}), once(peer.socket, 'close')]);
    return peer.isOpen ? peer : undefined;
  }

  /** Connects and sends what it is given, as it is. */
  static async saying(address: string, text: string | Uint8Array): Promise<Peer | undefined> {
    const peer = await Peer.dial(address);
    await peer?.write(text);
    return peer;
  }

  /** Sends requests and waits until the connection ends or the first answer is here; its status, or 0 without one. */
  static async ask(address: string, text: string | Uint8Array): Promise<number> {
    const peer = await Peer.saying(address, text);
    if (!(await peer?.hears(/^HTTP\/1\.1 [2-9]\d\d [^]*\r\n\r\n/))) return 0;
    peer?.end();
    return peer?.statuses[0] ?? 0;
  }

  /** Connects and opens a WebSocket; `undefined` if that is refused. */
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

  /** The same, with challenge and login done. */
  static async login(address: string, details: object = {}, from?: string): Promise<Peer | undefined> {
    const peer = await Peer.upgrade(address, {}, from);
    if (!peer) return undefined;
    const { TOPIC, CONNECTION_ACTION, AUTH_ACTION } = C;
    await peer.say({ topic: TOPIC.CONNECTION, action: CONNECTION_ACTION.CHALLENGE, url: address });
    await peer.say({ topic: TOPIC.AUTH, action: AUTH_ACTION.REQUEST, data: JSON.stringify(details) });
    // One frame answers the challenge, one the login.
    return (await peer.hearsFrames(2)) && peer.isOpen ? peer : undefined;
  }

  get isOpen(): boolean {
    return this.socket.readyState === 'open';
  }

  /** Milliseconds from its beginning to its end, or until now. */
  get lifeMs(): number {
    return (this.#ended ?? performance.now()) - this.#opened;
  }

  /** Bytes that the kernel was given. */
  get sentBytes(): number {
    return this.#sent;
  }

  get received(): Buffer {
    return this.#received;
  }

  /** The messages of the server so far. */
  get messages(): Message[] {
    return frames(this.#received).flatMap((frame) => parse(frame) as Message[]);
  }

  /** The statuses of the answers so far. */
  get statuses(): number[] {
    return [...this.#received.toString('latin1').matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status]) => Number(status));
  }

  /** Writes and waits until the kernel has taken it, or the connection is gone. */
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
    // A mask of zeros leaves the payload as it is.
    if (isMasked) {
      head[1] |= 0x80;
      length += 4;
    }
    await this.write(Buffer.concat([head.subarray(0, length), payload]));
  }

  /** Sends a message of deepstream. */
  async say(message: Said): Promise<void> {
    await this.frame(getMessage(message, false));
  }

  /** Waits until what was received matches; false if the connection ends before. */
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

  /** Waits until so many frames were received; false if the connection ends before. */
  async hearsFrames(count: number): Promise<boolean> {
    return this.hearsBytes((bytes) => frames(bytes).length >= count);
  }

  /** Does not read any more. */
  sleep(): void {
    this.socket.pause();
  }

  end(): void {
    this.socket.resetAndDestroy();
  }
}

/** What the whole frames of a server behind the head of its answer hold. */
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

/** A request of HTTP with everything that it needs, and what is given besides. */
export function request(line: string, fields: Record<string, string> = {}, body = ''): string {
  const length = body === '' ? {} : { 'Content-Length': String(Buffer.byteLength(body)) };
  const lines = Object.entries({ Host: '127.0.0.1', ...length, ...fields }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${line} HTTP/1.1\r\n${lines.join('')}\r\n${body}`;
}

/** A batch of commands. */
export function batch(commands: unknown, fields: Record<string, string> = {}): string {
  return request('POST /api', { 'Content-Type': 'application/json', ...fields }, JSON.stringify({ body: commands }));
}
