// Random records, selectors, sorts and projections from small domains, so that ties, nulls, arrays and values of other types meet often.

/** Splitmix32: the same seed gives the same cases. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  below(bound: number): number {
    this.#state = (this.#state + 0x9e3779b9) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) % bound;
  }

  of<T>(values: readonly T[]): T {
    return values[this.below(values.length)] as T;
  }
}

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Selector = { [key: string]: Json };

const SCALARS: readonly Json[] = [null, 0, 1, 2, -1, 1.5, '', 'a', 'b', 'ab', '1', true, false];
const ORDERED: readonly Json[] = [0, 1, 2, -1, 1.5, '', 'a', 'b', 'ab', true, false];
const FIELDS = ['a', 'b', 'c'];
const INNER = ['x', 'y'];
const PATHS = ['a', 'b', 'c', 'a.x', 'b.x', 'a.x.y', 'a.0', 'b.1', 'a.0.x', 'c.y'];

export function value(random: Random, depth = 2): Json {
  const kind = depth === 0 ? 0 : random.below(8);
  if (kind < 5) return random.of(SCALARS);
  if (kind < 7) return Array.from({ length: random.below(4) }, () => value(random, depth - 1));
  return object(random, INNER, depth - 1);
}

function object(random: Random, keys: readonly string[], depth: number): { [key: string]: Json } {
  return Object.fromEntries(keys.filter(() => random.below(4) > 0).map((key) => [key, value(random, depth)]));
}

/** A record without its id. */
export const record = (random: Random): { [key: string]: Json } => object(random, FIELDS, 2);

/** A selector. */
export function selector(random: Random, depth = 2): Selector {
  const entries: Array<[string, Json]> = [];
  for (let left = 1 + random.below(2); left > 0; left -= 1) {
    const isLogical = depth > 0 && random.below(5) === 0;
    if (isLogical) entries.push([random.of(['$and', '$or', '$nor']), Array.from({ length: 1 + random.below(3) }, () => selector(random, depth - 1))]);
    else entries.push([random.of(PATHS), condition(random, depth)]);
  }
  return Object.fromEntries(entries);
}

function condition(random: Random, depth: number): Json {
  return random.below(4) === 0 ? value(random, 2) : operators(random, depth);
}

function operators(random: Random, depth: number): Selector {
  const count = random.below(5) === 0 ? 2 : 1;
  return Object.fromEntries(Array.from({ length: count }, () => operator(random, depth)));
}

function operator(random: Random, depth: number): [string, Json] {
  const values = (): Json[] => Array.from({ length: random.below(4) }, () => value(random, 1));
  switch (random.below(depth > 0 ? 13 : 11)) {
    case 0:
      return ['$eq', value(random, 2)];
    case 1:
      return ['$ne', value(random, 1)];
    case 2:
      return ['$in', values()];
    case 3:
      return ['$nin', values()];
    case 4:
    case 5:
      return [random.of(['$lt', '$lte', '$gt', '$gte']), random.of(ORDERED)];
    case 6:
      return ['$exists', random.below(2) === 0];
    case 7:
      return ['$type', random.of(['number', 'string', 'object', 'array', 'bool', 'null'])];
    case 8:
      return random.below(2) === 0 ? ['$all', values()] : ['$size', random.below(4)];
    case 9:
      return ['$mod', [random.of([1, 2, 3, -2]), random.of([0, 1, -1])]];
    case 10:
      return ['$regex', random.of(['a', '^a', 'b$', '1|b', ''])];
    case 11:
      return ['$not', operators(random, 0)];
    default:
      return ['$elemMatch', random.below(2) === 0 ? operators(random, 0) : object(random, INNER, 1)];
  }
}

/** The keys of a sort: a path each, no path twice, at most one below an array. */
export const sort = (random: Random): Record<string, 1 | -1> =>
  Object.fromEntries(Array.from({ length: 1 + random.below(2) }, () => [random.of(FIELDS), random.below(2) === 0 ? 1 : -1] as const));

/** A projection that includes or excludes. */
export function projection(random: Random): Record<string, 0 | 1> {
  const mode = random.below(2) as 0 | 1;
  const paths = random.of([['a'], ['a', 'b'], ['a.x'], ['a.x', 'b'], ['a.x', 'a.y'], ['b.x.y', 'c']]);
  return Object.fromEntries(paths.map((path) => [path, mode]));
}
