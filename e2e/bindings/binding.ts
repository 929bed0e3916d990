// The suite uses these parts of a binding: its hooks in one form, components that draw a text, and a page that shows components.

import type { Client, TidewireError } from '../../packages/client/src/index.ts';
import type { OfflineOptions, Sync } from '../../packages/client/src/offline.ts';
import type { Member } from '../../packages/client/src/scopes.ts';

/** A value that components use and that a test changes. */
export interface Variable<Value> {
  read(): Value;
  write(value: Value): void;
  /** The form in which the binding takes it: a ref, a store, a signal. */
  readonly source: unknown;
}

export type Name = string | Variable<string | undefined>;
export type Query = object | Variable<object>;
/** The state of a member of a scope. */
export type State = object | undefined | Variable<unknown>;

interface Live<Value> {
  readonly value: Value | undefined;
  readonly isReady: boolean;
  readonly error: TidewireError | undefined;
  retry(): void;
}

interface RecordEdits {
  set(...change: unknown[]): void;
  patch(changes: object): Promise<void>;
}

interface ListEdits {
  add(entry: string, index?: number): Promise<void>;
  remove(entry: string, index?: number): Promise<void>;
  set(entries: readonly string[]): Promise<void>;
}

export function isVariable(value: object): value is Variable<any> {
  return 'source' in value;
}

export interface Options {
  /** Waits in the way of the framework; the page shows `wait` until then. */
  suspense?: boolean;
  initial?: unknown;
  path?: string | readonly (string | number)[];
  create?: boolean;
  merge?: 'remote';
}

/** The hooks of a binding. Each returns a function that reads what it shows, which a component calls while it draws. */
export interface Uses {
  useRecord(name: Name, options?: Options): () => Live<any> & RecordEdits;
  useEdits(): (name: string) => RecordEdits;
  useList(name: Name, options?: Options): () => Live<readonly string[]> & ListEdits;
  useQuery(collection: Name, query: Query, options?: Options): () => Live<ReadonlyArray<{ id: string; version: number; data: any }>>;
  useMembers(scope: Name, state?: State, options?: Options): () => Live<ReadonlyArray<Member<any>>> & { self: Member<any> | undefined };
  usePresence(user: string, options?: Options): () => Live<boolean>;
  useEveryone(options?: Options): () => Live<readonly string[]>;
  useEvent(name: Name, callback: (payload: any) => void, options?: { onEnd?: (error: TidewireError) => void }): (payload?: unknown) => void;
  useRpc(name: string): () => { value: unknown; error: unknown; isRunning: boolean; call(argument?: unknown): Promise<unknown> };
  useProvide(name: Name, answer: (argument: any) => unknown): void;
  useSync(): () => Sync;
  useConnection(): () => { state: string; error: TidewireError | undefined };
}

/** Calls hooks, and returns the function that draws. React calls both for each drawing, the other frameworks call the first only once. */
export type Component = (uses: Uses) => () => string;

/** A component on a page. Another id is another instance. */
export interface Entry {
  readonly id: number;
  readonly component: Component;
}

export interface Settings {
  /** The client of the provider; without one, there is no provider. */
  client?: Client | undefined;
  keepMs?: number;
  autoConnect?: boolean;
  offline?: boolean | OfflineOptions;
}

/** The suite runs against this interface. */
export interface Binding {
  /** The error of a hook without a provider. */
  readonly missingProvider: string;
  variable<Value>(initial: Value): Variable<Value>;
  /** Begins a page in `element`. If a component fails, the page shows `failed: ` and the code or the message in its place. */
  mount(element: object, settings: Settings): { show(entries: readonly Entry[]): void; unmount(): void };
}

/** The part of a binding that runs on a server. */
export interface ServerBinding {
  render(settings: Settings, entries: readonly Entry[]): string | Promise<string>;
}

export function failure(error: unknown): string {
  const { code, message } = error as Partial<TidewireError>;
  return `failed: ${code ?? message}`;
}
