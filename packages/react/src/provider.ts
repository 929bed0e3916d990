// The client that the components below use, and the state of its connection.

import type { Client, State as ConnectionState, TidewireError } from '@tidewire/client';
import { createContext, createElement, useCallback, useContext, useEffect, useMemo, useSyncExternalStore, type ReactElement, type ReactNode } from 'react';
import { Store } from './shared.js';

/** The default of `keepMs`, in milliseconds. React may take half a second to continue after a suspension. */
const KEEP_MS = 5_000;

export interface ProviderProps<AnyClient> {
  client: AnyClient;
  /** Whether the provider connects a client that was never connected, in the browser only; by default true. */
  autoConnect?: boolean;
  /**
   * Milliseconds that a subscription stays after its last component unmounts, and that an awaited value waits for its component; by default
   * 5,000.
   */
  keepMs?: number;
  children?: ReactNode;
}

/** The client and the settings that hooks get from the provider. */
export interface Scope {
  readonly client: Client;
  readonly store: Store;
  readonly keepMs: number;
  connect(): void;
}

export interface Connection {
  readonly state: ConnectionState;
  /** Why the client is closed; undefined if it was never connected. */
  readonly error: TidewireError | undefined;
  /** The client data that the server sent at the login. */
  readonly loginData: unknown;
}

const Context = createContext<Scope | undefined>(undefined);

export function TidewireProvider({ client, autoConnect = true, keepMs = KEEP_MS, children }: ProviderProps<Client>): ReactElement {
  const scope = useMemo<Scope>(() => {
    const connect = (): void => {
      // A refusal shows in `useConnection`, and as the `error` of the hooks whose values are missing.
      if (autoConnect && client.state === 'closed' && !client.closeReason) client.connect().catch(() => undefined);
    };
    return { client, store: Store.of(client), keepMs, connect };
  }, [client, autoConnect, keepMs]);
  useEffect(() => scope.connect(), [scope]);
  return createElement(Context.Provider, { value: scope }, children);
}

export function useScope(): Scope {
  const scope = useContext(Context);
  if (!scope) throw new Error('no <TidewireProvider client={...}> is above this component');
  return scope;
}

export function useClient(): Client {
  return useScope().client;
}

const NOT_CONNECTED: Connection = { state: 'closed', error: undefined, loginData: undefined };

export function useConnection(): Connection {
  const client = useClient();
  const subscribe = useCallback((listener: () => void) => client.onState(listener), [client]);
  const read = useMemo(() => {
    let last = NOT_CONNECTED;
    return () => {
      const { state, closeReason: error, loginData } = client;
      if (last.state !== state || last.error !== error || last.loginData !== loginData) last = { state, error, loginData };
      return last;
    };
  }, [client]);
  return useSyncExternalStore(subscribe, read, () => NOT_CONNECTED);
}
