// From what is shared to what a component shows: of one thing, or a part of it, and suspended until it is there.

import { useCallback, useMemo, useSyncExternalStore } from 'react';
import { useScope } from './provider.js';
import { NOTHING, type Kind, type State } from './shared.js';

/** Something that the server tells about, as it is now. */
export interface Live<Value> extends State<Value> {
  /** Asks the server anew, after an error. */
  retry(): void;
}

export interface LiveOptions<Value> {
  /** Suspends the component until the value is there, and throws the error if there is none. */
  suspense?: boolean;
  /** What is shown until the value is there, on a server too; a component that has it does not suspend. */
  initial?: Value | undefined;
}

/** What is known where nothing is connected: on a server, and while a page that came from one becomes alive. */
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
