// Queries as the server evaluates them, for local copies of records: `import { Query } from '@tidewire/client/query'`. The contract is
// `spec/query.md`; the same vectors test both sides.

import { LIMITS, byteLength, refuse, member } from './query/error.js';
import { isObject } from './query/order.js';
import type { QueryDocument } from './query/path.js';
import { parseProjection, type SelectInput } from './query/projection.js';
import { parseSelector } from './query/selector.js';
import { parseSort, type Compare, type SortInput } from './query/sort.js';

export { QueryError, type QueryErrorCode } from './query/error.js';
export type { QueryDocument } from './query/path.js';
export type { SelectInput } from './query/projection.js';
export type { SortInput } from './query/sort.js';

/** A query before it is parsed. Without `where` it selects all records; with `where: null` or `undefined` it selects none. */
export interface QueryInput {
  readonly where?: Readonly<Record<string, unknown>> | string | null | undefined;
  readonly sort?: SortInput;
  readonly limit?: number;
  readonly offset?: number;
  readonly select?: SelectInput;
}

/** A parsed query. */
export class Query {
  /** Whether the query selects the record. */
  readonly matches: (document: QueryDocument) => boolean;
  /** The order of the result; the id decides between records that are equal otherwise. */
  readonly compare: Compare;
  /** The part of a record's value that the query returns. */
  readonly project: (value: unknown) => unknown;
  readonly limit: number | undefined;
  readonly offset: number;

  /** Throws a `QueryError` that names the refused part. */
  constructor(input: QueryInput) {
    const query: unknown = input;
    if (!isObject(query)) refuse('malformed', '', 'query is not an object; write {"where": selector}');
    for (const key of Object.keys(query)) {
      if (!['where', 'sort', 'limit', 'offset', 'select'].includes(key)) {
        refuse('malformed', member('', key), `query has the unknown key "${key}"; use where, sort, limit, offset and select`);
      }
    }
    if (nesting(query) > LIMITS.nesting + 1) refuse('too-large', '', `selector nests deeper than ${LIMITS.nesting}; flatten it`);
    if (byteLength(JSON.stringify(query)) > LIMITS.queryBytes) refuse('too-large', '', `query has more than ${LIMITS.queryBytes} bytes; shorten it`);
    this.matches = 'where' in query ? parseSelector(query.where, '/where') : () => true;
    this.compare = parseSort(query.sort, '/sort');
    this.limit = 'limit' in query ? count(query.limit, 'limit') : undefined;
    this.offset = 'offset' in query ? count(query.offset, 'offset') : 0;
    this.project = parseProjection(query.select, '/select');
  }

  /** The records that the query selects, in order, after the offset and up to the limit. Their values are not projected. */
  run<Document extends QueryDocument>(documents: Iterable<Document>): Document[] {
    const selected = [...documents].filter(this.matches).sort(this.compare);
    return selected.slice(this.offset, this.limit === undefined ? undefined : this.offset + this.limit);
  }
}

function count(value: unknown, name: 'limit' | 'offset'): number {
  if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > LIMITS[name]) {
    refuse('bad-limit', `/${name}`, `${name} is not an integer from 0 to ${LIMITS[name]}; use one`);
  }
  return value as number;
}

/** Objects and arrays within one another. It stops where the limit is passed. */
function nesting(value: unknown, depth = 0): number {
  if (typeof value !== 'object' || value === null || depth > LIMITS.nesting + 1) return depth;
  return Object.values(value).reduce((deepest: number, inner) => Math.max(deepest, nesting(inner, depth + 1)), depth + 1);
}
