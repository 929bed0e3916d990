// The client that components get from their provider, the provider's settings, and the state of the connection.

import type { Client } from '../client.js';
import type { State as ConnectionState } from '../connection.js';
import type { TidewireError } from '../error.js';
import type { OfflineOptions } from '../offline.js';
import { Store } from './shared.js';

/** The default of `keepMs`, in milliseconds. React may take half a second to continue after a suspension. */
const KEEP_MS = 5_000;

/** The settings of a provider. */
export interface ScopeOptions {
  /** Whether the provider connects a client that was never connected, in the browser only; by default true. */
  autoConnect?: boolean | undefined;
  /**
   * Milliseconds that a subscription stays after its last component unmounts, and that an awaited value waits for its component; by default
   * 5,000.
   */
  keepMs?: number | undefined;
  /**
   * Whether records and lists work without a connection, in all components with this client; by default false. An object has the options of
   * `Offline`, which are read once. The module for it is loaded in the browser only.
   */
  offline?: boolean | OfflineOptions | undefined;
}

/** The client and the settings that components get from the provider. */
export interface Scope {
  readonly client: Client;
  readonly store: Store;
  readonly keepMs: number;
  /** Connects the client, if the provider may do that. */
  connect(): void;
  /** Connects, and opens the offline records, for a provider that is mounted; returns a function for its unmount. */
  mount(): () => void;
}

export function scopeOf(client: Client, { autoConnect = true, keepMs = KEEP_MS, offline }: ScopeOptions): Scope {
  const connect = (): void => {
    // A refusal shows in the state of the connection, and as the `error` of the values that are missing.
    if (autoConnect && client.state === 'closed' && !client.closeReason) client.connect().catch(() => undefined);
  };
  const store = Store.of(client);
  if (offline) store.goOffline(offline === true ? {} : offline);
  const mount = (): (() => void) => {
    connect();
    return store.offline?.subscribe(() => {}) ?? (() => {});
  };
  return { client, store, keepMs, connect, mount };
}

export interface Connection {
  readonly state: ConnectionState;
  /** Why the client is closed; undefined if it was never connected. */
  readonly error: TidewireError | undefined;
  /** The client data that the server sent at the login. */
  readonly loginData: unknown;
}

/** The state on a server, and while the browser hydrates a page from a server. */
export const NOT_CONNECTED: Connection = { state: 'closed', error: undefined, loginData: undefined };

/** Returns a function that reads the state of the connection: the same object until it changes. */
export function connectionReader(client: Client): () => Connection {
  let last = NOT_CONNECTED;
  return () => {
    const { state, closeReason: error, loginData } = client;
    if (last.state !== state || last.error !== error || last.loginData !== loginData) last = { state, error, loginData };
    return last;
  };
}
