// Values that the server sends: the parts of shared values that components show. Suspends a component until its value has arrived.

import type { AnyPath, Merge } from '@tidewire/client';
import {
  NOTHING,
  mergeBy,
  missingOnServer,
  partAt,
  pathText,
  presenceKind,
  reader,
  recordEdits,
  recordKind,
  shownValue,
  type Edits,
  type Kind,
  type Live,
  type LiveOptions as Options,
  type Online,
  type State,
} from '@tidewire/client/store';
import { useCallback, useEffect, useMemo, useSyncExternalStore } from 'react';
import { useScope } from './provider.js';

export interface LiveOptions<Value> extends Options<Value> {
  /** Suspends the component until the value has arrived, unless it has an initial one. If there is an error instead, throws it. */
  suspense?: boolean;
}

/** The state where no client is connected: on a server, and while the browser hydrates a page from a server. */
const ON_SERVER: State<never> = { ...NOTHING };

export function useLive<Value, Part>(
  kind: Kind<Value>,
  name: string | undefined,
  { suspense = false, initial }: LiveOptions<Part>,
  part: (value: Value) => Part | undefined,
): Live<Part> {
  const { store, keepMs, connect } = useScope();
  const subscribe = useCallback(
    (listener: () => void) => (name === undefined ? () => {} : store.take(kind, name).subscribe(listener, keepMs)),
    [store, kind, name, keepMs],
  );
  const read = useMemo(() => reader(store, { kind, name, part }), [store, kind, name, part]);
  const state = useSyncExternalStore(subscribe, read, () => ON_SERVER);
  const retry = useCallback(() => {
    if (name !== undefined) store.find(kind, name)?.retry();
  }, [store, kind, name]);
  const { isReady, error } = state;
  const value = shownValue(state, initial);
  const live = useMemo(() => ({ value, isReady, error, retry }), [value, isReady, error, retry]);
  if (!suspense || name === undefined || isReady || initial !== undefined) return live;
  if (error) throw error;
  if (state === ON_SERVER) throw missingOnServer(name);
  connect();
  throw store.take(kind, name).wait(keepMs);
}

export function useRecord(
  name: string | undefined,
  { path, merge, create, ...options }: LiveOptions<unknown> & { path?: AnyPath<unknown>; merge?: Merge; create?: boolean } = {},
): Live<unknown> & Edits<unknown> {
  const { store } = useScope();
  const at = pathText(path);
  const part = useMemo(() => partAt(at), [at]);
  const live = useLive(recordKind(create), name, options, part);
  useEffect(() => mergeBy({ store, name, create }, merge), [store, name, merge, create]);
  const edits = useMemo(() => recordEdits(() => ({ store, name, create })), [store, name, create]);
  return useMemo(() => ({ ...live, ...edits }), [live, edits]);
}

export function useEdits(): (name: string) => Edits<unknown> {
  const { store } = useScope();
  return useMemo(() => (name) => recordEdits(() => ({ store, name })), [store]);
}

const all = (value: Online): Online => value;

export function usePresence(user: string | LiveOptions<readonly string[]> = {}, options: LiveOptions<Online> = {}): Live<Online> {
  const isOne = typeof user === 'string';
  return useLive(presenceKind(isOne), isOne ? user : 'everyone', isOne ? options : user, all);
}
