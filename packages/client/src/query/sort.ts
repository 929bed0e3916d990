// The order of a result: sort keys, of which the id is always the last.

import { LIMITS, member, refuse } from './error.js';
import { compare, compareText, isObject } from './order.js';
import { parsePath, type Path, type QueryDocument } from './path.js';

/** `{path: 1 | -1}` in the order of its keys, or paths and pairs of path and direction. */
export type SortInput = Readonly<Record<string, 1 | -1>> | ReadonlyArray<string | readonly [string, 'asc' | 'desc']>;
export type Compare = (left: QueryDocument, right: QueryDocument) => number;

/** Below null, which is the value of a missing field. */
const EMPTY = Symbol('empty array');

export function parseSort(sort: unknown, at: string): Compare {
  const entries: Array<[path: string, at: string, descending: boolean]> = [];
  if (Array.isArray(sort)) {
    sort.forEach((entry: unknown, index) => {
      const [path, direction] = Array.isArray(entry) && entry.length === 2 ? (entry as unknown[]) : [entry, 'asc'];
      if (typeof path !== 'string' || (direction !== 'asc' && direction !== 'desc')) {
        return refuse('bad-sort', member(at, index), 'entry is neither a path nor [path, "asc" or "desc"]; write one of them');
      }
      entries.push([path, member(at, index), direction === 'desc']);
    });
  } else if (isObject(sort)) {
    for (const [path, direction] of Object.entries(sort)) {
      if (direction !== 1 && direction !== -1) refuse('bad-sort', member(at, path), 'direction is not 1 or -1; use one of them');
      entries.push([path, member(at, path), direction === -1]);
    }
  } else if (sort !== undefined && sort !== null) refuse('bad-sort', at, 'sort is neither an object nor an array; write {"path": 1} or ["path"]');
  if (entries.length > LIMITS.sortKeys) refuse('bad-sort', at, `sort has ${entries.length} keys; use at most ${LIMITS.sortKeys}`);
  const keys = entries.map(([path, at, descending]) => ({ path: parsePath(path, at, false, true), descending }));
  return (left, right) => {
    for (const { path, descending } of keys) {
      const order = compareKeys(keyOf(path, left, descending), keyOf(path, right, descending));
      if (order !== 0) return descending ? -order : order;
    }
    return compareText(left.id, right.id);
  };
}

function compareKeys(left: unknown, right: unknown): number {
  if (left === EMPTY || right === EMPTY) return Number(right === EMPTY) - Number(left === EMPTY);
  return compare(left, right);
}

/** The least value of the branches, descending the greatest. */
function keyOf(path: Path, document: QueryDocument, descending: boolean): unknown {
  const values: unknown[] = [];
  path(document, (value, expands) => {
    if (!expands) values.push(value);
    else if ((value as unknown[]).length === 0) values.push(EMPTY);
    else values.push(...(value as unknown[]));
    return false;
  });
  if (values.length === 0) return undefined;
  return values.reduce((best, value) => ((descending ? compareKeys(value, best) > 0 : compareKeys(value, best) < 0) ? value : best));
}
