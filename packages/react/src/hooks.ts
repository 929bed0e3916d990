// The hooks with the types of an app. Their code is in the other files, where names and values have no types.

import type {
  AnyPath,
  Argument,
  Client,
  EventContext,
  EventsOf,
  Names,
  Optional,
  RecordsOf,
  RequestOptions,
  Result,
  RpcsOf,
  Schema,
  ValueAt,
  ValueOf,
} from '@tidewire/client';
import type { ProvideOptions, RpcContext } from '@tidewire/client/provide';
import type { ReactElement } from 'react';
import { useEvent, type EventOptions } from './event.js';
import type { Live, LiveOptions } from './live.js';
import { usePresence } from './presence.js';
import { TidewireProvider, useClient, useConnection, type Connection, type ProviderProps } from './provider.js';
import { useRecord, type Edits, type RecordOptions } from './record.js';
import { useProvide, useRpc, type Progress } from './rpc.js';

/** The value that a hook shows of a document: the value at a path, or the whole document. */
export type Part<Doc, At> = [At] extends [undefined] ? Doc : ValueAt<Doc, At> | undefined;

/** A value that is never undefined, because the component is suspended until the value has arrived. */
export type Ready<Value> = Live<Value> & { readonly value: Value };
export type Suspended = { suspense: true };

type DocOf<App, Name> = Name extends Names<RecordsOf<App>> ? ValueOf<RecordsOf<App>, Name> : never;
type Place<Doc> = AnyPath<Doc> | undefined;

export interface Hooks<App extends Schema = {}> {
  /** Gives a client to the components below, and connects it in the browser. The app owns the client and closes it. */
  TidewireProvider(props: ProviderProps<Client<App>>): ReactElement;

  /** The client of the provider, for functions without a hook. */
  useClient(): Client<App>;

  /** The state of the connection. */
  useConnection(): Connection;

  /**
   * A record or a part of it, and its edits. If there is no such record, it is created, unless the option `create` is false. Without a
   * name, no record is opened.
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

  /** Calls the last `callback` with every event while the component is mounted; returns a function that publishes. */
  useEvent<Name extends Names<EventsOf<App>>>(
    name: Name | undefined,
    callback: (payload: ValueOf<EventsOf<App>, Name>, context: EventContext) => void,
    options?: EventOptions,
  ): (...payload: Optional<ValueOf<EventsOf<App>, Name>, never>) => void;

  /** Whether a user is online. */
  usePresence(user: string, options: LiveOptions<boolean> & Suspended): Ready<boolean>;
  usePresence(user: string, options?: LiveOptions<boolean>): Live<boolean>;
  /** The ids of all other users that are online. */
  usePresence(options: LiveOptions<readonly string[]> & Suspended): Ready<readonly string[]>;
  usePresence(options?: LiveOptions<readonly string[]>): Live<readonly string[]>;

  /** Calls an rpc, and shows the progress of the last call. */
  useRpc<Name extends Names<RpcsOf<App>>>(
    name: Name,
  ): Progress<Result<ValueOf<RpcsOf<App>, Name>>> & {
    call(...args: Optional<Argument<ValueOf<RpcsOf<App>, Name>>, RequestOptions>): Promise<Result<ValueOf<RpcsOf<App>, Name>>>;
  };

  /** Answers calls with the last `answer` while the component is mounted. */
  useProvide<Name extends Names<RpcsOf<App>>>(
    name: Name | undefined,
    answer: (argument: Argument<ValueOf<RpcsOf<App>, Name>>, context: RpcContext) => Result<ValueOf<RpcsOf<App>, Name>> | Promise<Result<ValueOf<RpcsOf<App>, Name>>>,
    options?: ProvideOptions,
  ): void;
}

/** The hooks, typed by the schema of an app like its client. All typed versions are the same functions and share one context. */
export function hooks<App extends Schema = {}>(): Hooks<App> {
  const untyped = { TidewireProvider, useClient, useConnection, useRecord, useEvent, usePresence, useRpc, useProvide };
  return untyped as unknown as Hooks<App>;
}
