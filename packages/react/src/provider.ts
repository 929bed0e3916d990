// Which client the components below use, and the state of its connection.

import type { Client, State as ConnectionState, TidewireError } from '@tidewire/client';
import { createContext, createElement, useCallback, useContext, useEffect, useMemo, useSyncExternalStore, type ReactElement, type ReactNode } from 'react';
import { Store } from './shared.js';

/** How long what nobody shows any more is kept by default, in milliseconds. React may take half a second to go on after a suspension. */
const KEEP_MS = 5_000;

export interface ProviderProps<AnyClient> {
  client: AnyClient;
  /** Whether a client that was never connected is connected when it is needed in the browser; by default true. */
  autoConnect?: boolean;
  /** Milliseconds that a subscription is kept when no component needs it any more, and that what a component waited for waits for it; by default 5,000. */
  keepMs?: number;
  children?: ReactNode;
}

/** What the hooks know of their surroundings. */
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
  /** What the server told at the login about who this is. */
  readonly loginData: unknown;
}

const Context = createContext<Scope | undefined>(undefined);

export function TidewireProvider({ client, autoConnect = true, keepMs = KEEP_MS, children }: ProviderProps<Client>): ReactElement {
  const scope = useMemo<Scope>(() => {
    const connect = (): void => {
      // Who is interested in a refusal sees it in `useConnection`, and where something is missing.
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
