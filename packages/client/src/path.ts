// Paths into JSON values: texts as in `spec/deepstream.md`, such as `address.streets[2].name`, or arrays of their steps. A value is never
// changed, only copied where it differs, so that an unchanged part stays the same object.

import { TidewireError } from './error.js';
import type { Step } from './schema.js';

/** A path as a text, or as its steps. */
export type AnyPath = string | readonly Step[];

type Json = Record<string, unknown> | unknown[];

function isContainer(value: unknown): value is Json {
  return typeof value === 'object' && value !== null;
}

/** The steps of `path`: keys, and indices as numbers. Throws for a path that the server would refuse. */
export function steps(path: AnyPath): readonly Step[] {
  const found = typeof path === 'string' ? path.split('.').flatMap(stepsOfPart) : path;
  const isStep = (step: Step): boolean =>
    typeof step === 'string' ? !/^(__proto__|constructor|prototype)$/.test(step) : Number.isInteger(step) && step >= 0 && step < 2 ** 32 - 1;
  if (!Array.isArray(found) || found.length === 0 || !found.every(isStep)) throw invalid(path);
  return found;
}

function stepsOfPart(text: string): Step[] {
  const [key = '', ...indices] = text.trim().split(/[[\]]/);
  return text.trim() ? [key, ...indices.filter(Boolean).map(Number)] : [];
}

/**
 * The path that an app gives, as a text if a text can spell it. Throws for a path that the server would refuse. Also throws for a text that
 * the server reads differently than it looks: one with an empty part, or with an index that has no key before it.
 */
export function checkedPath(path: AnyPath): AnyPath {
  const found = steps(path);
  if (typeof path === 'string') {
    if (!path.split('.').every((part) => /^\s*[^\s[\]][^[\]]*(\[\d+\])*\s*$/.test(part))) throw invalid(path);
    return path;
  }
  if (!found.every((step) => typeof step === 'number' || /^[^\s.[\]]([^.[\]]*[^\s.[\]])?$/.test(step))) return [...found];
  return found.reduce((text: string, step, at) => text + (at === 0 ? step : typeof step === 'number' ? `[${step}]` : `.${step}`), '');
}

function invalid(path: unknown): TidewireError {
  const hint = 'write it like "address.streets[2].name", or as an array of keys and indices';
  return new TidewireError('INVALID_ARGUMENT', `${JSON.stringify(path)} is not a path: ${hint}`);
}

/** The value of a key of `value` itself, which is not inherited. */
function own(value: unknown, key: Step): unknown {
  return isContainer(value) && Object.hasOwn(value, key) ? (value as Record<Step, unknown>)[key] : undefined;
}

/** The value at `path`. */
export function valueAt(value: unknown, path: AnyPath): unknown {
  return steps(path).reduce(own, value);
}

/**
 * `value` with `leaf` at `path`. If `leaf` is undefined, the value at `path` is removed. Objects in `copies` are from an earlier call,
 * and are changed in place.
 */
export function withValue(value: unknown, path: AnyPath, leaf: unknown, copies = new Set<unknown>()): unknown {
  return changed(value, steps(path), leaf, copies);
}

function changed(value: unknown, [step, ...rest]: readonly Step[], leaf: unknown, copies: Set<unknown>): unknown {
  if (step === undefined) return leaf;
  const isNew = !isContainer(value);
  const copy = (copies.has(value) ? value : isNew ? (typeof step === 'number' ? [] : {}) : Array.isArray(value) ? [...value] : { ...value }) as Record<string | number, unknown>;
  copies.add(copy);
  const next = changed(own(copy, step), rest, leaf, copies);
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
  // An array can't store other keys.
  if (!/^(0|[1-9]\d*)$/.test(String(step))) return copy;
  const index = Number(step);
  if (next !== undefined || index < copy.length || isNew) {
    for (let at = copy.length; at < index; at += 1) copy[at] = null;
    if (next !== undefined || index < copy.length) copy[index] = next ?? null;
  }
  return copy;
}

/** Whether both values are equal; the order of their keys does not matter. */
export function isEqual(one: unknown, other: unknown): boolean {
  if (one === other || !isContainer(one) || !isContainer(other)) return one === other;
  const entries = Object.entries(one);
  const isAlike = Array.isArray(one) === Array.isArray(other) && entries.length === Object.keys(other).length;
  return isAlike && entries.every(([key, value]) => Object.hasOwn(other, key) && isEqual(value, (other as Record<string, unknown>)[key]));
}

/** `next`, but with the objects of `old` where both are equal, so that an unchanged part stays the same object. */
export function reuse(old: unknown, next: unknown): unknown {
  if (old === next || !isContainer(old) || !isContainer(next) || Array.isArray(old) !== Array.isArray(next)) return next;
  const known = Object.keys(old);
  const keys = Object.keys(next);
  // The order of keys counts: all copies of a value have the same bytes.
  let isSame = known.length === keys.length && known.every((key, at) => key === keys[at]);
  const result = (Array.isArray(next) ? [] : {}) as Record<string, unknown>;
  for (const [key, value] of Object.entries(next)) {
    const was = own(old, key);
    result[key] = reuse(was, value);
    if (result[key] !== was || !Object.hasOwn(old, key)) isSame = false;
  }
  return isSame ? old : result;
}

/** The collection of a record: its name without the last segment. */
export const collectionOf = (name: string): string => name.slice(0, Math.max(0, name.lastIndexOf('/')));
