// The pairs of selector and record for which an oracle is to agree with us. Outside of it the oracle differs from MongoDB, or
// `spec/query.md` differs from both on purpose: `DIFFERENCES` has an example of each.

import type { Json, Selector } from './generator.ts';

export type Oracle = 'mingo' | 'sift';

const INDEX = /^\d+$/;
/** Operators that see an array as a whole. */
const OF_ARRAYS = ['$size', '$all', '$type', '$exists', '$elemMatch'];

const isObject = (value: unknown): value is { [key: string]: Json } => typeof value === 'object' && value !== null && !Array.isArray(value);

/** The values at a path. */
interface Found {
  values: Array<Json | undefined>;
  /** Whether the path enters an array before its end. */
  entersArray: boolean;
  /** Whether the oracles resolve the path as we do. */
  isPlain: boolean;
}

/** Follows a path. Oracles differ in arrays that have elements without the next segment, and in the indexes of all but arrays of scalars. */
function follow(path: string, record: Json): Found {
  let values: Array<Json | undefined> = [record];
  let entersArray = false;
  for (const segment of path.split('.')) {
    const next: Array<Json | undefined> = [];
    for (const value of values) {
      if (isObject(value)) next.push(value[segment]);
      else if (!Array.isArray(value)) {
        if (typeof value === 'string' && INDEX.test(segment)) return { values, entersArray, isPlain: false };
        next.push(undefined);
      } else if (INDEX.test(segment)) {
        const element = value[Number(segment)];
        if (!path.endsWith(segment) || element === undefined || value.some((other) => typeof other === 'object')) return { values, entersArray, isPlain: false };
        next.push(element);
      } else {
        entersArray = true;
        if (value.length === 0 || !value.every((element) => isObject(element) && segment in element)) return { values, entersArray, isPlain: false };
        next.push(...value.map((element) => (element as { [key: string]: Json })[segment]));
      }
    }
    values = next;
  }
  return { values, entersArray, isPlain: true };
}

/** Oracles look into arrays within arrays. */
function nestsArrays(value: Json): boolean {
  if (Array.isArray(value)) return value.some((element) => Array.isArray(element) || nestsArrays(element));
  return isObject(value) && Object.values(value).some(nestsArrays);
}

/** Sift requires the same order of keys only in some places, and an array of one element equals more than itself. */
const hasContainer = (value: Json): boolean => typeof value === 'object' && value !== null;

/** Whether the oracle is to agree about an operator object, or about a value that must be equal. */
function agreesAbout(oracle: Oracle, condition: Json, { values, entersArray }: Found): boolean {
  if (!isObject(condition) || !Object.keys(condition).some((key) => key.startsWith('$'))) {
    return !(entersArray && hasContainer(condition)) && !(Array.isArray(condition) && condition.some(hasContainer));
  }
  return Object.entries(condition).every(([operator, operand]) => {
    if (entersArray && OF_ARRAYS.includes(operator)) return false;
    switch (operator) {
      case '$not':
        return agreesAbout(oracle, operand, { values, entersArray, isPlain: true });
      case '$mod':
        // Oracles convert other types to numbers.
        return values.every((value) => typeof value === 'number');
      case '$type':
        // Mingo does not look at elements, and sift has the names of JavaScript's constructors.
        return oracle === 'mingo' && values.every((value) => !Array.isArray(value));
      case '$eq':
      case '$ne':
        return !(entersArray && hasContainer(operand)) && !(Array.isArray(operand) && operand.some(hasContainer));
      case '$in':
      case '$nin':
        return !(operand as Json[]).some(hasContainer);
      case '$all':
        // For sift, `[]` requires no value; for mingo, only arrays have elements.
        if (oracle === 'mingo' && !values.every(Array.isArray)) return false;
        return (operand as Json[]).length > 0 && !(operand as Json[]).some(hasContainer);
      case '$elemMatch':
        return elementsAgree(oracle, operand, values);
      default:
        return true;
    }
  });
}

function elementsAgree(oracle: Oracle, operand: Json, values: Array<Json | undefined>): boolean {
  if (!isObject(operand) || Object.keys(operand).length === 0) return false;
  return values.every((value) => {
    if (!Array.isArray(value)) return true;
    if (Object.keys(operand).every((key) => key.startsWith('$'))) {
      return value.every((element) => !hasContainer(element) && agreesAbout(oracle, operand, { values: [element], entersArray: false, isPlain: true }));
    }
    return value.every((element) => isObject(element) && isShared(oracle, operand, element));
  });
}

/** Whether mingo orders records by this path as we do: it takes an array as a whole in some places, and objects have another order. */
export const isSortable = (record: Json, path: string): boolean => {
  const { values, entersArray, isPlain } = follow(path, record);
  return isPlain && !entersArray && !values.some((value) => hasContainer(value ?? null));
};

/** Whether the oracle is to agree about the selector and the record. */
export function isShared(oracle: Oracle, where: Selector, record: Json): boolean {
  if (nestsArrays(record)) return false;
  return Object.entries(where).every(([key, operand]) => {
    if (key.startsWith('$')) return (operand as Selector[]).every((inner) => isShared(oracle, inner, record));
    const found = follow(key, record);
    return found.isPlain && agreesAbout(oracle, operand, found);
  });
}

/** A difference between an oracle and `spec/query.md`. The results of MongoDB and of Meteor's minimongo are in `spec/vectors/query`. */
export interface Difference {
  oracle: Oracle;
  where: Selector;
  record: { [key: string]: Json };
  /** Whether our query selects the record. The oracle decides otherwise, or refuses the selector. */
  selects: boolean;
  why: string;
}

export const DIFFERENCES: Difference[] = [
  { oracle: 'sift', where: { a: 1 }, record: { a: [[1]] }, selects: false, why: 'looks into arrays within arrays' },
  { oracle: 'mingo', where: { a: { $regex: 'b$' } }, record: { a: ['', ['ab']] }, selects: false, why: 'looks into arrays within arrays' },
  { oracle: 'mingo', where: { 'a.x': { $eq: [] } }, record: { a: [] }, selects: false, why: 'a path through an array of other elements gives an array' },
  { oracle: 'mingo', where: { 'a.x': null }, record: { a: [{ y: 1 }] }, selects: true, why: 'a missing field of an element is not null' },
  { oracle: 'sift', where: { 'a.b': null }, record: { a: [5] }, selects: false, why: 'a field of a number is missing' },
  { oracle: 'sift', where: { 'a.0': 'b' }, record: { a: 'b' }, selects: false, why: 'an index selects a character of a string' },
  { oracle: 'mingo', where: { 'a.5': null }, record: { a: [1] }, selects: false, why: 'an index behind the end is null' },
  { oracle: 'mingo', where: { a: { $mod: [2, 0] } }, record: { a: false }, selects: false, why: 'booleans are numbers' },
  { oracle: 'sift', where: { a: { $mod: [4, 1] } }, record: { a: '5' }, selects: false, why: 'strings are numbers' },
  { oracle: 'mingo', where: { a: { $type: 'number' } }, record: { a: [1] }, selects: true, why: 'a type is not that of the elements' },
  { oracle: 'sift', where: { a: { $type: 'object' } }, record: { a: {} }, selects: true, why: 'types have the names of constructors' },
  { oracle: 'sift', where: { a: { $all: [] } }, record: { a: [1] }, selects: false, why: 'no value is required' },
  { oracle: 'mingo', where: { a: { $all: [1] } }, record: { a: 1 }, selects: true, why: 'only arrays have elements' },
  { oracle: 'mingo', where: { a: { $nin: [[]] } }, record: { a: [] }, selects: false, why: 'an empty array equals no element of a list' },
];
