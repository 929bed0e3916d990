// Paths, and the branches that a path resolves to. `spec/query.md` has the rules.

import { LIMITS, byteLength, refuse } from './error.js';
import { isObject, own } from './order.js';

/** A record as queries see it. */
export interface QueryDocument {
  readonly id: string;
  readonly version?: number;
  readonly value: unknown;
}

/** Calls `visit` with each branch until it returns true; whether it did. `expands` says that an array counts as its elements as well. */
export type Visit = (value: unknown, expands: boolean) => boolean;
/** The branches of a document, or of an element within `$elemMatch`. */
export type Path = (scope: unknown, visit: Visit) => boolean;

/** The element itself, for the operators of `$elemMatch`. */
export const ELEMENT: Path = (element, visit) => visit(element, false);

export const isId = (text: string): boolean => text === '_id';

/** The segments of a path. */
export function parseSegments(text: string, at: string): string[] {
  const segments = text.split('.');
  if (byteLength(text) > LIMITS.pathBytes || segments.length > LIMITS.segments) {
    refuse('bad-path', at, `path has more than ${LIMITS.pathBytes} bytes or ${LIMITS.segments} segments; shorten it`);
  }
  if (segments.some((segment) => segment === '' || segment.startsWith('$') || segment.includes('\0'))) {
    refuse('bad-path', at, 'path has a segment that is empty, starts with a dollar sign or has a null character; no stored field is like it');
  }
  return segments;
}

/** The path of this text, at the top level of a document or in an element. For a sort, indexes are not keys. */
export function parsePath(text: string, at: string, inElement = false, forSort = false): Path {
  if (!inElement) {
    if (isId(text)) return (document, visit) => visit((document as QueryDocument).id, false);
    if (text === '_v') return (document, visit) => visit((document as QueryDocument).version ?? 0, false);
  }
  const segments = parseSegments(text, at);
  if (inElement) return (element, visit) => walk(element, segments, 0, false, forSort, visit);
  return (document, visit) => {
    const { value } = document as QueryDocument;
    if (isObject(value)) return walk(value, segments, 0, false, forSort, visit);
    // A record that is not an object is queried as `{value: it}`.
    return segments[0] === 'value' ? walk(value, segments, 1, false, forSort, visit) : visit(undefined, false);
  };
}

function walk(value: unknown, segments: string[], from: number, explicit: boolean, forSort: boolean, visit: Visit): boolean {
  const segment = segments[from];
  if (segment === undefined) return visit(value, !explicit && Array.isArray(value));
  if (isObject(value)) {
    const inner = own(value, segment);
    return inner === undefined ? visit(undefined, false) : walk(inner, segments, from + 1, false, forSort, visit);
  }
  if (!Array.isArray(value)) return !explicit && visit(undefined, false);
  if (/^(0|[1-9][0-9]*)$/.test(segment)) {
    const index = Number(segment);
    if (index < value.length && walk(value[index], segments, from + 1, true, forSort, visit)) return true;
    if (forSort) return false;
  }
  return value.some((element) => isObject(element) && walk(element, segments, from, false, forSort, visit));
}
