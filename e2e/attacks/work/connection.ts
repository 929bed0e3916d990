// A WebSocket connection that sends prebuilt frames and counts received messages without decoding them, so that one process on one
// core can request and receive gigabytes. `../peer.ts` keeps the bytes that it receives; this one does not.

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { getMessage } from '@deepstream/protobuf/dist/src/message-builder.js';
import { C } from '../../harness/client.ts';
import type { Said } from '../peer.ts';

const { TOPIC, AUTH_ACTION, CONNECTION_ACTION } = C;

/** Bytes of a read: the most that the kernel delivers at once on a loopback connection. */
const READ_BYTES = 256 * 1_024;
/** Bytes that are read of each frame: its head, and the fields of the message up to the action. */
const PEEK_BYTES = 40;

/** The login of an attacker or bystander: a user of the server's file of users. */
export interface Login {
  username: string;
  password: string;
}

/** A client's frame. The mask is zero, which does not change the payload. */
export function frame(payload: Uint8Array, { opcode = 2, isCompressed = false } = {}): Buffer {
  const length = payload.length;
  const head = Buffer.alloc(length < 126 ? 6 : length < 65_536 ? 8 : 14);
  head[0] = 0x80 | (isCompressed ? 0x40 : 0) | opcode;
  if (length < 126) {
    head[1] = 0x80 | length;
  } else if (length < 65_536) {
    head[1] = 0x80 | 126;
    head.writeUInt16BE(length, 2);
  } else {
    head[1] = 0x80 | 127;
    head.writeBigUInt64BE(BigInt(length), 2);
  }
  return Buffer.concat([head, payload]);
}

/** A message in its own frame. */
export function framed(message: Said): Buffer {
  return frame(getMessage(message, false));
}

/** Messages, each in its own frame, concatenated. */
export function burst(messages: Said[]): Buffer {
  return Buffer.concat(messages.map(framed));
}

/** Receives the topic and action of a frame's message, and the beginning of its payload. */
export type FrameListener = (topic: number, action: number, beginning: Buffer) => void;

export class Connection {
  readonly #socket: Socket;
  /** The buffer of a read, with room in front for the rest of the previous read. */
  readonly #buffer = Buffer.alloc(PEEK_BYTES + READ_BYTES);
  #restBytes = 0;
  /** Bytes of the current frame that have not arrived yet and will be skipped. */
  #skipped = 0;
  #isUpgraded = false;
  #waiting: Array<() => void> = [];
  /** Messages received, by topic and action. */
  readonly #counts = new Map<number, number>();
  /** Called for each frame, if it is set. */
  onFrame: FrameListener | undefined;
  receivedBytes = 0;
  sentBytes = 0;

  private constructor(address: string) {
    const [host, port] = address.split(':') as [string, string];
    const callback = (count: number): boolean => {
      this.#take(count);
      return true;
    };
    const onread = { buffer: this.#buffer.subarray(PEEK_BYTES), callback };
    this.#socket = connect({ host, port: Number(port), onread, noDelay: true });
    this.#socket.on('error', () => {});
    this.#socket.once('close', () => this.#wake());
  }

  /** Opens a WebSocket; `undefined` if the server refuses it. */
  static async open(address: string, headers: Record<string, string> = {}): Promise<Connection | undefined> {
    const connection = new Connection(address);
    await Promise.race([once(connection.#socket, 'connect').catch(() => {}), once(connection.#socket, 'close').catch(() => {})]);
    if (!connection.isOpen) return undefined;
    const all = {
      Host: address, Upgrade: 'websocket', Connection: 'Upgrade', 'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Key': randomBytes(16).toString('base64'), ...headers,
    };
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
    connection.send(Buffer.from(`GET /deepstream HTTP/1.1\r\n${lines.join('')}\r\n`));
    await connection.until(() => connection.#isUpgraded);
    return connection.isOpen ? connection : undefined;
  }

  /** Opens a WebSocket and logs in; `undefined` if the server refuses either. */
  static async login(address: string, login: Login, headers: Record<string, string> = {}): Promise<Connection | undefined> {
    const connection = await Connection.open(address, headers);
    if (connection === undefined) return undefined;
    connection.send(framed({ topic: TOPIC.CONNECTION, action: CONNECTION_ACTION.CHALLENGE, url: address }));
    connection.send(framed({ topic: TOPIC.AUTH, action: AUTH_ACTION.REQUEST, data: JSON.stringify(login) }));
    await connection.until(() => connection.count(TOPIC.AUTH, AUTH_ACTION.AUTH_SUCCESSFUL) > 0);
    return connection.isOpen ? connection : undefined;
  }

  get isOpen(): boolean {
    return this.#socket.readyState === 'open';
  }

  /** The number of received messages of this kind. */
  count(topic: number, action: number): number {
    return this.#counts.get(topic * 1_000 + action) ?? 0;
  }

  /** Sends bytes unchanged. This process buffers the bytes that the kernel does not accept yet. */
  send(bytes: Buffer): void {
    this.sentBytes += bytes.length;
    this.#socket.write(bytes);
  }

  /** Sends bytes and resolves when the kernel has accepted them or the connection has ended. */
  async sendAll(bytes: Buffer): Promise<void> {
    if (!this.isOpen) return;
    this.sentBytes += bytes.length;
    await new Promise<void>((done) => {
      this.#socket.once('close', done);
      this.#socket.write(bytes, () => {
        this.#socket.off('close', done);
        done();
      });
    });
  }

  /** Waits until `holds` returns true, which is checked after each read; false if the connection ends first. */
  async until(holds: () => boolean): Promise<boolean> {
    while (!holds()) {
      if (!this.isOpen) return false;
      await new Promise<void>((wake) => this.#waiting.push(wake));
    }
    return true;
  }

  /** Stops reading. */
  pause(): void {
    this.#socket.pause();
  }

  /** Closes the sending side, so that the server reads all bytes before it sees the end. */
  async finish(): Promise<void> {
    await new Promise<void>((done) => (this.isOpen ? this.#socket.end(done) : done()));
  }

  /** Ends the connection with a reset and drops unsent bytes. */
  end(): void {
    this.#socket.resetAndDestroy();
    this.#wake();
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }

  #take(count: number): void {
    this.receivedBytes += count;
    const end = PEEK_BYTES + count;
    let place = PEEK_BYTES - this.#restBytes;
    this.#restBytes = 0;
    if (!this.#isUpgraded) {
      const head = this.#buffer.subarray(place, end).toString('latin1');
      const headBytes = head.indexOf('\r\n\r\n') + 4;
      // The server's head is short and arrives in one read; otherwise the upgrade has failed.
      if (headBytes < 4 || !head.startsWith('HTTP/1.1 101 ')) return this.end();
      this.#isUpgraded = true;
      place += headBytes;
    }
    while (place < end) {
      if (this.#skipped > 0) {
        const skipped = Math.min(this.#skipped, end - place);
        this.#skipped -= skipped;
        place += skipped;
        continue;
      }
      const taken = this.#frame(place, end);
      if (taken === 0) {
        this.#buffer.copyWithin(PEEK_BYTES - (end - place), place, end);
        this.#restBytes = end - place;
        break;
      }
      place += taken;
    }
    this.#wake();
  }

  /** Reads the beginning of the frame at `place`; returns how many bytes it used, or 0 if the beginning is incomplete. */
  #frame(place: number, end: number): number {
    const buffer = this.#buffer;
    const available = end - place;
    if (available < 2) return 0;
    const short = (buffer[place + 1] as number) & 0x7f;
    const headBytes = short < 126 ? 2 : short === 126 ? 4 : 10;
    if (available < headBytes) return 0;
    const payloadBytes = short < 126 ? short : short === 126 ? buffer.readUInt16BE(place + 2) : buffer.readUIntBE(place + 4, 6);
    const peeked = Math.min(payloadBytes, PEEK_BYTES - headBytes);
    if (available < headBytes + peeked) return 0;
    if (((buffer[place] as number) & 0x0f) === 2) this.#message(buffer.subarray(place + headBytes, place + headBytes + peeked));
    this.#skipped = payloadBytes - peeked;
    return headBytes + peeked;
  }

  /** Counts a message by its first bytes, in this order: the envelope's length, its topic, the length of the fields, the action. */
  #message(beginning: Buffer): void {
    let place = 0;
    while ((beginning[place] as number) >= 0x80) place += 1;
    const topic = beginning[place + 2] as number;
    place += 4;
    while ((beginning[place] as number) >= 0x80) place += 1;
    let action = 0;
    if (beginning[place + 1] === 0x08) {
      action = (beginning[place + 2] as number) & 0x7f;
      if ((beginning[place + 2] as number) >= 0x80) action |= (beginning[place + 3] as number) << 7;
    }
    const kind = topic * 1_000 + action;
    this.#counts.set(kind, (this.#counts.get(kind) ?? 0) + 1);
    this.onFrame?.(topic, action, beginning);
  }
}
