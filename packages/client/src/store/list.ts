// Lists: the entries that components show, and their changes. A component follows the list's record, so it shares the subscription with all
// components that show the record.

import { entriesOf, openList, type ListHandle } from '../lists.js';
import type { OpenRecord } from './record.js';
import type { Store } from './shared.js';

/** The changes of a list. They show at once, in all components, and are fulfilled when they are on the server's disk. */
export type ListEdits<Entry extends string> = Pick<ListHandle<Entry>, 'add' | 'remove' | 'set'>;

/** The part of a record that a component of a list shows. */
export const entries = ({ value }: OpenRecord): readonly string[] => entriesOf(value);

/** The list that a component shows and changes. */
export interface ListTarget {
  store: Store;
  name: string | undefined;
}

/**
 * The changes of the list that `target` returns at the time of the change. Each opens the list by itself, and holds it open until the change
 * is made: after a loss it may have to be made again.
 */
export function listEdits(target: () => ListTarget): ListEdits<string> {
  const on = async (act: (list: ListHandle) => Promise<void>): Promise<void> => {
    const { store, name } = target();
    if (name === undefined) throw new Error('there is no list to change: useList has no name');
    await store.withRecords(true, async (records) => {
      const list = openList(records, name);
      try {
        await act(list);
      } finally {
        list.close();
      }
    });
  };
  return {
    add: (entry, index) => on((list) => list.add(entry, index)),
    remove: (entry, index) => on((list) => list.remove(entry, index)),
    set: (all) => on((list) => list.set(all)),
  };
}
