// The client that the components below use, and the state of its connection.

import type { Client } from '@tidewire/client';
import { NOT_CONNECTED, STARTING, connectionReader, offlineOf, scopeOf, type Connection, type Scope, type ScopeOptions, type Sync } from '@tidewire/client/store';
import { createContext, createElement, useCallback, useContext, useEffect, useMemo, useSyncExternalStore, type ReactElement, type ReactNode } from 'react';

export interface ProviderProps<AnyClient> extends ScopeOptions {
  client: AnyClient;
  children?: ReactNode;
}

const Context = createContext<Scope | undefined>(undefined);

export function TidewireProvider({ client, autoConnect, keepMs, offline, children }: ProviderProps<Client>): ReactElement {
  const isOffline = Boolean(offline);
  // The options of offline records are read once, so another object in each render changes nothing.
  const scope = useMemo(() => scopeOf(client, { autoConnect, keepMs, offline }), [client, autoConnect, keepMs, isOffline]);
  useEffect(() => scope.mount(), [scope]);
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

export function useConnection(): Connection {
  const client = useClient();
  const subscribe = useCallback((listener: () => void) => client.onState(listener), [client]);
  const read = useMemo(() => connectionReader(client), [client]);
  return useSyncExternalStore(subscribe, read, () => NOT_CONNECTED);
}

export function useSync(): Sync {
  const { read, subscribe } = offlineOf(useScope());
  return useSyncExternalStore(subscribe, read, () => STARTING);
}
