// Checks the client's queries against the same vectors as the server's.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { Query, QueryError, type QueryDocument, type QueryInput } from '../src/query.js';

function vectors<Vector>(file: string): Vector[] {
  const path = resolve(import.meta.dirname, `../../../spec/vectors/query/${file}.json`);
  return JSON.parse(readFileSync(path, 'utf8')) as Vector[];
}

/** Texts that JSON.parse refuses are not the business of this module. */
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const show = (value: unknown): string => JSON.stringify(value);
type Where = NonNullable<QueryInput['where']>;

test('selectors match as specified', () => {
  for (const vector of vectors<{ where: Where; document: unknown; matches: boolean }>('match')) {
    const query = new Query({ where: vector.where });
    assert.equal(query.matches({ id: '7', version: 3, value: vector.document }), vector.matches, show(vector));
  }
});

test('refusals name the place', () => {
  const codes = new Set<string>();
  for (const { query, code, at } of vectors<{ query: string; code: string; at: string }>('refusals')) {
    const check = (error: unknown): boolean => {
      assert.ok(error instanceof QueryError, String(error));
      assert.deepEqual([error.code, error.at], [code, at], `${query}: ${error.message}`);
      assert.match(error.message, /; /);
      return true;
    };
    assert.throws(() => new Query(parse(query) as QueryInput), check, query);
    codes.add(code);
  }
  assert.equal(codes.size, 10);
});

test('records are sorted as specified, and equal ones by their id', () => {
  for (const vector of vectors<{ sort: QueryInput['sort']; documents: Array<[string, unknown]> }>('sort')) {
    const query = new Query({ ...(vector.sort && { sort: vector.sort }) });
    const documents = vector.documents.map(([id, value]) => ({ id, version: 3, value }));
    for (const [leftAt, left] of documents.entries()) {
      for (const [rightAt, right] of documents.entries()) {
        assert.equal(Math.sign(query.compare(left, right)), Math.sign(leftAt - rightAt), `${leftAt} ${rightAt} ${show(vector)}`);
      }
    }
    assert.deepEqual(query.run([...documents].reverse()), documents);
  }
});

test('projections keep the named fields', () => {
  for (const vector of vectors<{ select: QueryInput['select']; document: unknown; result: unknown }>('projection')) {
    const query = new Query({ ...(vector.select && { select: vector.select }) });
    assert.deepEqual(query.project(vector.document), vector.result, show(vector));
  }
});

test('a result has the records after the offset, up to the limit', () => {
  const documents: QueryDocument[] = [5, 3, 1, 4, 2].map((n) => ({ id: `r${n}`, value: { n, odd: n % 2 === 1 } }));
  const ids = (input: QueryInput): string[] => new Query(input).run(documents).map(({ id }) => id);
  assert.deepEqual(ids({}), ['r1', 'r2', 'r3', 'r4', 'r5']);
  assert.deepEqual(ids({ where: { odd: true }, sort: { n: -1 } }), ['r5', 'r3', 'r1']);
  assert.deepEqual(ids({ sort: { odd: -1 }, offset: 1, limit: 3 }), ['r3', 'r5', 'r2']);
  assert.deepEqual(ids({ limit: 0 }), []);
  assert.deepEqual(ids({ where: undefined }), []);
});

test('a member that an object inherits is missing', () => {
  assert.equal(new Query({ where: { constructor: { $exists: true } } }).matches({ id: '7', value: {} }), false);
  assert.equal(new Query({ where: { 'a.__proto__': null } }).matches({ id: '7', value: { a: {} } }), true);
});

test('the order of texts is that of code points, also of lone surrogates', () => {
  const texts = ['', 'a', '\ud800', '\ud800a', '\udc00', '\ue000', '\u{10000}', '\u{10000}a', '\u{10ffff}'];
  const query = new Query({ sort: ['t'] });
  const documents = texts.map((t, index) => ({ id: String(index), value: { t } }));
  assert.deepEqual(query.run([...documents].reverse()), documents);
});
