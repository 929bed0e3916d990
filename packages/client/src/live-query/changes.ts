// The difference between two results of a query.

import type { Row } from '../live-query.js';
import { reuse } from '../path.js';

/** A change of a row. */
export interface QueryChange<Doc = unknown> {
  /** `moved`: the row is the same and has another index, maybe only because of other changes. */
  readonly kind: 'added' | 'changed' | 'moved' | 'removed';
  readonly row: Row<Doc>;
  /** The new index, or the one from which the row was removed. */
  readonly index: number;
}

/** The changes from `before` to `after`, removals first, the others in the order of `after`. */
export function changesBetween(before: readonly Row[], after: readonly Row[]): QueryChange[] {
  const { start, tail } = difference(before, after);
  // If rows were added or removed, the rows behind them have moved.
  const end = before.length === after.length ? after.length - tail : Infinity;
  const [old, now] = [placesOf(before, start, end), placesOf(after, start, end)];
  const changes: QueryChange[] = [];
  for (const [id, index] of old) if (!now.has(id)) changes.push({ kind: 'removed', row: before[index] as Row, index });
  for (const [id, index] of now) {
    const was = old.get(id);
    const row = after[index] as Row;
    const kind = was === undefined ? 'added' : before[was] !== row ? 'changed' : was !== index ? 'moved' : undefined;
    if (kind) changes.push({ kind, row, index });
  }
  return changes;
}

/** `rows`, but with the objects of `old` where they are equal, and `old` itself if all are. */
export function kept(old: readonly Row[], rows: readonly Row[]): readonly Row[] {
  const { start, tail } = difference(old, rows);
  const [before, after] = [old.slice(start, old.length - tail), rows.slice(start, rows.length - tail)];
  const known = new Map(before.map((row) => [row.id, row]));
  const next = after.map((row) => reuse(known.get(row.id), row) as Row);
  const isSame = before.length === next.length && next.every((row, index) => row === before[index]);
  return isSame ? old : [...rows.slice(0, start), ...next, ...rows.slice(rows.length - tail)];
}

/** Where two arrays differ: they begin with `start` equal objects and end with `tail` others. A write changes few of a thousand rows. */
function difference(before: readonly Row[], after: readonly Row[]): { start: number; tail: number } {
  const most = Math.min(before.length, after.length);
  let start = 0;
  while (start < most && before[start] === after[start]) start += 1;
  let tail = 0;
  while (tail < most - start && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
  return { start, tail };
}

/** The index of each id, of the rows from `start` to `end`. */
function placesOf(rows: readonly Row[], start: number, end: number): Map<string, number> {
  return new Map(rows.slice(start, end).map(({ id }, index) => [id, start + index]));
}
