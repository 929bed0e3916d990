// Connection state recovery: a client that has lost its connection gets its socket back, with the events that it has missed.
//
// The app keeps the events of a namespace for a while, each with an offset that its clients get as the last argument. A client that comes back
// names its socket by a secret and the last offset. The order of the events is known in one process only, so sockets are recovered while this
// app is the only backend of the namespace.

import { randomBytes } from 'node:crypto';
import type { Payload } from '@tidewire/server';
import type { Room, SocketId } from './types.js';

export interface RecoveryOptions {
  /** How long a socket can be recovered, and an event is kept, in milliseconds. Default 120,000. */
  maxDisconnectionDuration?: number;
  /** Whether a recovered socket passes no middlewares. Default true. */
  skipMiddlewares?: boolean;
  /** Bytes of the events that a namespace keeps. Without the oldest ones, some sockets are not recovered. Default 16 MiB. */
  maxBufferBytes?: number;
}

/** The state of a socket that a later session continues. */
export interface SavedSocket {
  id: SocketId;
  pid: string;
  rooms: readonly Room[];
  data: unknown;
}

interface Kept {
  at: number;
  rooms: ReadonlySet<Room>;
  except: ReadonlySet<Room>;
  /** The socket that does not get it. */
  sender: SocketId | undefined;
  payload: Payload;
  bytes: number;
}

interface Saved extends SavedSocket {
  at: number;
  /** The number of the first event after its session began. */
  since: number;
}

const DURATION_MS = 120_000;
const BUFFER_BYTES = 16 << 20;
/** Sockets that can be recovered at the same time. The oldest ones give way. */
const SOCKETS_MAX = 10_000;
/** Memory of an event in addition to its payload. */
const EVENT_BYTES = 200;
/** The length of the texts of a client that are looked up. */
const TEXT_MAX = 64;

/** A secret, which the client keeps. */
export const newSecret = (): string => randomBytes(15).toString('base64url');

/** The events of one namespace, and the sockets that have lost their connections. */
export class Recovery {
  readonly skipsMiddlewares: boolean;
  readonly #durationMs: number;
  readonly #bufferBytes: number;
  /** Distinguishes the offsets of this process. */
  readonly #epoch = randomBytes(4).toString('base64url');
  /** The number of the first event that is kept. */
  #first = 0;
  #kept: Kept[] = [];
  #bytes = 0;
  readonly #saved = new Map<string, Saved>();
  /** The number of the next event at the beginning of each session. */
  readonly #since = new Map<string, number>();
  /** Since when this app has been the only backend. Without it, others serve the namespace, or may do so. */
  #aloneSince: number | undefined;
  readonly #now: () => number;

  constructor({ maxDisconnectionDuration = DURATION_MS, skipMiddlewares = true, maxBufferBytes = BUFFER_BYTES }: RecoveryOptions, now = (): number => performance.now()) {
    this.skipsMiddlewares = skipMiddlewares;
    this.#durationMs = maxDisconnectionDuration;
    this.#bufferBytes = maxBufferBytes;
    this.#now = now;
  }

  /** The number of the events that are kept, and of the sockets that can be recovered. */
  get size(): { events: number; sockets: number } {
    return { events: this.#kept.length, sockets: this.#saved.size };
  }

  get #next(): number {
    return this.#first + this.#kept.length;
  }

  /** Notes whether other backends serve the namespace. */
  noteOthers(areThere: boolean): void {
    if (areThere) this.#aloneSince = undefined;
    else this.#aloneSince ??= this.#now();
  }

  /** Notes that a session with this secret begins. */
  began(pid: string): void {
    this.#since.set(pid, this.#next);
  }

  /** The offset of the next event, which {@link keep} keeps. */
  nextOffset(): string {
    return `${this.#epoch}.${this.#next.toString(36)}`;
  }

  /** Keeps an event that sockets get with {@link nextOffset}. */
  keep(payload: Payload, rooms: ReadonlySet<Room>, except: ReadonlySet<Room>, sender: SocketId | undefined): void {
    const attached = payload.attachments?.reduce((sum, { length }) => sum + length, 0) ?? 0;
    const bytes = EVENT_BYTES + payload.data.length + attached;
    this.#kept.push({ at: this.#now(), rooms, except, sender, payload, bytes });
    this.#bytes += bytes;
    this.#trim();
  }

  /** Drops the events that are too old, and the oldest ones beyond the limit. */
  #trim(): void {
    const until = this.#now() - this.#durationMs;
    let count = 0;
    for (const { at, bytes } of this.#kept) {
      if (at >= until && this.#bytes <= this.#bufferBytes) break;
      this.#bytes -= bytes;
      count += 1;
    }
    this.#kept.splice(0, count);
    this.#first += count;
  }

  /** Saves a socket whose connection is lost. */
  save(socket: SavedSocket): void {
    const since = this.#since.get(socket.pid);
    this.#since.delete(socket.pid);
    if (since === undefined) return;
    const until = this.#now() - this.#durationMs;
    for (const [pid, { at }] of this.#saved) {
      if (at >= until && this.#saved.size < SOCKETS_MAX) break;
      this.#saved.delete(pid);
    }
    this.#saved.set(socket.pid, { ...socket, at: this.#now(), since });
  }

  /** Forgets a session that can't be recovered. */
  forget(pid: string): void {
    this.#since.delete(pid);
  }

  /** The socket with this secret, and the events that it has missed. It can be taken once. */
  take(pid: string, offset: unknown): { socket: SavedSocket; missed: Payload[] } | undefined {
    const saved = this.#saved.get(pid);
    if (!saved) return undefined;
    const isLate = saved.at < this.#now() - this.#durationMs;
    const wasAlone = this.#aloneSince !== undefined && this.#aloneSince <= saved.at;
    const next = offset === undefined ? saved.since : this.#behind(offset);
    if (isLate || !wasAlone || next === undefined || next < this.#first || next > this.#next) return undefined;
    this.#saved.delete(pid);
    const rooms = new Set(saved.rooms);
    const isIn = (some: ReadonlySet<Room>): boolean => [...some].some((room) => rooms.has(room));
    const missed = this.#kept.slice(next - this.#first).filter((event) => (event.rooms.size === 0 || isIn(event.rooms)) && !isIn(event.except) && event.sender !== saved.id);
    return { socket: saved, missed: missed.map(({ payload }) => payload) };
  }

  /** The number of the event behind an offset. */
  #behind(offset: unknown): number | undefined {
    if (typeof offset !== 'string' || offset.length > TEXT_MAX) return undefined;
    const [epoch, digits] = offset.split('.');
    if (epoch !== this.#epoch || digits === undefined || !/^[0-9a-z]+$/.test(digits)) return undefined;
    return Number.parseInt(digits, 36) + 1;
  }
}

/** The secret in the credentials of a client that requests its socket back. */
export function secretIn(auth: Record<string, unknown>): string | undefined {
  const { pid } = auth;
  return typeof pid === 'string' && pid.length <= TEXT_MAX ? pid : undefined;
}
