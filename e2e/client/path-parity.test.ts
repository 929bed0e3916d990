// Compares the paths of `@tidewire/client` with the paths of `@deepstream/client`, with which the server's paths are compared, too.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { valueAt, withValue } from '../../packages/client/src/path.ts';
import { Random } from '../harness/random.ts';

const { get, setValue } = createRequire(import.meta.url)('@deepstream/client/dist/src/record/json-path.js') as {
  get(data: unknown, path: string): unknown;
  setValue(root: unknown, path: string, value: unknown): unknown;
};

const KEYS = ['a', 'b', 'ü', '0', '1', '2', 'length', 'toString', ' spaced ', ''];
const LEAVES = [0, 1, null, false, 'text', {}, [], { a: 1 }, [1, [2]], undefined];

/** A random value of objects and arrays. */
function document(random: Random, depth: number): unknown {
  if (depth === 0 || random.once(4)) return random.of(LEAVES.filter((leaf) => leaf !== undefined));
  const values = Array.from({ length: random.below(4) }, () => document(random, depth - 1));
  return random.once(2) ? values : Object.fromEntries(values.map((value) => [random.of(KEYS.filter((key) => key !== 'length')), value]));
}

function path(random: Random): string {
  const parts = Array.from({ length: 1 + random.below(3) }, () => {
    return random.of(KEYS) + Array.from({ length: random.below(3) }, () => `[${random.below(4)}]`).join('');
  });
  return `a${parts.join('.')}`.slice(random.below(2)) || 'a';
}

/** `root` after a round trip through JSON: arrays lose other keys, and holes become null. */
const plain = (root: unknown): unknown => JSON.parse(JSON.stringify(root));

/** The value that the other client finds; throws if a scalar is on the way. */
function found(root: unknown, where: string): unknown {
  try {
    return get(root, where);
  } catch {
    return undefined;
  }
}

test('a hundred thousand random changes give the same documents', () => {
  const random = new Random(7);
  let compared = 0;
  for (let round = 0; round < 100_000; round += 1) {
    const root = [document(random, 3), document(random, 3)].find((one) => typeof one === 'object' && one !== null) ?? {};
    const where = path(random);
    const leaf = random.of(LEAVES);
    // Other tests cover lengths. Paths of dots only are not valid paths in this client.
    if (/length|^[\s.]*$/.test(where)) continue;
    const expected = plain(setValue(root, where, leaf));
    const before = JSON.stringify(root);
    const changed = withValue(root, where, leaf);
    assert.deepEqual(plain(changed), expected, `${JSON.stringify(leaf)} at ${where} of ${before}`);
    assert.equal(JSON.stringify(root), before, 'the original value is not changed');
    // Inherited properties are not part of a document.
    if (!where.includes('toString')) assert.deepEqual(valueAt(expected, where), found(expected, where), `${where} of ${JSON.stringify(changed)}`);
    compared += 1;
  }
  assert.ok(compared > 80_000, `${compared} compared`);
});
