// Which fields of a record a query returns. The id is sent with the value, so no projection removes it.

import { LIMITS, member, refuse } from './error.js';
import { isObject } from './order.js';
import { isId, parseSegments } from './path.js';

/** Paths to include, or `{path: 1}` or `{path: 0}`. */
export type SelectInput = readonly string[] | Readonly<Record<string, 0 | 1 | boolean>>;

/** The named fields of one object. A field without inner fields is named as a whole. */
type Fields = Map<string, Fields>;

export function parseProjection(select: unknown, at: string): (value: unknown) => unknown {
  const entries: Array<[path: string, at: string, included: boolean]> = [];
  if (Array.isArray(select)) {
    select.forEach((path: unknown, index) => {
      if (typeof path !== 'string') return refuse('bad-projection', member(at, index), 'entry is not a path; write a string');
      entries.push([path, member(at, index), true]);
    });
    // A list of nothing selects the id only.
    if (select.length === 0) entries.push(['_id', at, true]);
  } else if (isObject(select)) {
    for (const [path, choice] of Object.entries(select)) {
      if (typeof choice !== 'boolean' && choice !== 0 && choice !== 1) {
        refuse('bad-projection', member(at, path), 'choice is not 0 or 1; operators are not supported');
      }
      entries.push([path, member(at, path), Boolean(choice)]);
    }
  } else if (select !== undefined && select !== null) {
    refuse('bad-projection', at, 'projection is neither an object nor an array; write {"path": 1} or ["path"]');
  }
  if (entries.length > LIMITS.projectionPaths) refuse('too-large', at, `projection has more than ${LIMITS.projectionPaths} paths; use fewer`);
  const fields: Fields = new Map();
  let included: boolean | undefined;
  let id: { included: boolean; at: string } | undefined;
  for (const [path, at, isIncluded] of entries) {
    if (isId(path)) id = { included: isIncluded, at };
    else if (path === '_v') refuse('bad-projection', at, 'the version is not a field of the value; remove it');
    else {
      const segments = parseSegments(path, at);
      included ??= isIncluded;
      if (included !== isIncluded) refuse('bad-projection', at, 'projection includes and excludes; use one of both');
      if (!insert(fields, segments)) refuse('bad-projection', at, 'projection has the path and a prefix of it; remove one');
    }
  }
  if (included === false && id?.included === true) refuse('bad-projection', id.at, 'projection includes and excludes; use one of both');
  const isInclusion = included ?? id?.included ?? false;
  if (!isInclusion && fields.size === 0) return (value) => value;
  return (value) => project(isObject(value) ? value : { value }, fields, isInclusion);
}

/** Whether neither the path nor a prefix of it is there already. */
function insert(fields: Fields, [first, ...rest]: string[]): boolean {
  if (first === undefined) return false;
  const known = fields.get(first);
  if (known !== undefined) return known.size > 0 && rest.length > 0 && insert(known, rest);
  const inner: Fields = new Map();
  fields.set(first, inner);
  return rest.length === 0 || insert(inner, rest);
}

function project(object: Record<string, unknown>, fields: Fields, isInclusion: boolean): Record<string, unknown> {
  const kept: Array<[string, unknown]> = [];
  for (const [key, value] of Object.entries(object)) {
    const inner = fields.get(key);
    if (inner === undefined || inner.size === 0) {
      if ((inner === undefined) !== isInclusion) kept.push([key, value]);
    } else if (Array.isArray(value)) {
      const elements = isInclusion ? value.filter(isObject) : value;
      kept.push([key, elements.map((element) => (isObject(element) ? project(element, inner, isInclusion) : element))]);
    } else if (isObject(value)) kept.push([key, project(value, inner, isInclusion)]);
    else if (!isInclusion) kept.push([key, value]);
  }
  return Object.fromEntries(kept);
}
