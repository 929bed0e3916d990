// One suite, two drivers: what the cases that hold for every client ask of one, and the clients that are asked.

import type { TestContext } from 'node:test';
import type { Server } from '../server.ts';
import { againstOriginal } from '../server.ts';
import type { Inbox } from '../wait.ts';
import { DEEPSTREAM } from './deepstream.ts';
import { TIDEWIRE } from './tidewire.ts';

/** A message as both protocols of the vectors have it, as far as cases look into it. */
export interface SeenMessage {
  topic: number;
  action: number;
  name?: string;
  names?: string[];
}

/** What arrives under a name, and the way to end that; fulfilled when the server has confirmed. */
export interface Listening<T> {
  inbox: Inbox<T>;
  stop(): Promise<void>;
}

/** The ways to answer a call. */
export interface Answer {
  send(result?: unknown): void;
  error(reason: unknown): void;
  reject(): void;
}

export type Provider = (argument: any, answer: Answer) => void;
/** Who has come (`true`) or gone. */
export type Change = [user: string, isOnline: boolean];

/** A record that is open. */
export interface PeerRecord {
  set(value: object): void;
  setAt(path: string, value: unknown): void;
  setWithAck(value: object): Promise<void>;
  setAtWithAck(path: string, value: unknown): Promise<void>;
  /** The document, or what stands at a path. */
  get(path?: string): unknown;
  version(): number;
  /** Values from now on: of the document, or of what stands at a path. */
  changes(path?: string): Inbox<any>;
}

/** A record whose name can be switched. */
export interface PeerAnonymous {
  /** Fulfilled when the value of the record is here. */
  switchTo(name: string): Promise<void>;
  /** The document, or what stands at a path; undefined without a name. */
  get(path?: string): unknown;
  setAt(path: string, value: unknown): void;
  setAtWithAck(path: string, value: unknown): Promise<void>;
  /** What stands at a path, now and after every switch and change. */
  changes(path: string): Inbox<any> & { stop(): void };
}

/** What can be listened for. */
export type Listened = 'EVENT' | 'RECORD';

/** A name that a listening client is asked for. */
export interface Asked {
  name: string;
  provider: Peer;
  /** Has its name when nobody wants it any more. */
  stopped: Inbox<string>;
  /** Fulfilled when the server knows it, as `reject` is. */
  accept(): Promise<void>;
  reject(): Promise<void>;
}

/** A list that is open. */
export interface PeerList {
  entries(): readonly string[];
  /** Changes are fulfilled when they are durable. */
  set(entries: string[]): Promise<void>;
  add(entry: string, index?: number): Promise<void>;
  remove(entry: string, index?: number): Promise<void>;
  /** Whole entries from now on. */
  changes(): Inbox<readonly string[]>;
  /** What is added, moved and removed from now on, such as `added x 0`. */
  events(): Inbox<string>;
}

/** A client of either kind that is logged in. What needs the server's confirmation waits for it. */
export interface Peer {
  emit(name: string, payload?: unknown): void;
  subscribe(name: string): Promise<Listening<any>>;
  /** Fails with the reason that the provider gave, or with the code of the error as text. */
  call(name: string, argument?: unknown): Promise<unknown>;
  /** Gives back the way to stop providing. */
  provide(name: string, provider: Provider): Promise<() => Promise<void>>;
  all(): Promise<string[]>;
  query(users: string[]): Promise<Record<string, boolean>>;
  /** Who of `users` comes and goes from now on; watches all users, or only `one`. */
  watch(users: string[], one?: string): Promise<Listening<Change>>;
  /** The record `name`, ready for use. */
  record(name: string): Promise<PeerRecord>;
  /** The list `name`, ready for use. */
  list(name: string): Promise<PeerList>;
  /** A handle without a name. */
  anonymous(): PeerAnonymous;
  /** The value of a record without opening it. */
  snapshot(name: string): Promise<unknown>;
  /** Holds a name, so that listening clients are asked for it; gives back how to leave it. */
  hold(what: Listened, name: string): Promise<() => Promise<void>>;
  /** Names that match `pattern` arrive in `requests`; gives back how to stop listening. */
  listen(what: Listened, pattern: string, requests: Inbox<Asked>): Promise<() => Promise<void>>;
  /** The next message of the server that `matches`. */
  receives(matches: (message: SeenMessage) => boolean): Promise<SeenMessage>;
  /** Waits until the client knows that its connection is lost. */
  lost(): Promise<void>;
  /** Waits until it is open again. */
  opened(): Promise<void>;
  close(): void;
}

export interface PeerOptions {
  login?: Record<string, unknown>;
  /** Codes of errors that the test expects. */
  errors?: string[];
  /** Host and port to connect to instead of the server's. */
  through?: string;
}

export interface Driver {
  name: string;
  /** The reason with which a call fails whose connection was lost. */
  lostReason: string;
  /** Whether a change that met another client's is confirmed: the stock client forgets whom to tell when it merges. */
  confirmsMerges: boolean;
  connect(test: TestContext, server: Server, options?: PeerOptions): Promise<Peer>;
}

/** The clients. Against deepstream's own server there is only its own. */
export const DRIVERS: readonly Driver[] = againstOriginal ? [DEEPSTREAM] : [DEEPSTREAM, TIDEWIRE];

/** Two clients that are logged in. */
export async function peers(driver: Driver, test: TestContext, server: Server, options: PeerOptions = {}): Promise<[Peer, Peer]> {
  return [await driver.connect(test, server, options), await driver.connect(test, server, options)];
}
