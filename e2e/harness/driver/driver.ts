// One suite, three drivers: the interface that the shared cases use, and the clients that implement it.

import type { TestContext } from 'node:test';
import type { Server } from '../server.ts';
import { againstOriginal } from '../server.ts';
import type { Inbox } from '../wait.ts';
import { DEEPSTREAM } from './deepstream.ts';
import { pythonDriver } from './python.ts';
import { TIDEWIRE } from './tidewire.ts';

/** A message as both protocols of the vectors have it, with the fields that cases check. */
export interface SeenMessage {
  topic: number;
  action: number;
  name?: string;
  names?: string[];
}

/** The values that arrive under a name, and a function to stop. Resolves when the server has confirmed the subscription. */
export interface Listening<T> {
  inbox: Inbox<T>;
  stop(): Promise<void>;
}

/** The ways to answer an rpc. */
export interface Answer {
  send(result?: unknown): void;
  error(reason: unknown): void;
  reject(): void;
}

export type Provider = (argument: any, answer: Answer) => void;
/** A user that came online (`true`) or went offline. */
export type Change = [user: string, isOnline: boolean];

/** An open record. */
export interface PeerRecord {
  set(value: object): void;
  setAt(path: string, value: unknown): void;
  setWithAck(value: object): Promise<void>;
  setAtWithAck(path: string, value: unknown): Promise<void>;
  /** The whole value, or the value at a path; a promise of it if the client is another process. */
  get(path?: string): unknown;
  version(): number | Promise<number>;
  /** Later values: of the whole record, or at a path. */
  changes(path?: string): Inbox<any>;
}

/** A record whose name can be switched. */
export interface PeerAnonymous {
  /** Resolves when the value of the record has arrived. */
  switchTo(name: string): Promise<void>;
  /** The whole value, or the value at a path; undefined without a name. */
  get(path?: string): unknown;
  setAt(path: string, value: unknown): void;
  setAtWithAck(path: string, value: unknown): Promise<void>;
  /** The value at a path, now and after every switch and change. */
  changes(path: string): Inbox<any> & { stop(): void };
}

/** The primitives whose names can be listened for. */
export type Listened = 'EVENT' | 'RECORD';

/** A name that matches the pattern of a listening client. */
export interface Asked {
  name: string;
  provider: WholePeer;
  /** Receives the name when no session holds it. */
  stopped: Inbox<string>;
  /** Resolves when the server has received it, as does `reject`. */
  accept(): Promise<void>;
  reject(): Promise<void>;
}

/** An open list. */
export interface PeerList {
  entries(): readonly string[];
  /** Changes resolve when they are durable. */
  set(entries: string[]): Promise<void>;
  add(entry: string, index?: number): Promise<void>;
  remove(entry: string, index?: number): Promise<void>;
  /** All later values of the list, each as all of its entries. */
  changes(): Inbox<readonly string[]>;
  /** Later additions, moves and removals, such as `added x 0`. */
  events(): Inbox<string>;
}

/** A client of any kind that is logged in. Functions that need the server's confirmation wait for it. */
export interface Peer {
  emit(name: string, payload?: unknown): void;
  subscribe(name: string): Promise<Listening<any>>;
  /** Rejects with the reason that the provider gave, or with the error code as text. */
  call(name: string, argument?: unknown): Promise<unknown>;
  /** Returns a function that stops providing. */
  provide(name: string, provider: Provider): Promise<() => Promise<void>>;
  all(): Promise<string[]>;
  query(users: string[]): Promise<Record<string, boolean>>;
  /** Later presence changes of `users`; watches all users, or only `one`. */
  watch(users: string[], one?: string): Promise<Listening<Change>>;
  /** The record `name`, ready for use. */
  record(name: string): Promise<PeerRecord>;
  /** The value of a record without opening it. */
  snapshot(name: string): Promise<unknown>;
  /** The next message from the server that `matches`. */
  receives(matches: (message: SeenMessage) => boolean): Promise<SeenMessage>;
  /** Waits until the client has noticed that its connection is lost. */
  lost(): Promise<void>;
  /** Waits until the connection is open again. */
  opened(): Promise<void>;
  close(): void;
}

/** A client that also has lists, anonymous records and listening. */
export interface WholePeer extends Peer {
  /** The list `name`, ready for use. */
  list(name: string): Promise<PeerList>;
  /** A handle without a name. */
  anonymous(): PeerAnonymous;
  /** Holds a name, so that listening clients receive a request for it; returns a function that releases it. */
  hold(what: Listened, name: string): Promise<() => Promise<void>>;
  /** Listens for names that match `pattern` and passes them to `requests`; returns a function that stops listening. */
  listen(what: Listened, pattern: string, requests: Inbox<Asked>): Promise<() => Promise<void>>;
}

export interface PeerOptions {
  login?: Record<string, unknown>;
  /** Error codes that the test expects. */
  errors?: string[];
  /** Host and port to connect to instead of the server's. */
  through?: string;
}

export interface Driver<P extends Peer = Peer> {
  name: string;
  /** The error of a call whose connection was lost. */
  lostReason: string;
  /** Whether a change that met another client's change is confirmed: deepstream's client loses the callback when it merges. */
  confirmsMerges: boolean;
  connect(test: TestContext, server: Server, options?: PeerOptions): Promise<P>;
}

/** The clients with lists, anonymous records and listening. deepstream's own server is tested only with deepstream's client. */
export const WHOLE_DRIVERS: ReadonlyArray<Driver<WholePeer>> = againstOriginal ? [DEEPSTREAM] : [DEEPSTREAM, TIDEWIRE];

/** The interpreter with the package `tidewire` of PyPI. With it, only the Python client is tested (`e2e/python`). */
const PYTHON = process.env['E2E_PYTHON'];

/** The clients that share the cases of events, records, rpc, presence and losses. */
export const DRIVERS: readonly Driver[] = PYTHON === undefined ? WHOLE_DRIVERS : [pythonDriver(PYTHON)];

/** Two clients that are logged in. */
export async function peers<P extends Peer>(driver: Driver<P>, test: TestContext, server: Server, options: PeerOptions = {}): Promise<[P, P]> {
  return [await driver.connect(test, server, options), await driver.connect(test, server, options)];
}
