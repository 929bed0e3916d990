// Checks of releases that need no build: the list of components, and the detection of the oldest C library.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { binary } from '../harness/server.ts';
import { compareVersions, highestGlibc } from './build.ts';
import { components, type Component } from './components.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');

test('the components are the crates, packages and the library that end in the program', () => {
  const list = components(REPOSITORY) as { metadata: { component: Component }; components: Component[] };
  assert.equal(list.metadata.component.name, 'tidewire');
  const names = new Set(list.components.map(({ name }) => name));
  for (const name of ['tidewire-core', 'tokio', 'libsqlite3-sys', 'aws-lc-sys', 'mongodb', 'rust-std', 'preact', 'uplot', 'uqr']) assert.ok(names.has(name), name);
  // Crates that only build or test, or contain no code, are not components.
  for (const name of ['serde_derive', 'cc', 'proptest', 'tempfile', 'tidewire-bench', 'esbuild', 'typescript']) assert.ok(!names.has(name), name);
  assert.equal(new Set(list.components.map(({ purl }) => purl)).size, list.components.length, 'each once');
  // Compare the versions with the lock file.
  const locked = readFileSync(resolve(REPOSITORY, 'Cargo.lock'), 'utf8');
  for (const { name, version, purl } of list.components.filter(({ purl }) => purl.startsWith('pkg:cargo/'))) {
    assert.ok(locked.includes(`name = "${name}"\nversion = "${version}"\n`), purl);
  }
});

test('the newest symbol of glibc is found, and versions are compared by number', () => {
  assert.ok(compareVersions('2.28', '2.4') > 0);
  assert.ok(compareVersions('2.2.5', '2.2') > 0);
  assert.equal(compareVersions('2.28', '2.28'), 0);
  // A build for this machine needs its own C library, which is newer than the oldest one that a release supports.
  assert.match(highestGlibc(binary()), /^2\.\d+$/);
});
