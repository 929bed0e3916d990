// Values that several components show and that the client requests from the server once.

import type { Client } from '../client.js';
import type { TidewireError } from '../error.js';
import type { Offline, OfflineOptions } from '../offline.js';
import { OfflineRecords } from './offline.js';

/** The state of one value that the server sends. */
export interface State<Value> {
  readonly value: Value | undefined;
  /** Whether the value is the server's. */
  readonly isReady: boolean;
  /** Why the server's value is missing. */
  readonly error: TidewireError | undefined;
}

export const NOTHING: State<never> = { value: undefined, isReady: false, error: undefined };

export type Tell<Value> = (change: Partial<State<Value>>) => void;

/** A kind of value that the client can follow by its name. */
export interface Kind<Value> {
  /** Calls `tell` with the current value and every change, until the returned function is called. */
  start(client: Client, name: string, tell: Tell<Value>): () => void;
  /** Does the same with the offline records. Without it, the value needs a connection. */
  startOffline?(offline: Offline, name: string, tell: Tell<Value>): () => void;
}

/** Calls `start` as soon as `client` is not closed. The returned function also calls the one that `start` returned. */
export function whileUsable(client: Client, start: () => () => void): () => void {
  let stop: (() => void) | undefined;
  const run = (): void => {
    if (!client.closeReason) stop ??= start();
  };
  run();
  const ignore = client.onState(run);
  return () => {
    ignore();
    stop?.();
  };
}

/** One value and all components that show it. The client follows the value while a component shows it, and a little longer. */
export class Shared<Value> {
  state: State<Value> = NOTHING;
  readonly #listeners = new Set<() => void>();
  #stop: (() => void) | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #settle: () => void = () => {};
  #settled: Promise<void> | undefined;

  constructor(
    private readonly store: Store,
    private readonly kind: Kind<Value>,
    private readonly name: string,
    private readonly over: () => void,
  ) {}

  /** Calls `listener` with every change until the removal. After the last removal, the value is kept for `keepMs`. */
  subscribe(listener: () => void, keepMs: number): () => void {
    clearTimeout(this.#timer);
    this.#listeners.add(listener);
    this.#run();
    return () => {
      this.#listeners.delete(listener);
      this.#keep(keepMs);
    };
  }

  /**
   * Fulfilled when there is a value or an error. The waiting component has not subscribed yet. The value is kept for `keepMs` after that,
   * so that the component can subscribe.
   */
  wait(keepMs: number): Promise<void> {
    this.#run();
    this.#settled ??= new Promise<void>((done) => (this.#settle = done)).then(() => this.#keep(keepMs));
    this.#tellWaiting();
    return this.#settled;
  }

  /** Asks the server again. */
  retry(): void {
    this.#stop?.();
    this.#stop = undefined;
    this.#settled = undefined;
    this.state = NOTHING;
    this.#run();
    this.#listeners.forEach((listener) => listener());
  }

  #run(): void {
    if (this.#stop) return;
    const { kind, name } = this;
    const { client, offline } = this.store;
    let isOver = false;
    const tell: Tell<Value> = (change) => {
      if (!isOver) this.#tell(change);
    };
    let stop: () => void;
    if (offline && kind.startOffline) stop = offline.use((records) => kind.startOffline?.(records, name, tell) as () => void, (error) => tell({ error }));
    else {
      if (client.closeReason) this.state = { ...NOTHING, error: client.closeReason };
      stop = whileUsable(client, () => kind.start(client, name, tell));
    }
    this.#stop = () => {
      isOver = true;
      stop();
    };
  }

  #tell(change: Partial<State<Value>>): void {
    this.state = { ...this.state, ...change };
    this.#tellWaiting();
    this.#listeners.forEach((listener) => listener());
  }

  #tellWaiting(): void {
    if (this.state.isReady || this.state.error) this.#settle();
  }

  #keep(keepMs: number): void {
    clearTimeout(this.#timer);
    if (this.#listeners.size > 0) return;
    this.#timer = setTimeout(() => {
      this.#stop?.();
      this.over();
    }, keepMs);
    // Outside of pages, the timer must not keep the process alive.
    (this.#timer as { unref?(): void }).unref?.();
  }
}

/** All values of one client that components show. */
export class Store {
  static readonly #all = new WeakMap<Client, Store>();
  readonly #shared = new Map<Kind<unknown>, Map<string, Shared<unknown>>>();
  /** The offline records, if a provider of the client has them. */
  offline: OfflineRecords | undefined;

  private constructor(readonly client: Client) {}

  /**
   * The store of `client`. It is not part of a component's state, because React, for example, discards the state of a component that suspends
   * before it is mounted.
   */
  static of(client: Client): Store {
    let store = Store.#all.get(client);
    if (!store) Store.#all.set(client, (store = new Store(client)));
    return store;
  }

  /** Makes components use offline records. The options of the first provider count. */
  goOffline(options: OfflineOptions): void {
    this.offline ??= new OfflineRecords(this.client, options);
  }

  /** Calls `act` with the part that opens records: at once, or when the offline records are open. These create missing records. */
  withRecords(create: boolean, act: (records: Client['record']) => Promise<void> | void): Promise<void> | void {
    return this.offline && create ? this.offline.act((offline) => act(offline as unknown as Client['record'])) : act(this.client.record);
  }

  /** The shared value, if it exists already. */
  find<Value>(kind: Kind<Value>, name: string): Shared<Value> | undefined {
    return this.#shared.get(kind)?.get(name) as Shared<Value> | undefined;
  }

  take<Value>(kind: Kind<Value>, name: string): Shared<Value> {
    const found = this.find(kind, name);
    if (found) return found;
    const names = this.#shared.get(kind) ?? new Map<string, Shared<unknown>>();
    const made = new Shared(this, kind, name, () => names.delete(name));
    this.#shared.set(kind, names.set(name, made as Shared<unknown>));
    return made;
  }
}
