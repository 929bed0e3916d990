// Live queries: their rows while the component is mounted. A separate entry, `@tidewire/react/queries`.

import type { Schema } from '@tidewire/client';
import type { Collections, QueryInput, Row, WholeQuery } from '@tidewire/client/live-query';
import { QUERY, queryName, rows, type Live, type PartsIn, type Ready, type RowsIn } from '@tidewire/client/store';
import type { Suspended } from './hooks.js';
import { useLive, type LiveOptions } from './live.js';

export type { QueryInput, Row };

export interface QueryHooks<App extends Schema = {}> {
  /**
   * The records of a collection that a query selects, in order. The query may be a new object in each render. Without a collection, there
   * is no request.
   */
  useQuery<Collection extends Collections<App>>(
    collection: Collection,
    query: WholeQuery,
    options: LiveOptions<RowsIn<App, Collection>> & Suspended,
  ): Ready<RowsIn<App, Collection>>;
  useQuery<Collection extends Collections<App>>(
    collection: Collection | undefined,
    query?: WholeQuery,
    options?: LiveOptions<RowsIn<App, Collection>>,
  ): Live<RowsIn<App, Collection>>;
  useQuery<Collection extends Collections<App>>(
    collection: Collection,
    query: QueryInput,
    options: LiveOptions<PartsIn<App, Collection>> & Suspended,
  ): Ready<PartsIn<App, Collection>>;
  useQuery<Collection extends Collections<App>>(
    collection: Collection | undefined,
    query: QueryInput,
    options?: LiveOptions<PartsIn<App, Collection>>,
  ): Live<PartsIn<App, Collection>>;
}

const untyped = { useQuery: useRows } as unknown as QueryHooks;

/** The hook for any collection; `queryHooks` returns the hook of an app. */
export const useQuery: QueryHooks['useQuery'] = untyped.useQuery;

/** The hook, typed by the schema of an app like its client. */
export function queryHooks<App extends Schema = {}>(): QueryHooks<App> {
  return untyped as unknown as QueryHooks<App>;
}

function useRows(collection: string | undefined, query?: QueryInput, options: LiveOptions<readonly Row[]> = {}): Live<readonly Row[]> {
  // The name is a text, so an equal query is the same name.
  return useLive(QUERY, queryName(collection, query), options, rows);
}
