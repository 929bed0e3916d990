// Connects a component to a shared value: selects a part of it, and suspends the component until the value has arrived.

import { useCallback, useMemo, useSyncExternalStore } from 'react';
import { useScope } from './provider.js';
import { NOTHING, type Kind, type State } from './shared.js';

/** The current state of a value that the server sends. */
export interface Live<Value> extends State<Value> {
  /** Asks the server again, after an error. */
  retry(): void;
}

export interface LiveOptions<Value> {
  /** Suspends the component until the value has arrived. If there is an error instead, throws it. */
  suspense?: boolean;
  /** The value until the server's has arrived, on a server too. A component that has it does not suspend. */
  initial?: Value | undefined;
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
  const read = useMemo(() => {
    let last: State<Part> = NOTHING;
    return () => {
      const { value: all, isReady, error } = (name === undefined ? undefined : store.find(kind, name)?.state) ?? NOTHING;
      const value = all === undefined ? undefined : part(all);
      if (last.value !== value || last.isReady !== isReady || last.error !== error) last = { value, isReady, error };
      return last;
    };
  }, [store, kind, name, part]);
  const state = useSyncExternalStore(subscribe, read, () => ON_SERVER);
  const retry = useCallback(() => {
    if (name !== undefined) store.find(kind, name)?.retry();
  }, [store, kind, name]);
  const { isReady, error } = state;
  const value = isReady || error ? state.value : initial;
  const live = useMemo(() => ({ value, isReady, error, retry }), [value, isReady, error, retry]);
  if (!suspense || name === undefined || isReady || initial !== undefined) return live;
  if (error) throw error;
  if (state === ON_SERVER) throw new Error(`"${name}" is not there on a server: give the option initial, or leave the component to the browser`);
  connect();
  throw store.take(kind, name).wait(keepMs);
}
