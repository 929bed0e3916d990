// Lists: their entries while the component is mounted, and changes of them. A separate entry, `@tidewire/react/lists`.

import type { Schema } from '@tidewire/client';
import type { ListNames } from '@tidewire/client/lists';
import { entries, listEdits, recordKind, type EntryIn as Entry, type ListEdits, type Live, type Ready } from '@tidewire/client/store';
import { useMemo } from 'react';
import type { Suspended } from './hooks.js';
import { useLive, type LiveOptions } from './live.js';
import { useScope } from './provider.js';

export type { ListEdits };

export interface ListHooks<App extends Schema = {}> {
  /** The entries of a list, and its changes. If there is no such list, it is created. Without a name, no list is opened. */
  useList<Name extends ListNames<App>>(
    name: Name,
    options: LiveOptions<ReadonlyArray<Entry<App, Name>>> & Suspended,
  ): Ready<ReadonlyArray<Entry<App, Name>>> & ListEdits<Entry<App, Name>>;
  useList<Name extends ListNames<App>>(
    name: Name | undefined,
    options?: LiveOptions<ReadonlyArray<Entry<App, Name>>>,
  ): Live<ReadonlyArray<Entry<App, Name>>> & ListEdits<Entry<App, Name>>;
}

const untyped = { useList: useEntries } as unknown as ListHooks;

/** The hook for any name; `listHooks` returns the hook of an app. */
export const useList: ListHooks['useList'] = untyped.useList;

/** The hook, typed by the schema of an app like its client. */
export function listHooks<App extends Schema = {}>(): ListHooks<App> {
  return untyped as unknown as ListHooks<App>;
}

function useEntries(name: string | undefined, options: LiveOptions<readonly string[]> = {}): Live<readonly string[]> & ListEdits<string> {
  const { store } = useScope();
  const live = useLive(recordKind(), name, options, entries);
  const edits = useMemo(() => listEdits(() => ({ store, name })), [store, name]);
  return useMemo(() => ({ ...live, ...edits }), [live, edits]);
}
