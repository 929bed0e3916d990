// Vue composables for Tidewire. Importing this module only defines names, without side effects. The app creates the client.

import type { AnyPath, Client, EventsOf, Names, RecordsOf, RequestOptions, Result, RpcsOf, Schema, ScopesOf, TidewireError, ValueOf } from '@tidewire/client';
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
  missingOnServer,
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
  type Kind,
  type ListEdits,
  type LiveOptions,
  type MembersIn,
  type Online,
  type Part,
  type PartsIn,
  type Place,
  type Progress,
  type Publish,
  type RecordOptions,
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
  computed,
  defineComponent,
  inject,
  isRef,
  onMounted,
  provide,
  shallowRef,
  ssrContextKey,
  toRaw,
  toValue,
  watch,
  watchEffect,
  type ComputedRef,
  type InjectionKey,
  type MaybeRefOrGetter,
  type PropType,
  type ShallowRef,
  type VNode,
  type WatchSource,
} from 'vue';

export type { Connection, Edits, EventOptions, ListEdits, LiveOptions, Part, Progress, QueuedEdit, RecordOptions, Sync } from '@tidewire/client/store';

/** Each property of `Values` as a read-only ref. */
export type Refs<Values> = { readonly [Key in keyof Values]: ComputedRef<Values[Key]> };

/** The current state of a value that the server sends. */
export interface Live<Value> extends Refs<State<Value>> {
  /** Asks the server again, after an error. */
  retry(): void;
  /**
   * Fulfilled when the value has arrived, rejected if there is an error instead. `await` it in the setup of a component below
   * `<Suspense>`.
   */
  ready(): Promise<void>;
}

export interface ProviderProps<AnyClient> extends ScopeOptions {
  client: AnyClient;
}

/** A component, as the types of templates and of `h` read it. */
type Provider<Props> = new () => { $props: Props; $slots: { default?(): VNode[] } };

export interface Hooks<App extends Schema = {}> {
  /** Gives a client to the components in its slot, and connects it in the browser. The app owns the client and closes it. */
  TidewireProvider: Provider<ProviderProps<Client<App>>>;

  /** The client of the provider, for functions without a composable. */
  useClient(): Client<App>;

  /** The state of the connection. */
  useConnection(): Refs<Connection>;

  /** The state of offline records, the edits that wait, and the ones that the server will not make. Needs the provider's option `offline`. */
  useSync(): Refs<Omit<Sync, 'keep' | 'drop'>> & Pick<Sync, 'keep' | 'drop'>;

  /**
   * A record or a part of it, and its edits. If there is no such record, it is created, unless the option `create` is false. Without a
   * name, no record is opened.
   */
  useRecord<Name extends Names<RecordsOf<App>>, At extends Place<DocOf<App, Name>> = undefined>(
    name: MaybeRefOrGetter<Name | undefined>,
    options?: MaybeRefOrGetter<RecordOptions<DocOf<App, Name>, At, Part<DocOf<App, Name>, At>>>,
  ): Live<Part<DocOf<App, Name>, At>> & Edits<DocOf<App, Name>>;

  /** Returns a function that returns the edits of a record by its name: for records that the component does not show. */
  useEdits(): <Name extends Names<RecordsOf<App>>>(name: Name) => Edits<DocOf<App, Name>>;

  /** Calls `callback` with every event while the component is mounted; returns a function that publishes. */
  useEvent<Name extends Names<EventsOf<App>>>(name: MaybeRefOrGetter<Name | undefined>, callback: Heard<App, Name>, options?: EventOptions): Publish<App, Name>;

  /** Whether a user is online. */
  usePresence(user: MaybeRefOrGetter<string | undefined>, options?: LiveOptions<boolean>): Live<boolean>;
  /** The ids of all other users that are online. */
  usePresence(options?: LiveOptions<readonly string[]>): Live<readonly string[]>;

  /** Calls an rpc, and shows the progress of the last call. */
  useRpc<Name extends Names<RpcsOf<App>>>(name: MaybeRefOrGetter<Name>): Refs<Progress<Result<ValueOf<RpcsOf<App>, Name>>>> & { call: Call<App, Name> };

  /** Answers calls while the component is mounted. */
  useProvide<Name extends Names<RpcsOf<App>>>(name: MaybeRefOrGetter<Name | undefined>, answer: Answer<App, Name>, options?: ProvideOptions): void;
}

export interface ListHooks<App extends Schema = {}> {
  /** The entries of a list, and its changes. If there is no such list, it is created. Without a name, no list is opened. */
  useList<Name extends ListNames<App>>(
    name: MaybeRefOrGetter<Name | undefined>,
    options?: LiveOptions<ReadonlyArray<EntryIn<App, Name>>>,
  ): Live<ReadonlyArray<EntryIn<App, Name>>> & ListEdits<EntryIn<App, Name>>;
}

export interface QueryHooks<App extends Schema = {}> {
  /** The records of a collection that a query selects, in order. Without a collection, there is no request. */
  useQuery<Collection extends Collections<App>>(
    collection: MaybeRefOrGetter<Collection | undefined>,
    query?: MaybeRefOrGetter<WholeQuery>,
    options?: LiveOptions<RowsIn<App, Collection>>,
  ): Live<RowsIn<App, Collection>>;
  useQuery<Collection extends Collections<App>>(
    collection: MaybeRefOrGetter<Collection | undefined>,
    query: MaybeRefOrGetter<QueryInput>,
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
    scope: MaybeRefOrGetter<Name | undefined>,
    state?: MaybeRefOrGetter<StateIn<App, Name> | undefined>,
    options?: MemberOptions<MembersIn<App, Name>>,
  ): Live<MembersIn<App, Name>> & Refs<SelfIn<App, Name>>;
}

/** The composables, typed by the schema of an app like its client. All typed versions are the same functions and share one key. */
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

const SCOPE: InjectionKey<ComputedRef<Scope>> = Symbol('tidewire');

const Component = /* @__PURE__ */ defineComponent({
  name: 'TidewireProvider',
  props: {
    client: { type: Object as PropType<Client>, required: true },
    autoConnect: { type: Boolean, default: true },
    keepMs: Number,
    offline: { type: [Boolean, Object] as PropType<ScopeOptions['offline']>, default: false },
  },
  setup(props, { slots }) {
    const scope = computed(() => scopeOf(toRaw(props.client), props));
    provide(SCOPE, scope);
    onMounted(() => watchEffect((onCleanup) => onCleanup(scope.value.mount())));
    return () => slots.default?.();
  },
});

function useScope(): ComputedRef<Scope> {
  const scope = inject(SCOPE, undefined);
  if (!scope) throw new Error('no <TidewireProvider :client="..."> is above this component');
  return scope;
}

function client(): Client {
  return useScope().value.client;
}

/** Calls `start` when the component is mounted and after each change of `sources`; before that and at the end, calls what it returned. */
function whileMounted(sources: WatchSource[], start: () => () => void): void {
  onMounted(() => void watch(sources, (_now, _before, onCleanup) => onCleanup(start()), { immediate: true, flush: 'sync' }));
}

function refsOf<Values extends object>(source: ShallowRef<Values>, keys: ReadonlyArray<keyof Values>): Refs<Values> {
  return Object.fromEntries(keys.map((key) => [key, computed(() => source.value[key])])) as Refs<Values>;
}

function connection(): Refs<Connection> {
  const scope = useScope();
  const shown = shallowRef(NOT_CONNECTED);
  whileMounted([scope], () => {
    const read = connectionReader(scope.value.client);
    const show = (): void => void (shown.value = read());
    show();
    return scope.value.client.onState(show);
  });
  return refsOf(shown, ['state', 'error', 'loginData']);
}

function sync(): ReturnType<Hooks['useSync']> {
  const scope = useScope();
  const shown = shallowRef(STARTING);
  offlineOf(scope.value);
  whileMounted([scope], () => {
    const { read, subscribe } = offlineOf(scope.value);
    const show = (): void => void (shown.value = read());
    show();
    return subscribe(show);
  });
  const refs = refsOf(shown, ['mode', 'reason', 'isLeader', 'connection', 'pendingCount', 'queue', 'conflicts']);
  return { ...refs, keep: (conflict) => shown.value.keep(conflict), drop: (conflict) => shown.value.drop(conflict) };
}

/** The values that a composable shows, as functions that track the refs that they read. */
interface Selected<Value, Part> {
  kind(): Kind<Value>;
  name(): string | undefined;
  part(): (value: Value) => Part | undefined;
  initial(): Part | undefined;
}

function useLive<Value, Part>({ kind, name, part, initial }: Selected<Value, Part>): Live<Part> {
  const scope = useScope();
  const isOnServer = inject(ssrContextKey, undefined) !== undefined;
  const selection = (): Selection<Value, Part> => ({ kind: kind(), name: name(), part: part() });
  const state = shallowRef(reader(scope.value.store, selection())());
  whileMounted([scope, kind, name, part], () => follow(scope.value, selection(), (changed) => void (state.value = changed)));
  return {
    ...refsOf(state, ['isReady', 'error']),
    value: computed(() => shownValue(state.value, initial())),
    retry() {
      const selected = name();
      if (selected !== undefined) scope.value.store.find(kind(), selected)?.retry();
    },
    async ready() {
      const selected = name();
      if (initial() !== undefined || selected === undefined) return;
      if (isOnServer) throw missingOnServer(selected);
      await arrival(scope.value, selection());
    },
  };
}

function record(
  name: MaybeRefOrGetter<string | undefined>,
  options: MaybeRefOrGetter<RecordOptions<unknown, AnyPath<unknown> | undefined, unknown>> = {},
): Live<unknown> & Edits<unknown> {
  const scope = useScope();
  const text = computed(() => pathText(toValue(options).path));
  const part = computed(() => partAt(text.value));
  const target = () => ({ store: scope.value.store, name: toValue(name), create: toValue(options).create });
  const live = useLive({
    kind: () => recordKind(toValue(options).create),
    name: () => toValue(name),
    part: () => part.value,
    initial: () => toValue(options).initial,
  });
  onMounted(() => watchEffect(() => mergeBy(target(), toValue(options).merge)));
  return { ...live, ...recordEdits(target) };
}

function editing(): (name: string) => Edits<unknown> {
  const scope = useScope();
  return (name) => recordEdits(() => ({ store: scope.value.store, name }));
}

function list(name: MaybeRefOrGetter<string | undefined>, { initial }: LiveOptions<readonly string[]> = {}): Live<readonly string[]> & ListEdits<string> {
  const scope = useScope();
  const live = useLive({ kind: recordKind, name: () => toValue(name), part: () => entries, initial: () => initial });
  return { ...live, ...listEdits(() => ({ store: scope.value.store, name: toValue(name) })) };
}

function query(
  collection: MaybeRefOrGetter<string | undefined>,
  given: MaybeRefOrGetter<QueryInput> = {},
  { initial }: LiveOptions<readonly Row[]> = {},
): Live<readonly Row[]> {
  const name = computed(() => queryName(toValue(collection), toValue(given)));
  return useLive({ kind: () => QUERY, name: () => name.value, part: () => rows, initial: () => initial });
}

function members(
  name: MaybeRefOrGetter<string | undefined>,
  state?: MaybeRefOrGetter<unknown>,
  { initial, ...options }: MemberOptions<readonly Member[]> = {},
): Live<readonly Member[]> & Refs<{ self: Member | undefined }> {
  const scope = useScope();
  const joining = computed(() => new Joining(scope.value.store, toValue(name)));
  const text = computed(() => stateText(toValue(state)));
  const refused = shallowRef<TidewireError>();
  whileMounted([joining], () => {
    const now = joining.value;
    const show = (): void => void (refused.value = now.error);
    show();
    const ignore = now.subscribe(show);
    return () => {
      ignore();
      now.show(undefined);
    };
  });
  whileMounted([joining, text], () => {
    joining.value.show(text.value, options);
    return () => {};
  });
  const live = useLive({ kind: () => MEMBERS, name: () => toValue(name), part: () => allMembers, initial: () => initial });
  const { value: self } = useLive({ kind: () => MEMBERS, name: () => toValue(name), part: () => selfMember, initial: () => undefined });
  return { ...live, self, error: computed(() => live.error.value ?? refused.value), retry: () => joining.value.retry() };
}

const all = (online: Online): Online => online;

function presence(first: MaybeRefOrGetter<string | undefined> | LiveOptions<Online> = {}, second: LiveOptions<Online> = {}): Live<Online> {
  const isEveryone = typeof first === 'object' && !isRef(first);
  const { initial } = isEveryone ? first : second;
  return useLive({ kind: () => presenceKind(!isEveryone), name: () => (isEveryone ? 'everyone' : toValue(first)), part: () => all, initial: () => initial });
}

function event(name: MaybeRefOrGetter<string | undefined>, callback: EventHandlers['callback'], options: EventOptions = {}): (payload?: unknown) => void {
  const scope = useScope();
  whileMounted([scope, () => toValue(name)], () => followEvent(scope.value.client, toValue(name), () => ({ ...options, callback })));
  return (payload) => publish(scope.value.client, toValue(name), payload);
}

function rpc(name: MaybeRefOrGetter<string>): Refs<Progress<unknown>> & { call(argument?: unknown, options?: RequestOptions): Promise<unknown> } {
  const scope = useScope();
  const calls = computed(() => new Calls(scope.value.client, toValue(name)));
  const progress = shallowRef(calls.value.progress);
  whileMounted([calls], () => {
    const show = (): void => void (progress.value = calls.value.progress);
    show();
    return calls.value.subscribe(show);
  });
  return { ...refsOf(progress, ['value', 'error', 'isRunning']), call: (argument, options) => calls.value.call(argument, options) };
}

function providing(name: MaybeRefOrGetter<string | undefined>, answer: AnswerHandlers['answer'], options: ProvideOptions = {}): void {
  const scope = useScope();
  whileMounted([scope, () => toValue(name)], () => answerCalls(scope.value.client, toValue(name), () => ({ ...options, answer })));
}

// The composables for any name, with `unknown` values; `hooks` returns the composables of an app. Bundlers can drop each of them.
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
