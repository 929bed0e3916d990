// The client's queries against two independent implementations of MongoDB's language: mingo, and sift, the matcher of Feathers' adapter in
// memory. `crates/tidewire-query/tests/node_parity.rs` compares the server's queries with the client's.
//
// `ORACLE_PAIRS` is the number of pairs of selector and record; the proof makes a million.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { Query as Mingo, find } from 'mingo';
import sift from 'sift';
import { Query, QueryError, type QueryInput } from '../../packages/client/src/query.ts';
import { DIFFERENCES, isShared, isSortable, type Oracle } from './domain.ts';
import { Random, projection, record, selector, sort, type Json, type Selector } from './generator.ts';

const PAIRS = Number(process.env['ORACLE_PAIRS'] ?? 20_000);
/** Records for each selector. */
const RECORDS = 20;
/** The part of the pairs that each oracle evaluates, at least. */
const SHARE_MIN = 0.3;
/** Deliberate mistakes: the operator that we read instead of the one that the oracle reads. */
const FAULTS: Array<[string, string]> = [
  ['$lte', '$lt'],
  ['$or', '$and'],
  ['$nin', '$ne'],
  ['$gte', '$gt'],
  ['$not', '$elemMatch'],
  ['$exists', '$ne'],
  ['"a.0"', '"a"'],
];

type Match = (record: { [key: string]: Json }) => boolean;
/** The types of sift describe a module with a default export, which it does not have. */
const newMatch = sift as unknown as (where: Selector) => Match;
const ORACLES: Record<Oracle, (where: Selector) => Match> = {
  mingo: (where) => {
    const query = new Mingo(where);
    return (value) => query.test({ _id: '1', ...value });
  },
  sift: (where) => {
    const matches = newMatch(where);
    return (value) => matches({ _id: '1', ...value });
  },
};

function ours(where: Selector): Match {
  const query = new Query({ where });
  return (value) => query.matches({ id: '1', version: 1, value });
}

/** Our query, `undefined` if the selector is invalid, as a changed one may be. */
function valid(where: Selector): Match | undefined {
  try {
    return ours(where);
  } catch (error) {
    if (error instanceof QueryError) return undefined;
    throw error;
  }
}

interface Report {
  /** Pairs that each oracle has evaluated. */
  evaluated: Record<Oracle, number>;
  selected: number;
  disagreements: string[];
}

function compare(seed: number, pairs: number, [from, to]: [string, string] = ['', '']): Report {
  const random = new Random(seed);
  const report: Report = { evaluated: { mingo: 0, sift: 0 }, selected: 0, disagreements: [] };
  for (let left = pairs; left > 0; left -= RECORDS) {
    const where = selector(random);
    const text = JSON.stringify(where);
    const records = Array.from({ length: RECORDS }, () => record(random));
    const matches = valid(from === '' ? where : JSON.parse(text.replaceAll(from, to)));
    if (matches === undefined) {
      assert.notEqual(from, '', text);
      continue;
    }
    for (const oracle of ['mingo', 'sift'] as const) {
      const shared = records.filter((value) => isShared(oracle, where, value));
      if (shared.length === 0) continue;
      const theirs = ORACLES[oracle](where);
      report.evaluated[oracle] += shared.length;
      for (const value of shared) {
        const selects = matches(value);
        report.selected += Number(selects);
        if (theirs(value) !== selects) report.disagreements.push(`${oracle} ${!selects}: ${text} on ${JSON.stringify(value)}`);
      }
    }
  }
  return report;
}

test('mingo and sift select the same records', (t) => {
  const { evaluated, selected, disagreements } = compare(1, PAIRS);
  assert.deepEqual(disagreements.slice(0, 5), []);
  for (const count of Object.values(evaluated)) assert.ok(count > PAIRS * SHARE_MIN, JSON.stringify(evaluated));
  assert.ok(selected > PAIRS / 20);
  t.diagnostic(`${PAIRS} pairs of selector and record: mingo agrees on ${evaluated.mingo}, sift on ${evaluated.sift}; the others are outside of what they share with the specification`);
});

test('planted faults are found', () => {
  for (const fault of FAULTS) assert.notEqual(compare(2, 10_000, fault).disagreements.length, 0, fault.join(' as '));
});

test('what is left out of the comparison differs', () => {
  for (const { oracle, where, record, selects, why } of DIFFERENCES) {
    assert.equal(ours(where)(record), selects, why);
    assert.ok(!isShared(oracle, where, record), why);
    let theirs: boolean | undefined;
    try {
      theirs = ORACLES[oracle](where)(record);
    } catch {
      theirs = undefined;
    }
    assert.notEqual(theirs, selects, `${oracle} no longer ${why}`);
  }
});

test('mingo orders and projects in the same way', (t) => {
  const random = new Random(3);
  let sorted = 0;
  let projected = 0;
  for (let left = PAIRS; left > 0; left -= RECORDS) {
    const records = Array.from({ length: RECORDS }, (_, n) => ({ id: `r${n + 10}`, version: 1, value: record(random) as { [key: string]: Json } }));
    const keys = sort(random);
    const isOrdered = (value: Json): boolean => Object.keys(keys).every((path) => isSortable(value, path));
    const ordered = records.filter(({ value }) => isOrdered(value));
    sorted += ordered.length;
    const documents = ordered.map(({ id, value }) => ({ _id: id, ...value }));
    const theirs = find<{ _id: string }>(documents, {}).sort({ ...keys, _id: 1 }).all();
    const mine = new Query({ sort: keys } as QueryInput).run(ordered);
    assert.deepEqual(mine.map(({ id }) => id), theirs.map(({ _id }) => _id), JSON.stringify({ keys, documents }));
    const select = projection(random);
    const { project } = new Query({ select } as QueryInput);
    const isProjected = (value: Json): boolean => Object.keys(select).every((path) => isSortable(value, path) || !path.includes('.'));
    const kept = records.filter(({ value }) => isProjected(value));
    projected += kept.length;
    const parts = kept.map(({ id, value }) => ({ _id: id, ...(project(value) as object) }));
    const theirParts = find(kept.map(({ id, value }) => ({ _id: id, ...value })), {}, select).all();
    assert.ok(isDeepStrictEqual(parts, theirParts), JSON.stringify({ select, kept, parts, theirParts }));
  }
  t.diagnostic(`mingo agrees on the order of ${sorted} records, and on ${projected} projections`);
  assert.ok(sorted > PAIRS / 10 && projected > PAIRS / 4, `${sorted} ${projected}`);
});
