// The hooks with the types of an app. Their code is in the other files, where names and values have no types.

import type { Client, EventsOf, Names, RecordsOf, Result, RpcsOf, Schema, ValueOf } from '@tidewire/client';
import type { ProvideOptions } from '@tidewire/client/provide';
import type {
  Answer,
  Call,
  Connection,
  DocOf,
  Edits,
  EventOptions,
  Heard,
  Live,
  Part,
  Place,
  Progress,
  Publish,
  Ready,
  RecordOptions as Options,
  Sync,
} from '@tidewire/client/store';
import type { ReactElement } from 'react';
import { useEvent, useProvide, useRpc } from './calls.js';
import { useEdits, usePresence, useRecord, type LiveOptions } from './live.js';
import { TidewireProvider, useClient, useConnection, useSync, type ProviderProps } from './provider.js';

export type Suspended = { suspense: true };
export type RecordOptions<Doc, At, Shown> = Options<Doc, At, Shown> & LiveOptions<Shown>;

export interface Hooks<App extends Schema = {}> {
  /** Gives a client to the components below, and connects it in the browser. The app owns the client and closes it. */
  TidewireProvider(props: ProviderProps<Client<App>>): ReactElement;

  /** The client of the provider, for functions without a hook. */
  useClient(): Client<App>;

  /** The state of the connection. */
  useConnection(): Connection;

  /** The state of offline records, the edits that wait, and the ones that the server will not make. Needs the provider's option `offline`. */
  useSync(): Sync;

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

  /** Returns a function that returns the edits of a record by its name: for records that the component does not show. */
  useEdits(): <Name extends Names<RecordsOf<App>>>(name: Name) => Edits<DocOf<App, Name>>;

  /** Calls the last `callback` with every event while the component is mounted; returns a function that publishes. */
  useEvent<Name extends Names<EventsOf<App>>>(name: Name | undefined, callback: Heard<App, Name>, options?: EventOptions): Publish<App, Name>;

  /** Whether a user is online. */
  usePresence(user: string, options: LiveOptions<boolean> & Suspended): Ready<boolean>;
  usePresence(user: string, options?: LiveOptions<boolean>): Live<boolean>;
  /** The ids of all other users that are online. */
  usePresence(options: LiveOptions<readonly string[]> & Suspended): Ready<readonly string[]>;
  usePresence(options?: LiveOptions<readonly string[]>): Live<readonly string[]>;

  /** Calls an rpc, and shows the progress of the last call. */
  useRpc<Name extends Names<RpcsOf<App>>>(name: Name): Progress<Result<ValueOf<RpcsOf<App>, Name>>> & { call: Call<App, Name> };

  /** Answers calls with the last `answer` while the component is mounted. */
  useProvide<Name extends Names<RpcsOf<App>>>(name: Name | undefined, answer: Answer<App, Name>, options?: ProvideOptions): void;
}

/** The hooks, typed by the schema of an app like its client. All typed versions are the same functions and share one context. */
export function hooks<App extends Schema = {}>(): Hooks<App> {
  const untyped = { TidewireProvider, useClient, useConnection, useSync, useRecord, useEdits, useEvent, usePresence, useRpc, useProvide };
  return untyped as unknown as Hooks<App>;
}
