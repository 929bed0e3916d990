// The import rule: a lower crate never names an upper one, and modules of different folders form no import cycle.

import assert from 'node:assert/strict';
import { appendFileSync, cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { circles, crateImports, crates, moduleImports } from './imports.ts';

const ROOT = join(import.meta.dirname, '../..');

/** The crates that each crate may name. If you add one, give the reason in the commit. Tests may name more, as far as Cargo allows. */
const BELOW: Record<string, string[]> = {
  'tidewire-json': [],
  'tidewire-message': ['tidewire-json'],
  'tidewire-membership': ['tidewire-message'],
  'tidewire-collections': ['tidewire-message'],
  'tidewire-core': ['tidewire-collections', 'tidewire-json', 'tidewire-message', 'tidewire-query'],
  'tidewire-net': [],
  'tidewire-query': ['tidewire-json'],
  'tidewire-rules': ['tidewire-core'],
  'tidewire-schema': [],
  'tidewire-wire': ['tidewire-core'],
  'tidewire-link': ['tidewire-core', 'tidewire-wire'],
  'tidewire-cluster': ['tidewire-core', 'tidewire-link', 'tidewire-membership', 'tidewire-wire'],
  'tidewire-config': ['tidewire-core', 'tidewire-net'],
  'tidewire-store': ['tidewire-core'],
  'tidewire-shard': ['tidewire-config', 'tidewire-core', 'tidewire-net', 'tidewire-wire'],
  'tidewire-auth': ['tidewire-config', 'tidewire-core', 'tidewire-net', 'tidewire-shard', 'tidewire-store'],
  'tidewire-http': [
    'tidewire-auth',
    'tidewire-config',
    'tidewire-core',
    'tidewire-net',
    'tidewire-rules',
    'tidewire-shard',
    'tidewire-store',
    'tidewire-wire',
  ],
  'tidewire-server': [
    'tidewire-auth',
    'tidewire-cluster',
    'tidewire-config',
    'tidewire-core',
    'tidewire-http',
    'tidewire-net',
    'tidewire-rules',
    'tidewire-shard',
    'tidewire-store',
    'tidewire-wire',
  ],
  'tidewire-torture': ['tidewire-core', 'tidewire-net', 'tidewire-server', 'tidewire-store', 'tidewire-wire'],
  'tidewire-migrate': ['tidewire-config', 'tidewire-core', 'tidewire-store'],
  tidewire: [
    'tidewire-auth',
    'tidewire-config',
    'tidewire-core',
    'tidewire-http',
    'tidewire-migrate',
    'tidewire-net',
    'tidewire-rules',
    'tidewire-schema',
    'tidewire-server',
    'tidewire-store',
    'tidewire-torture',
  ],
  'tidewire-bench': ['tidewire-net', 'tidewire-wire'],
};

/** All violations of the rule in a tree of crates. */
function offences(root: string): string[] {
  const found: string[] = [];
  for (const { from, to, file } of crateImports(root)) {
    if (BELOW[from]?.includes(to) !== true) found.push(`${from} names ${to} in ${file}`);
  }
  for (const crate of crates(root)) {
    for (const circle of circles(moduleImports(join(root, 'crates', crate, 'src')))) found.push(`${crate} has the cycle ${circle.join(', ')}`);
  }
  return found;
}

/** The violations in a copy of the crates, after `plant` has changed that copy. */
function planted(plant: (root: string) => void): string[] {
  const root = mkdtempSync(join(tmpdir(), 'tidewire-imports-'));
  try {
    for (const crate of crates(ROOT)) {
      for (const part of ['Cargo.toml', 'src']) {
        const path = join('crates', crate, part);
        cpSync(join(ROOT, path), join(root, path), { recursive: true });
      }
    }
    plant(root);
    return offences(root);
  } finally {
    rmSync(root, { recursive: true });
  }
}

test('no crate names a crate above it, and no modules form a cycle', () => {
  assert.deepEqual(Object.keys(BELOW).sort(), crates(ROOT), 'each crate has its row');
  assert.deepEqual(offences(ROOT), []);
});

test('finds an import of an upper crate in sources and in a manifest', () => {
  const source = planted((root) => {
    appendFileSync(join(root, 'crates/tidewire-core/src/bulk.rs'), '\nuse tidewire_net::mailbox::Mailbox;\n');
  });
  assert.deepEqual(source, ['tidewire-core names tidewire-net in src/bulk.rs']);
  const manifest = planted((root) => {
    appendFileSync(join(root, 'crates/tidewire-wire/Cargo.toml'), '\n[dependencies]\ntidewire-server.workspace = true\n');
  });
  assert.deepEqual(manifest, ['tidewire-wire names tidewire-server in Cargo.toml']);
});

test('finds a cycle between modules, in each syntax of an import', () => {
  const found = planted((root) => {
    const sources = join(root, 'crates/tidewire-net/src');
    writeFileSync(join(sources, 'lower.rs'), 'use crate::{upper::{First, Second}};\n');
    writeFileSync(join(sources, 'upper.rs'), 'use super::lower::Third;\n');
  });
  assert.deepEqual(found, ['tidewire-net has the cycle lower, upper']);
});
