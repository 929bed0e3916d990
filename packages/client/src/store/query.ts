// Live queries: the rows that components show. Components with equal queries share one.

import { openQuery, type Row } from '../live-query.js';
import { queryText } from '../live-query/text.js';
import type { QueryInput } from '../query.js';
import type { Kind } from './shared.js';

/** The rows of a query, whose name `queryName` has made. */
export const QUERY: Kind<readonly Row[]> = {
  start(client, name, tell) {
    const [collection, text] = JSON.parse(name) as [string, string];
    const query = openQuery(client.record, collection, JSON.parse(text) as QueryInput, {
      onEnd: (error) => tell({ value: undefined, isReady: false, error }),
      onUnavailable: (error) => tell({ error }),
    });
    const show = (value: readonly Row[]): void => tell({ value, isReady: true, error: undefined });
    query.subscribe(show);
    if (query.rows) show(query.rows);
    else if (query.error) tell({ error: query.error });
    query.ready.catch((error) => tell({ error }));
    return () => query.close();
  },
};

/** The name of a query: equal queries have the same one. Without a collection there is no query. */
export function queryName(collection: string | undefined, query: QueryInput = {}): string | undefined {
  return collection === undefined ? undefined : JSON.stringify([collection, queryText(query)]);
}

export const rows = (all: readonly Row[]): readonly Row[] => all;
