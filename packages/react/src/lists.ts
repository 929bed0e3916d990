// Lists: their entries while the component is mounted, and changes of them. A separate entry, `@tidewire/react/lists`.

import type { Client, RecordsOf, Schema, ValueOf } from '@tidewire/client';
import { entriesOf, openList, type EntryOf, type ListHandle, type ListNames } from '@tidewire/client/lists';
import { useMemo } from 'react';
import type { Ready, Suspended } from './hooks.js';
import { useLive, type Live, type LiveOptions } from './live.js';
import { useClient } from './provider.js';
import { RECORD, type Open } from './record.js';

/** The changes of a list. They show at once, in all components, and are fulfilled when they are on the server's disk. */
export type ListEdits<Entry extends string> = Pick<ListHandle<Entry>, 'add' | 'remove' | 'set'>;

/** The type of the entries of an app's list. */
type Entry<App, Name> = Name extends ListNames<App> ? EntryOf<ValueOf<RecordsOf<App>, Name>> : never;

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

const entries = ({ value }: Open): readonly string[] => entriesOf(value);

function useEntries(name: string | undefined, options: LiveOptions<readonly string[]> = {}): Live<readonly string[]> & ListEdits<string> {
  const client = useClient();
  // The hook follows the record, so that it shares the subscription with all components that show the record.
  const live = useLive(RECORD, name, options, entries);
  const edits = useMemo(() => editsOf(client, name), [client, name]);
  return useMemo(() => ({ ...live, ...edits }), [live, edits]);
}

/** Each change opens the list by itself, and holds it open until the change is made: after a loss it may have to be made again. */
function editsOf(client: Client, name: string | undefined): ListEdits<string> {
  const on = async (act: (list: ListHandle) => Promise<void>): Promise<void> => {
    if (name === undefined) throw new Error('there is no list to change: useList has no name');
    const list = openList(client.record, name);
    try {
      await act(list);
    } finally {
      list.close();
    }
  };
  return {
    add: (entry, index) => on((list) => list.add(entry, index)),
    remove: (entry, index) => on((list) => list.remove(entry, index)),
    set: (all) => on((list) => list.set(all)),
  };
}
