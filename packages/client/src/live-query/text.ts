// A query as the client sends it. Equal queries have the same text, so that they share a subscription.

import { TidewireError } from '../error.js';
import type { QueryInput } from '../query.js';

/**
 * The JSON of a query, with sorted keys where their order has no meaning. A `where` of undefined becomes null, which selects nothing. Throws
 * for a query with a value that JSON lacks: without it, the query would select more.
 */
export function queryText(query: QueryInput): string {
  if (typeof query !== 'object' || query === null || Array.isArray(query)) throw invalid('the query must be an object, such as { where: { done: false } }');
  const given = Object.entries({ ...query, ...('where' in query && { where: query.where ?? null }) });
  const members = given.filter(([, value]) => value !== undefined).sort(([one], [other]) => (one < other ? -1 : 1));
  try {
    return `{${members.map(([key, value]) => `${JSON.stringify(key)}:${written(value, key !== 'sort')}`).join()}}`;
  } catch (cause) {
    throw cause instanceof TidewireError ? cause : invalid(`the query can't be written as JSON: ${(cause as Error).message}`, cause);
  }
}

/** Whether the query of this text returns whole documents. */
export function isWhole(text: string): boolean {
  return !('select' in (JSON.parse(text) as object));
}

function written(value: unknown, isSorted: boolean): string {
  return JSON.stringify(value, (key, inner: unknown) => {
    const isMissing = inner === undefined || typeof inner === 'function' || typeof inner === 'symbol' || Number.isNaN(inner) || inner === Infinity || inner === -Infinity;
    if (isMissing) throw invalid(`the query has the value ${String(inner)} at "${key}", which JSON lacks: remove it or use null`);
    if (inner instanceof RegExp) throw invalid(`the query has a regular expression at "${key}": write { $regex: ${JSON.stringify(inner.source)} }`);
    if (!isSorted || typeof inner !== 'object' || inner === null || Array.isArray(inner)) return inner;
    return Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)));
  });
}

function invalid(message: string, cause?: unknown): TidewireError {
  return new TidewireError('INVALID_ARGUMENT', message, { cause });
}
