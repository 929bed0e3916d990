// A component's selection of a shared value: reading it, following it, and waiting for its arrival.

import type { Scope } from './scope.js';
import { NOTHING, type Kind, type State, type Store } from './shared.js';

/** The current state of a value that the server sends. */
export interface Live<Value> extends State<Value> {
  /** Asks the server again, after an error. */
  retry(): void;
}

export interface LiveOptions<Value> {
  /** The value until the server's has arrived, on a server too. */
  initial?: Value | undefined;
}

/** The value that a component shows: a part of the value with this name. Without a name it shows nothing. */
export interface Selection<Value, Part> {
  readonly kind: Kind<Value>;
  readonly name: string | undefined;
  part(value: Value): Part | undefined;
}

/** Returns a function that reads the state of the selection: the same object until it changes. It requests nothing. */
export function reader<Value, Part>(store: Store, { kind, name, part }: Selection<Value, Part>): () => State<Part> {
  let last: State<Part> = NOTHING;
  return () => {
    const { value: all, isReady, error } = (name === undefined ? undefined : store.find(kind, name)?.state) ?? NOTHING;
    const value = all === undefined ? undefined : part(all);
    if (last.value !== value || last.isReady !== isReady || last.error !== error) last = { value, isReady, error };
    return last;
  };
}

/** Requests the selection, and calls `show` with its state now and after each change, until the returned function is called. */
export function follow<Value, Part>({ store, keepMs }: Scope, selection: Selection<Value, Part>, show: (state: State<Part>) => void): () => void {
  const { kind, name } = selection;
  const read = reader(store, selection);
  let last: State<Part> | undefined;
  const look = (): void => {
    const state = read();
    if (state !== last) show((last = state));
  };
  const stop = name === undefined ? () => {} : store.take(kind, name).subscribe(look, keepMs);
  // The request itself changes the state without a notice if the client is closed.
  look();
  return stop;
}

/** The value to show: `initial` until there is a value or an error. */
export function shownValue<Value>({ value, isReady, error }: State<Value>, initial: Value | undefined): Value | undefined {
  return isReady || error ? value : initial;
}

/** Connects and requests the selection. Fulfilled when the value has arrived, rejected if there is an error instead. */
export async function arrival<Value>(scope: Scope, { kind, name }: Selection<Value, unknown>): Promise<void> {
  if (name === undefined) return;
  const shared = scope.store.take(kind, name);
  scope.connect();
  await shared.wait(scope.keepMs);
  const { isReady, error } = shared.state;
  if (error && !isReady) throw error;
}

/** The error of a component that has to wait on a server, where no client is connected. */
export function missingOnServer(name: string): Error {
  return new Error(`"${name}" is not there on a server: give the option initial, or leave the component to the browser`);
}
