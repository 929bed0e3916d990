// Solid primitives for Tidewire. Importing this module only defines names, without side effects. The app creates the client.

import type { AnyPath, Client, EventsOf, Names, RecordsOf, Result, RpcsOf, Schema, ScopesOf, TidewireError, ValueOf } from '@tidewire/client';
import type { ListNames } from '@tidewire/client/lists';
import type { Collections, QueryInput, Row, WholeQuery } from '@tidewire/client/live-query';
import type { ProvideOptions } from '@tidewire/client/provide';
import type { Member } from '@tidewire/client/scopes';
import {
  Calls,
  Joining,
  MEMBERS,
  NOTHING,
  NOT_CONNECTED,
  QUERY,
  STARTING,
  allMembers,
  answerCalls,
  arrival,
  connectionReader,
  entries,
  follow,
  followEvent,
  listEdits,
  mergeBy,
  missingOnServer,
  offlineOf,
  partAt,
  pathText,
  presenceKind,
  publish,
  queryName,
  recordEdits,
  recordKind,
  rows,
  scopeOf,
  selfMember,
  shownValue,
  stateText,
  type Answer,
  type AnswerHandlers,
  type Call,
  type Connection,
  type DocOf,
  type Edits,
  type EntryIn,
  type EventHandlers,
  type EventOptions,
  type Heard,
  type JoiningOptions,
  type ListEdits,
  type Live,
  type LiveOptions as Options,
  type MembersIn,
  type Online,
  type Part,
  type PartsIn,
  type Place,
  type Progress,
  type Publish,
  type RecordOptions as AllOptions,
  type RecordTarget,
  type RowsIn,
  type Scope,
  type ScopeOptions,
  type Selection,
  type SelfIn,
  type State,
  type StateIn,
  type Sync,
} from '@tidewire/client/store';
import {
  createComponent,
  createComputed,
  createContext,
  createEffect,
  createMemo,
  createResource,
  createSignal,
  onCleanup,
  untrack,
  useContext,
  type Accessor,
  type JSX,
} from 'solid-js';
import { createStore, reconcile } from 'solid-js/store';
import { isServer } from 'solid-js/web';

export type { Connection, Edits, EventOptions, ListEdits, Live, Part, Progress, QueuedEdit, Sync } from '@tidewire/client/store';

/** A value that stays the same, or a function that returns one and tracks the signals that it reads. */
export type Source<Value> = Value | Accessor<Value>;

export interface LiveOptions<Value> extends Options<Value> {
  /**
   * Shows the fallback of `<Suspense>` until the value has arrived, unless it has an initial one; the value is undefined then. An error
   * instead reaches the `<ErrorBoundary>`.
   */
  suspense?: boolean;
}
export type RecordOptions<Doc, At, Shown> = AllOptions<Doc, At, Shown> & LiveOptions<Shown>;

export interface ProviderProps<AnyClient> extends ScopeOptions {
  client: AnyClient;
  children?: JSX.Element;
}

export interface Hooks<App extends Schema = {}> {
  /** Gives a client to the components below, and connects it in the browser. The app owns the client and closes it. */
  TidewireProvider(props: ProviderProps<Client<App>>): JSX.Element;

  /** The client of the provider, for functions without a primitive. */
  useClient(): Client<App>;

  /** The state of the connection. Its properties are signals. */
  useConnection(): Connection;

  /**
   * The state of offline records, the edits that wait, and the ones that the server will not make. Its properties are signals. Needs the
   * provider's option `offline`.
   */
  useSync(): Sync;

  /**
   * A record or a part of it, and its edits. If there is no such record, it is created, unless the option `create` is false. Without a
   * name, no record is opened. The properties are signals, also in the value: a change notifies only the readers of the
   * changed property.
   */
  useRecord<Name extends Names<RecordsOf<App>>, At extends Place<DocOf<App, Name>> = undefined>(
    name: Source<Name | undefined>,
    options?: Source<RecordOptions<DocOf<App, Name>, At, Part<DocOf<App, Name>, At>>>,
  ): Live<Part<DocOf<App, Name>, At>> & Edits<DocOf<App, Name>>;

  /** Returns a function that returns the edits of a record by its name: for records that the component does not show. */
  useEdits(): <Name extends Names<RecordsOf<App>>>(name: Name) => Edits<DocOf<App, Name>>;

  /** Calls `callback` with every event while the component is mounted; returns a function that publishes. */
  useEvent<Name extends Names<EventsOf<App>>>(name: Source<Name | undefined>, callback: Heard<App, Name>, options?: EventOptions): Publish<App, Name>;

  /** Whether a user is online. */
  usePresence(user: Source<string | undefined>, options?: LiveOptions<boolean>): Live<boolean>;
  /** The ids of all other users that are online. */
  usePresence(options?: LiveOptions<readonly string[]>): Live<readonly string[]>;

  /** Calls an rpc, and shows the progress of the last call. */
  useRpc<Name extends Names<RpcsOf<App>>>(name: Source<Name>): Progress<Result<ValueOf<RpcsOf<App>, Name>>> & { call: Call<App, Name> };

  /** Answers calls while the component is mounted. */
  useProvide<Name extends Names<RpcsOf<App>>>(name: Source<Name | undefined>, answer: Answer<App, Name>, options?: ProvideOptions): void;
}

export interface ListHooks<App extends Schema = {}> {
  /** The entries of a list, and its changes. If there is no such list, it is created. Without a name, no list is opened. */
  useList<Name extends ListNames<App>>(
    name: Source<Name | undefined>,
    options?: LiveOptions<ReadonlyArray<EntryIn<App, Name>>>,
  ): Live<ReadonlyArray<EntryIn<App, Name>>> & ListEdits<EntryIn<App, Name>>;
}

export interface QueryHooks<App extends Schema = {}> {
  /** The records of a collection that a query selects, in order. Without a collection, there is no request. */
  useQuery<Collection extends Collections<App>>(
    collection: Source<Collection | undefined>,
    query?: Source<WholeQuery>,
    options?: LiveOptions<RowsIn<App, Collection>>,
  ): Live<RowsIn<App, Collection>>;
  useQuery<Collection extends Collections<App>>(
    collection: Source<Collection | undefined>,
    query: Source<QueryInput>,
    options?: LiveOptions<PartsIn<App, Collection>>,
  ): Live<PartsIn<App, Collection>>;
}

export type MemberOptions<Members> = LiveOptions<Members> & JoiningOptions;

export interface ScopeHooks<App extends Schema = {}> {
  /**
   * The members of a scope with their states. With a state, this session is a member while the component is mounted. Without a scope,
   * there is no request.
   */
  useMembers<Name extends Names<ScopesOf<App>>>(
    scope: Source<Name | undefined>,
    state?: Source<StateIn<App, Name> | undefined>,
    options?: MemberOptions<MembersIn<App, Name>>,
  ): Live<MembersIn<App, Name>> & SelfIn<App, Name>;
}

/** The primitives, typed by the schema of an app like its client. All typed versions are the same functions and share one context. */
export function hooks<App extends Schema = {}>(): Hooks<App> {
  const untyped = { TidewireProvider: Component, useClient: client, useConnection: connection, useSync: sync, useRecord: record, useEdits: editing, useEvent: event, usePresence: presence, useRpc: rpc, useProvide: providing };
  return untyped as unknown as Hooks<App>;
}

/** `useList`, typed in the same way. It is a separate function, so that only apps with lists load them. */
export function listHooks<App extends Schema = {}>(): ListHooks<App> {
  return { useList: list } as unknown as ListHooks<App>;
}

/** `useQuery`, typed in the same way. It is a separate function, so that only apps with queries load them. */
export function queryHooks<App extends Schema = {}>(): QueryHooks<App> {
  return { useQuery: query } as unknown as QueryHooks<App>;
}

/** `useMembers`, typed in the same way. It is a separate function, so that only apps with scopes load them. */
export function scopeHooks<App extends Schema = {}>(): ScopeHooks<App> {
  return { useMembers: members } as unknown as ScopeHooks<App>;
}

const Context = /* @__PURE__ */ createContext<Accessor<Scope> | undefined>(undefined);

function Component(props: ProviderProps<Client>): JSX.Element {
  const scope = createMemo(() => scopeOf(props.client, { autoConnect: props.autoConnect, keepMs: props.keepMs, offline: props.offline }));
  createEffect(() => onCleanup(scope().mount()));
  return createComponent(Context.Provider, {
    value: scope,
    get children() {
      return props.children;
    },
  });
}

function useScope(): Accessor<Scope> {
  const scope = useContext(Context);
  if (!scope) throw new Error('no <TidewireProvider client={...}> is above this component');
  return scope;
}

function client(): Client {
  return untrack(useScope()).client;
}

function valueOf<Value>(source: Source<Value>): Value {
  return typeof source === 'function' ? (source as Accessor<Value>)() : source;
}

/** An object whose properties read the current object, and so track only what they read. */
function proxyOf<Values extends object>(read: Accessor<Values>, keys: ReadonlyArray<keyof Values>): Values {
  return Object.defineProperties({}, Object.fromEntries(keys.map((key) => [key, { get: () => read()[key], enumerable: true }]))) as Values;
}

function connection(): Connection {
  const scope = useScope();
  const [shown, show] = createSignal(NOT_CONNECTED);
  createEffect(() => {
    const { client } = scope();
    const read = connectionReader(client);
    show(read());
    onCleanup(client.onState(() => show(read())));
  });
  return proxyOf(shown, ['state', 'error', 'loginData']);
}

function sync(): Sync {
  const scope = useScope();
  const [shown, show] = createSignal(STARTING);
  untrack(() => offlineOf(scope()));
  createEffect(() => {
    const { read, subscribe } = offlineOf(scope());
    show(read());
    onCleanup(subscribe(() => show(read())));
  });
  return proxyOf(shown, ['mode', 'reason', 'isLeader', 'connection', 'pendingCount', 'queue', 'conflicts', 'keep', 'drop']);
}

function useLive<Value, Part, More extends object>(
  selected: Accessor<Selection<Value, Part>>,
  options: Accessor<LiveOptions<Part>>,
  more: More,
): Live<Part> & More {
  const scope = useScope();
  const [state, setState] = createStore<State<Part>>({ ...NOTHING });
  // `reconcile` changes the value of the store in place, and the client's values must not change. So the store has a copy.
  const show = ({ value, isReady, error }: State<Part>): void => setState(reconcile({ value: structuredClone(value), isReady, error }));
  if (!isServer) {
    createComputed(() => {
      const [now, selection] = [scope(), selected()];
      onCleanup(untrack(() => follow(now, selection, show)));
    });
  }
  const wait = waitFor(scope, selected, options);
  const live: Live<Part> = {
    get value() {
      wait?.();
      return shownValue(state, options().initial);
    },
    get isReady() {
      return state.isReady;
    },
    get error() {
      return state.error;
    },
    retry() {
      const { kind, name } = untrack(selected);
      if (name !== undefined) untrack(scope).store.find(kind, name)?.retry();
      wait?.again();
    },
  };
  return Object.assign(live, more);
}

/** With the option `suspense`, a function that suspends its reader until the value has arrived. */
function waitFor<Value, Part>(scope: Accessor<Scope>, selected: Accessor<Selection<Value, Part>>, options: Accessor<LiveOptions<Part>>) {
  const { suspense, initial } = untrack(options);
  if (!suspense || initial !== undefined) return undefined;
  if (isServer) {
    const fail = (): void => {
      const { name } = selected();
      if (name !== undefined) throw missingOnServer(name);
    };
    return Object.assign(fail, { again: () => {} });
  }
  const [arrived, { refetch }] = createResource(selected, (selection) => arrival(untrack(scope), selection).then(() => true));
  return Object.assign(() => void arrived(), { again: () => void refetch() });
}

function record(
  name: Source<string | undefined>,
  options: Source<RecordOptions<unknown, AnyPath<unknown> | undefined, unknown>> = {},
): Live<unknown> & Edits<unknown> {
  const scope = useScope();
  const given = () => valueOf(options);
  const target = (): RecordTarget => ({ store: scope().store, name: valueOf(name), create: given().create });
  // Both are memos, because an equal value must not begin another selection.
  const names = createMemo(() => valueOf(name));
  const kind = createMemo(() => recordKind(given().create));
  const text = createMemo(() => pathText(given().path));
  const selected = createMemo(() => ({ kind: kind(), name: names(), part: partAt(text()) }));
  createEffect(() => mergeBy(target(), given().merge));
  return useLive(selected, given, recordEdits(() => untrack(target)));
}

function editing(): (name: string) => Edits<unknown> {
  const scope = useScope();
  return (name) => recordEdits(() => ({ store: untrack(scope).store, name }));
}

function list(name: Source<string | undefined>, options: LiveOptions<readonly string[]> = {}): Live<readonly string[]> & ListEdits<string> {
  const scope = useScope();
  const names = createMemo(() => valueOf(name));
  const selected = createMemo(() => ({ kind: recordKind(), name: names(), part: entries }));
  return useLive(selected, () => options, listEdits(() => untrack(() => ({ store: scope().store, name: names() }))));
}

function query(collection: Source<string | undefined>, given: Source<QueryInput> = {}, options: LiveOptions<readonly Row[]> = {}): Live<readonly Row[]> {
  // The name is a text, so an equal query is the same name.
  const names = createMemo(() => queryName(valueOf(collection), valueOf(given)));
  const selected = createMemo(() => ({ kind: QUERY, name: names(), part: rows }));
  return useLive(selected, () => options, {});
}

function members(
  name: Source<string | undefined>,
  state?: Source<unknown>,
  options: MemberOptions<readonly Member[]> = {},
): Live<readonly Member[]> & { self: Member | undefined } {
  const scope = useScope();
  const names = createMemo(() => valueOf(name));
  const text = createMemo(() => stateText(valueOf(state)));
  const joining = createMemo(() => new Joining(scope().store, names()));
  const [refused, setRefused] = createSignal<TidewireError>();
  createEffect(() => {
    const now = joining();
    setRefused(now.error);
    onCleanup(now.subscribe(() => setRefused(now.error)));
    onCleanup(() => now.show(undefined));
  });
  createEffect(() => joining().show(text(), options));
  const list = createMemo(() => ({ kind: MEMBERS, name: names(), part: allMembers }));
  const own = createMemo(() => ({ kind: MEMBERS, name: names(), part: selfMember }));
  const live = useLive(list, () => options, {});
  const self = useLive(own, () => ({}), {});
  return {
    get value() {
      return live.value;
    },
    get self() {
      return self.value;
    },
    get isReady() {
      return live.isReady;
    },
    get error() {
      return live.error ?? refused();
    },
    retry() {
      untrack(joining).retry();
    },
  };
}

function presence(first: Source<string | undefined> | LiveOptions<Online> = {}, second: LiveOptions<Online> = {}): Live<Online> {
  const isEveryone = typeof first === 'object';
  const names = createMemo(() => (isEveryone ? 'everyone' : valueOf(first)));
  const selected = createMemo(() => ({ kind: presenceKind(!isEveryone), name: names(), part: (online: Online) => online }));
  return useLive(selected, () => (isEveryone ? first : second), {});
}

function event(name: Source<string | undefined>, callback: EventHandlers['callback'], options: EventOptions = {}): (payload?: unknown) => void {
  const scope = useScope();
  createEffect(() => onCleanup(followEvent(scope().client, valueOf(name), () => ({ ...options, callback }))));
  return (payload) => untrack(() => publish(scope().client, valueOf(name), payload));
}

function rpc(name: Source<string>): Progress<unknown> & { call: Calls['call'] } {
  const scope = useScope();
  const calls = createMemo(() => new Calls(scope().client, valueOf(name)));
  const [progress, show] = createSignal(untrack(calls).progress);
  createComputed(() => {
    const current = calls();
    show(current.progress);
    onCleanup(current.subscribe(() => show(current.progress)));
  });
  return Object.assign(proxyOf(progress, ['value', 'error', 'isRunning']), { call: ((...args) => untrack(calls).call(...args)) as Calls['call'] });
}

function providing(name: Source<string | undefined>, answer: AnswerHandlers['answer'], options: ProvideOptions = {}): void {
  const scope = useScope();
  createEffect(() => onCleanup(answerCalls(scope().client, valueOf(name), () => ({ ...options, answer }))));
}

// The primitives for any name, with `unknown` values; `hooks` returns the primitives of an app. Bundlers can drop each of them.
export const TidewireProvider = Component as unknown as Hooks['TidewireProvider'];
export const useClient = client as unknown as Hooks['useClient'];
export const useConnection = connection as unknown as Hooks['useConnection'];
export const useSync = sync as unknown as Hooks['useSync'];
export const useRecord = record as unknown as Hooks['useRecord'];
export const useEdits = editing as unknown as Hooks['useEdits'];
export const useEvent = event as unknown as Hooks['useEvent'];
export const usePresence = presence as unknown as Hooks['usePresence'];
export const useRpc = rpc as unknown as Hooks['useRpc'];
export const useProvide = providing as unknown as Hooks['useProvide'];
export const useList = list as unknown as ListHooks['useList'];
export const useQuery = query as unknown as QueryHooks['useQuery'];
export const useMembers = members as unknown as ScopeHooks['useMembers'];
