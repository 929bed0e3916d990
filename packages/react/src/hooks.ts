// The hooks with the types of an app. What they do stands in the other files, where names and values have no types.

import type {
  AnyPath,
  Argument,
  Client,
  EventContext,
  EventsOf,
  Names,
  Optional,
  ProvideOptions,
  RecordsOf,
  RequestOptions,
  Result,
  RpcContext,
  RpcsOf,
  Schema,
  ValueAt,
} from '@tidewire/client';
import type { ReactElement } from 'react';
import { useEvent, type EventOptions } from './event.js';
import type { Live, LiveOptions } from './live.js';
import { usePresence } from './presence.js';
import { TidewireProvider, useClient, useConnection, type Connection, type ProviderProps } from './provider.js';
import { useRecord, type Edits, type RecordOptions } from './record.js';
import { useProvide, useRpc, type Progress } from './rpc.js';

/** What a hook shows of a document: what stands at a path, or all. */
export type Part<Doc, At> = [At] extends [undefined] ? Doc : ValueAt<Doc, At> | undefined;

/** Something that is there: the component was suspended until then. */
export type Ready<Value> = Live<Value> & { readonly value: Value };
export type Suspended = { suspense: true };

type DocOf<App, Name> = Name extends Names<RecordsOf<App>> ? RecordsOf<App>[Name] : never;
type Place<Doc> = AnyPath<Doc> | undefined;

export interface Hooks<App extends Schema = {}> {
  /** Gives a client to the components below, and connects it in the browser. It stays the caller's, who closes it. */
  TidewireProvider(props: ProviderProps<Client<App>>): ReactElement;

  /** The client of the provider, for what has no hook. */
  useClient(): Client<App>;

  /** The state of the connection. */
  useConnection(): Connection;

  /**
   * A record, or a part of it, and its edits. It is created if there is none, unless the option `create` is false; without a name nothing
   * is opened.
   */
  useRecord<Name extends Names<RecordsOf<App>>, At extends Place<DocOf<App, Name>> = undefined>(
    name: Name,
    options: RecordOptions<DocOf<App, Name>, At, Part<DocOf<App, Name>, At>> & Suspended & { create: false },
  ): Ready<Part<DocOf<App, Name>, At> | undefined> & Edits<DocOf<App, Name>>;
  useRecord<Name extends Names<RecordsOf<App>>, At extends Place<DocOf<App, Name>> = undefined>(
    name: Name,
    options: RecordOptions<DocOf<App, Name>, At, Part<DocOf<App, Name>, At>> & Suspended,
  ): Ready<Part<DocOf<App, Name>, At>> & Edits<DocOf<App, Name>>;
  useRecord<Name extends Names<RecordsOf<App>>, At extends Place<DocOf<App, Name>> = undefined>(
    name: Name | undefined,
    options?: RecordOptions<DocOf<App, Name>, At, Part<DocOf<App, Name>, At>>,
  ): Live<Part<DocOf<App, Name>, At>> & Edits<DocOf<App, Name>>;

  /** Calls the last `callback` with every event while the component is shown; gives back a function that publishes. */
  useEvent<Name extends Names<EventsOf<App>>>(
    name: Name | undefined,
    callback: (payload: EventsOf<App>[Name], context: EventContext) => void,
    options?: EventOptions,
  ): (...payload: Optional<EventsOf<App>[Name], never>) => void;

  /** Whether a user is online. */
  usePresence(user: string, options: LiveOptions<boolean> & Suspended): Ready<boolean>;
  usePresence(user: string, options?: LiveOptions<boolean>): Live<boolean>;
  /** All other users who are online. */
  usePresence(options: LiveOptions<readonly string[]> & Suspended): Ready<readonly string[]>;
  usePresence(options?: LiveOptions<readonly string[]>): Live<readonly string[]>;

  /** Calls an rpc, and shows how the last call goes. */
  useRpc<Name extends Names<RpcsOf<App>>>(
    name: Name,
  ): Progress<Result<RpcsOf<App>[Name]>> & {
    call(...args: Optional<Argument<RpcsOf<App>[Name]>, RequestOptions>): Promise<Result<RpcsOf<App>[Name]>>;
  };

  /** Answers calls with the last `answer` while the component is shown. */
  useProvide<Name extends Names<RpcsOf<App>>>(
    name: Name | undefined,
    answer: (argument: Argument<RpcsOf<App>[Name]>, context: RpcContext) => Result<RpcsOf<App>[Name]> | Promise<Result<RpcsOf<App>[Name]>>,
    options?: ProvideOptions,
  ): void;
}

/** The hooks, typed by the schema of an app as its client is. All have one context: which interface types them does not matter to it. */
export function hooks<App extends Schema = {}>(): Hooks<App> {
  const untyped = { TidewireProvider, useClient, useConnection, useRecord, useEvent, usePresence, useRpc, useProvide };
  return untyped as unknown as Hooks<App>;
}
