// Svelte stores for Tidewire, for Svelte 4 and 5. Importing this module only defines names, without side effects. The app creates the client.

import type { AnyPath, Client, EventsOf, Names, RecordsOf, Result, RpcsOf, Schema, ScopesOf, ValueOf } from '@tidewire/client';
import type { ListNames } from '@tidewire/client/lists';
import type { Collections, QueryInput, Row, WholeQuery } from '@tidewire/client/live-query';
import type { ProvideOptions } from '@tidewire/client/provide';
import type { Member } from '@tidewire/client/scopes';
import {
  Calls,
  Joining,
  MEMBERS,
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
  offlineOf,
  partAt,
  pathText,
  presenceKind,
  publish,
  queryName,
  reader,
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
  type LiveOptions,
  type MembersIn,
  type Online,
  type OpenRecord,
  type Part,
  type PartsIn,
  type Place,
  type Progress,
  type Publish,
  type RecordOptions,
  type RecordTarget,
  type RowsIn,
  type Scope,
  type ScopeOptions,
  type Selection,
  type SelfIn,
  type StateIn,
  type Sync,
} from '@tidewire/client/store';
import { getContext, onMount, setContext } from 'svelte';
import { derived, get, readable, writable, type Readable } from 'svelte/store';

export type { Connection, Edits, EventOptions, ListEdits, Live, LiveOptions, Part, Progress, QueuedEdit, RecordOptions, Sync } from '@tidewire/client/store';

/** A value that stays the same, or a store of one that changes. In Svelte 5, `toStore(() => value)` makes a store of runes. */
export type Source<Value> = Value | Readable<Value>;

/** A store of a value that the server sends. It has no `set`, because its edits are functions of its value: `$todo.set('done', true)`. */
export interface LiveStore<Value> extends Readable<Value> {
  /** Fulfilled when the value has arrived, rejected if there is an error instead: `{#await todo.ready()}`. */
  ready(): Promise<void>;
}

export interface Hooks<App extends Schema = {}> {
  /** Gives a client to the component that is being created and to the components below it, and connects it in the browser. The app closes it. */
  provideTidewire(client: Client<App>, options?: ScopeOptions): void;

  /** The client of the component or of one above it, for functions without a store. */
  useClient(): Client<App>;

  /** The state of the connection. */
  useConnection(): Readable<Connection>;

  /** The state of offline records, the edits that wait, and the ones that the server will not make. Needs the option `offline`. */
  useSync(): Readable<Sync>;

  /**
   * A record or a part of it, and its edits. If there is no such record, it is created, unless the option `create` is false. Without a
   * name, no record is opened.
   */
  useRecord<Name extends Names<RecordsOf<App>>, At extends Place<DocOf<App, Name>> = undefined>(
    name: Source<Name | undefined>,
    options?: Source<RecordOptions<DocOf<App, Name>, At, Part<DocOf<App, Name>, At>>>,
  ): LiveStore<Live<Part<DocOf<App, Name>, At>> & Edits<DocOf<App, Name>>>;

  /** Returns a function that returns the edits of a record by its name: for records that the component does not show. */
  useEdits(): <Name extends Names<RecordsOf<App>>>(name: Name) => Edits<DocOf<App, Name>>;

  /** Calls `callback` with every event while the component is mounted; returns a function that publishes. */
  useEvent<Name extends Names<EventsOf<App>>>(name: Source<Name | undefined>, callback: Heard<App, Name>, options?: EventOptions): Publish<App, Name>;

  /** Whether a user is online. */
  usePresence(user: Source<string | undefined>, options?: LiveOptions<boolean>): LiveStore<Live<boolean>>;
  /** The ids of all other users that are online. */
  usePresence(options?: LiveOptions<readonly string[]>): LiveStore<Live<readonly string[]>>;

  /** Calls an rpc, and shows the progress of the last call. */
  useRpc<Name extends Names<RpcsOf<App>>>(name: Source<Name>): Readable<Progress<Result<ValueOf<RpcsOf<App>, Name>>> & { call: Call<App, Name> }>;

  /** Answers calls while the component is mounted. */
  useProvide<Name extends Names<RpcsOf<App>>>(name: Source<Name | undefined>, answer: Answer<App, Name>, options?: ProvideOptions): void;
}

export interface ListHooks<App extends Schema = {}> {
  /** The entries of a list, and its changes. If there is no such list, it is created. Without a name, no list is opened. */
  useList<Name extends ListNames<App>>(
    name: Source<Name | undefined>,
    options?: LiveOptions<ReadonlyArray<EntryIn<App, Name>>>,
  ): LiveStore<Live<ReadonlyArray<EntryIn<App, Name>>> & ListEdits<EntryIn<App, Name>>>;
}

export interface QueryHooks<App extends Schema = {}> {
  /** The records of a collection that a query selects, in order. Without a collection, there is no request. */
  useQuery<Collection extends Collections<App>>(
    collection: Source<Collection | undefined>,
    query?: Source<WholeQuery>,
    options?: LiveOptions<RowsIn<App, Collection>>,
  ): LiveStore<Live<RowsIn<App, Collection>>>;
  useQuery<Collection extends Collections<App>>(
    collection: Source<Collection | undefined>,
    query: Source<QueryInput>,
    options?: LiveOptions<PartsIn<App, Collection>>,
  ): LiveStore<Live<PartsIn<App, Collection>>>;
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
  ): LiveStore<Live<MembersIn<App, Name>> & SelfIn<App, Name>>;
}

/** The functions, typed by the schema of an app like its client. All typed versions are the same functions and share one context. */
export function hooks<App extends Schema = {}>(): Hooks<App> {
  const untyped = { provideTidewire: provide, useClient: client, useConnection: connection, useSync: sync, useRecord: record, useEdits: editing, useEvent: event, usePresence: presence, useRpc: rpc, useProvide: providing };
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

const SCOPE = Symbol('tidewire');

function provide(given: Client, options: ScopeOptions = {}): void {
  const scope = setContext(SCOPE, scopeOf(given, options));
  onMount(() => scope.mount());
}

function useScope(): Scope {
  const scope = getContext<Scope | undefined>(SCOPE);
  if (!scope) throw new Error('no component above this one has called provideTidewire(client)');
  return scope;
}

function client(): Client {
  return useScope().client;
}

/** Whether the source is a store, which is an object with `subscribe`. Names and options are not. */
function isStore(source: unknown): source is Readable<never> {
  return typeof source === 'object' && source !== null && 'subscribe' in source;
}

function storeOf<Value>(source: Source<Value>): Readable<Value> {
  return isStore(source) ? source : readable(source as Value);
}

/**
 * While the component is mounted, calls `start` with the value of `store` and with each other one after it; before that and at the end, calls
 * what it returned.
 */
function whileMounted<Value>(store: Readable<Value>, start: (value: Value) => () => void): void {
  onMount(() => {
    let last: Value | undefined;
    let stop: (() => void) | undefined;
    const ignore = store.subscribe((value) => {
      if (stop && value === last) return;
      stop?.();
      last = value;
      stop = start(value);
    });
    return () => {
      ignore();
      stop?.();
    };
  });
}

function connection(): Readable<Connection> {
  const scope = useScope();
  const { subscribe, set } = writable(NOT_CONNECTED);
  const read = connectionReader(scope.client);
  whileMounted(readable(undefined), () => {
    set(read());
    return scope.client.onState(() => set(read()));
  });
  return { subscribe };
}

function sync(): Readable<Sync> {
  const { read, subscribe: listen } = offlineOf(useScope());
  const { subscribe, set } = writable(STARTING);
  whileMounted(readable(undefined), () => {
    set(read());
    return listen(() => set(read()));
  });
  return { subscribe };
}

/** A store of the selected value together with `more`. `selected` has another object only for another selection. */
function useLive<Value, Part, More>(selected: Readable<Selection<Value, Part>>, initial: () => Part | undefined, more: More): LiveStore<Live<Part> & More> {
  const scope = useScope();
  let selection = get(selected);
  let state = reader(scope.store, selection)();
  const retry = (): void => {
    const { kind, name } = selection;
    if (name !== undefined) scope.store.find(kind, name)?.retry();
  };
  const shown = (): Live<Part> & More => ({ ...more, ...state, value: shownValue(state, initial()), retry });
  const { subscribe, set } = writable(shown());
  const mounted = new Promise<void>((done) => onMount(done));
  whileMounted(selected, (next) => {
    selection = next;
    return follow(scope, next, (changed) => {
      state = changed;
      set(shown());
    });
  });
  return {
    subscribe,
    async ready() {
      if (initial() !== undefined) return;
      // A server never mounts a component, so a page from a server shows that it waits.
      await mounted;
      await arrival(scope, selection);
    },
  };
}

function record(
  name: Source<string | undefined>,
  options: Source<RecordOptions<unknown, AnyPath<unknown> | undefined, unknown>> = {},
): LiveStore<Live<unknown> & Edits<unknown>> {
  const { store } = useScope();
  const [names, given] = [storeOf(name), storeOf(options)];
  const target = (): RecordTarget => ({ store, name: get(names), create: get(given).create });
  let last: (Selection<OpenRecord, unknown> & { text: string | undefined }) | undefined;
  const selected = derived([names, given], ([name, { create, path }]) => {
    const [kind, text] = [recordKind(create), pathText(path)];
    if (last?.kind !== kind || last.name !== name || last.text !== text) last = { kind, name, text, part: partAt(text) };
    return last;
  });
  const live = useLive(selected, () => get(given).initial, recordEdits(target));
  // By now the record is open, so the option stays.
  whileMounted(derived([names, given], ([, { merge }]) => ({ merge })), ({ merge }) => {
    mergeBy(target(), merge);
    return () => {};
  });
  return live;
}

function editing(): (name: string) => Edits<unknown> {
  const { store } = useScope();
  return (name) => recordEdits(() => ({ store, name }));
}

function list(name: Source<string | undefined>, { initial }: LiveOptions<readonly string[]> = {}): LiveStore<Live<readonly string[]> & ListEdits<string>> {
  const { store } = useScope();
  const names = storeOf(name);
  const selected = derived(names, (name) => ({ kind: recordKind(), name, part: entries }));
  return useLive(selected, () => initial, listEdits(() => ({ store, name: get(names) })));
}

function query(
  collection: Source<string | undefined>,
  given: Source<QueryInput> = {},
  { initial }: LiveOptions<readonly Row[]> = {},
): LiveStore<Live<readonly Row[]>> {
  // The name is a text, so an equal query is the same name.
  const names = derived([storeOf(collection), storeOf(given)], ([collection, given]) => queryName(collection, given));
  const selected = derived(names, (name) => ({ kind: QUERY, name, part: rows }));
  return useLive(selected, () => initial, {});
}

function members(
  name: Source<string | undefined>,
  state: Source<unknown> = undefined,
  { initial, ...options }: MemberOptions<readonly Member[]> = {},
): LiveStore<Live<readonly Member[]> & { self: Member | undefined }> {
  const { store } = useScope();
  const names = storeOf(name);
  const texts = derived(storeOf(state), stateText);
  let joining = new Joining(store, get(names));
  const refused = writable<Live<unknown>['error']>();
  whileMounted(names, (name) => {
    const now = (joining = new Joining(store, name));
    refused.set(undefined);
    const ignore = now.subscribe(() => refused.set(now.error));
    const stop = texts.subscribe((text) => now.show(text, options));
    return () => {
      stop();
      ignore();
      now.show(undefined);
    };
  });
  const list = useLive(derived(names, (name) => ({ kind: MEMBERS, name, part: allMembers })), () => initial, {});
  const own = useLive(derived(names, (name) => ({ kind: MEMBERS, name, part: selfMember })), () => undefined, {});
  const shown = derived([list, own, refused], ([live, { value: self }, error]) => ({
    ...live,
    self,
    error: live.error ?? error,
    retry: () => joining.retry(),
  }));
  return { subscribe: shown.subscribe, ready: list.ready };
}

function presence(first: Source<string | undefined> | LiveOptions<Online> = {}, second: LiveOptions<Online> = {}): LiveStore<Live<Online>> {
  const isEveryone = typeof first === 'object' && !isStore(first);
  const names = storeOf<string | undefined>(isEveryone ? 'everyone' : (first as Source<string | undefined>));
  const selected = derived(names, (name) => ({ kind: presenceKind(!isEveryone), name, part: (online: Online) => online }));
  const { initial } = isEveryone ? (first as LiveOptions<Online>) : second;
  return useLive(selected, () => initial, {});
}

function event(name: Source<string | undefined>, callback: EventHandlers['callback'], options: EventOptions = {}): (payload?: unknown) => void {
  const { client } = useScope();
  const names = storeOf(name);
  whileMounted(names, (name) => followEvent(client, name, () => ({ ...options, callback })));
  return (payload) => publish(client, get(names), payload);
}

function rpc(name: Source<string>): Readable<Progress<unknown> & { call: Calls['call'] }> {
  const { client } = useScope();
  const names = storeOf(name);
  let calls = new Calls(client, get(names));
  const shown = (): Progress<unknown> & { call: Calls['call'] } => ({ ...calls.progress, call: (...args) => calls.call(...args) });
  const { subscribe, set } = writable(shown());
  whileMounted(names, (name) => {
    if (name !== calls.name) calls = new Calls(client, name);
    set(shown());
    return calls.subscribe(() => set(shown()));
  });
  return { subscribe };
}

function providing(name: Source<string | undefined>, answer: AnswerHandlers['answer'], options: ProvideOptions = {}): void {
  const { client } = useScope();
  whileMounted(storeOf(name), (name) => answerCalls(client, name, () => ({ ...options, answer })));
}

// The functions for any name, with `unknown` values; `hooks` returns the functions of an app. Bundlers can drop each of them.
export const provideTidewire = provide as unknown as Hooks['provideTidewire'];
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
