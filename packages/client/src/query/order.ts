// Equality and the order of all values: null < number < string < object < array < boolean.

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The member of an object; `undefined` if it has none, apart from inherited ones. */
export const own = (object: Record<string, unknown>, key: string): unknown => (Object.hasOwn(object, key) ? object[key] : undefined);

/** Place of a value's type in the order of types. Missing is like null. */
export function rank(value: unknown): number {
  if (value === null || value === undefined) return 0;
  if (Array.isArray(value)) return 4;
  return { number: 1, string: 2, object: 3, boolean: 5 }[typeof value as 'number' | 'string' | 'object' | 'boolean'] ?? 0;
}

/** Compares by code points, as UTF-8 bytes are compared. */
export function compareText(left: string, right: string): number {
  let at = 0;
  while (at < left.length && left.charCodeAt(at) === right.charCodeAt(at)) at += 1;
  // A difference in the second half of a pair is one of the pair.
  if (at > 0 && (left.charCodeAt(at - 1) & 0xfc00) === 0xd800) at -= 1;
  return (left.codePointAt(at) ?? -1) - (right.codePointAt(at) ?? -1);
}

/** The keys of the members that JSON has, sorted. */
export const sortedKeys = (object: Record<string, unknown>): string[] =>
  Object.keys(object).filter((key) => object[key] !== undefined).sort(compareText);

/** Negative, zero or positive, as `Array.prototype.sort` expects. */
export function compare(left: unknown, right: unknown): number {
  const type = rank(left);
  const order = type - rank(right);
  if (order !== 0) return order;
  switch (type) {
    case 1:
    case 5:
      return left === right ? 0 : (left as number) < (right as number) ? -1 : 1;
    case 2:
      return compareText(left as string, right as string);
    case 3: {
      const [first, second] = [left as Record<string, unknown>, right as Record<string, unknown>];
      const [keys, others] = [sortedKeys(first), sortedKeys(second)];
      for (let index = 0; index < Math.min(keys.length, others.length); index += 1) {
        const [key, other] = [keys[index] as string, others[index] as string];
        const order = compareText(key, other) || compare(first[key], second[other]);
        if (order !== 0) return order;
      }
      return keys.length - others.length;
    }
    case 4: {
      const [first, second] = [left as unknown[], right as unknown[]];
      for (let index = 0; index < Math.min(first.length, second.length); index += 1) {
        const order = compare(first[index], second[index]);
        if (order !== 0) return order;
      }
      return first.length - second.length;
    }
    default:
      return 0;
  }
}
