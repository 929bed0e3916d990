// The committed tree has no conflict markers, no build products except the built web pages, and few enough files for a person to survey.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { run } from '../harness/program.ts';
import { code, crates, rustFiles } from './imports.ts';

const ROOT = join(import.meta.dirname, '../..');
/**
 * Raised from 1,400 for the packages of other languages and frameworks, each with its sources, tests and manifest, from 1,600 for the wire
 * form of entries with its samples, and the storages of offline records, from 1,620 for the second halves of the demo and the admin page,
 * from 1,660 for attachments, namespaces, and the links and views of a cluster, and from 1,740 for long polling, the query language, the
 * carriers of links, and the change of a view, from 1,860 for the tests of clusters, and from 1,900 for backends and their packages for Node.
 * From 1,950 for the presence in scopes of clients, from 1,980 for indexes of collections, and
 * from 2,000 for what the nodes of a cluster share, and from 2,060 for the indexes of several stores and the oracles of queries,
 * from 2,080 for the recovery of sockets and the lists of the cases and members of Socket.IO, from 2,120 for transactions, and from 2,140 for
 * Socket.IO clients in other languages, and from 2,160 for schemas.
 */
const FILES_MAX = 2_200;
/** Lines of code of one crate, without comments and tests. Raised from 20,000 for the queries and live queries in the engine, from 23,500 for backends,
 * from 24,500 for presence in scopes and for questions between backends, from 26,000 for indexes of collections, from 26,500 for heartbeats at exact times, from 27,000 for
 * backends that leave, and for the comparison with a store that has lost writes, from 27,500 for transactions, and from 28,500 for backends that
 * serve the sessions of all nodes. */
const CRATE_LINES_MAX = 29_000;
const SERVER_LINES_MAX = 8_000;
const BUILD_PRODUCT = /\.(jar|class|o|so|a|rlib|wasm)$|(^|\/)(target|node_modules)\//;
// The markers are built with `repeat`, so that the test does not find them in this file.
const MARKER = ['<', '=', '>'].map((sign) => `^${sign.repeat(7)}( |$)`).join('|');

const COMMITTED = run('git', ['ls-files'], { cwd: ROOT }).trim().split('\n');

test('no committed file has markers of a merge conflict', () => {
  const found = spawnSync('git', ['grep', '--line-number', '--extended-regexp', MARKER], { cwd: ROOT, encoding: 'utf8' });
  // `git grep` exits with 1 if it finds no match.
  assert.equal(found.status, 1, found.stdout + found.stderr);
  for (const line of [`${'<'.repeat(7)} HEAD`, '='.repeat(7), `${'>'.repeat(7)} theirs`]) assert.match(line, new RegExp(MARKER));
  assert.doesNotMatch(`${'='.repeat(8)}`, new RegExp(MARKER));
});

test('no build product is committed', () => {
  assert.deepEqual(COMMITTED.filter((path) => BUILD_PRODUCT.test(path)), []);
  for (const path of ['e2e/mongodb/target/x.xml', 'lib/a.jar', 'node_modules/a/index.js']) assert.match(path, BUILD_PRODUCT);
});

test('the tree has few files', () => {
  const count = COMMITTED.length;
  assert.ok(count > 500 && count <= FILES_MAX, `${count} files`);
});

test('no crate is larger than an engineer can know', () => {
  for (const crate of crates(ROOT)) {
    const folder = join(ROOT, 'crates', crate, 'src');
    const sources = rustFiles(folder).filter((file) => !/(^|\/)tests(\.rs$|\/)/.test(file));
    const lines = sources.flatMap((file) => code(join(folder, file)).split('\n').filter((line) => line.trim() !== '')).length;
    const max = crate === 'tidewire-server' ? SERVER_LINES_MAX : CRATE_LINES_MAX;
    assert.ok(lines > 100 && lines <= max, `${crate} has ${lines} lines, allowed are ${max}`);
  }
});
