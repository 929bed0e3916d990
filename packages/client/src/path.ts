// Paths into JSON values, as `spec/deepstream.md` has them: `address.streets[2].name`. Values are never changed, only copied where
// they differ, so that what did not change stays the same object.

import { TidewireError } from './error.js';

type Json = Record<string, unknown> | unknown[];

function isContainer(value: unknown): value is Json {
  return typeof value === 'object' && value !== null;
}

/** The steps of `path`: keys, and indices as numbers. Throws where the server would refuse it. */
export function steps(path: string): Array<string | number> {
  const found = path.split('.').flatMap((text) => {
    const [key = '', ...indices] = text.trim().split(/[[\]]/);
    if (text.trim() === '') return [];
    if (/^(__proto__|constructor|prototype)$/.test(key)) throw invalid(path);
    return [key, ...indices.filter((index) => index !== '').map(Number)];
  });
  const isRight = found.every((step) => typeof step === 'string' || (Number.isInteger(step) && step >= 0 && step < 2 ** 32 - 1));
  if (found.length === 0 || !isRight) throw invalid(path);
  return found;
}

function invalid(path: string): TidewireError {
  return new TidewireError('INVALID_ARGUMENT', `"${path}" is no path: it is made like "address.streets[2].name"`);
}

/** What stands at `path`. */
export function valueAt(value: unknown, path: string): unknown {
  return steps(path).reduce((inside: unknown, step) => {
    return isContainer(inside) && Object.hasOwn(inside, step) ? (inside as Record<string | number, unknown>)[step] : undefined;
  }, value);
}

/**
 * `value` with `leaf` at `path`, or without what stands there if `leaf` is undefined. What is in `own` was copied before, and is changed in
 * its place.
 */
export function withValue(value: unknown, path: string, leaf: unknown, own = new Set<unknown>()): unknown {
  return changed(value, steps(path), leaf, own);
}

function changed(value: unknown, [step, ...rest]: Array<string | number>, leaf: unknown, own: Set<unknown>): unknown {
  if (step === undefined) return leaf;
  const isNew = !isContainer(value);
  const copy = (own.has(value) ? value : isNew ? (typeof step === 'number' ? [] : {}) : Array.isArray(value) ? [...value] : { ...value }) as Record<string | number, unknown>;
  own.add(copy);
  const inside = Object.hasOwn(copy, step) ? copy[step] : undefined;
  const next = changed(inside, rest, leaf, own);
  if (!Array.isArray(copy)) {
    if (next === undefined) delete copy[step];
    else copy[step] = next;
    return copy;
  }
  if (step === 'length') {
    const length = copy.length;
    copy.length = next as number;
    return copy.fill(null, length);
  }
  // An array has no place for other keys.
  if (!/^(0|[1-9]\d*)$/.test(String(step))) return copy;
  const index = Number(step);
  if (next !== undefined || index < copy.length || isNew) {
    for (let at = copy.length; at < index; at += 1) copy[at] = null;
    if (next !== undefined || index < copy.length) copy[index] = next ?? null;
  }
  return copy;
}

/** Whether both say the same, in whatever order their keys are. */
export function isEqual(one: unknown, other: unknown): boolean {
  if (one === other || !isContainer(one) || !isContainer(other)) return one === other;
  const entries = Object.entries(one);
  const isAlike = Array.isArray(one) === Array.isArray(other) && entries.length === Object.keys(other).length;
  return isAlike && entries.every(([key, value]) => Object.hasOwn(other, key) && isEqual(value, (other as Record<string, unknown>)[key]));
}

/** `next`, but `old` where it says the same, so that what did not change stays the same object. */
export function reuse(old: unknown, next: unknown): unknown {
  if (old === next || !isContainer(old) || !isContainer(next) || Array.isArray(old) !== Array.isArray(next)) return next;
  const known = Object.keys(old);
  const keys = Object.keys(next);
  // Their order counts: all copies of a value have the same bytes.
  let isSame = known.length === keys.length && known.every((key, at) => key === keys[at]);
  const result = (Array.isArray(next) ? [] : {}) as Record<string, unknown>;
  for (const [key, value] of Object.entries(next)) {
    const was = Object.hasOwn(old, key) ? (old as Record<string, unknown>)[key] : undefined;
    result[key] = reuse(was, value);
    if (result[key] !== was || !Object.hasOwn(old, key)) isSame = false;
  }
  return isSame ? old : result;
}
