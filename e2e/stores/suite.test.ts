// Runs the suite of stores (crates/tidewire-store/tests/remote_stores.rs) on real servers.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { Database } from '../harness/database.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');
// Test the whole workspace with all features, as the earlier suites do: the package alone would be built with other features.
const ARGS = ['test', '--locked', '--workspace', '--all-features', '--test', 'remote_stores', '--', '--include-ignored'];

test('the suite of stores passes on PostgreSQL, Redis, Valkey and a re-implementation of MongoDB', async (t) => {
  const variables: Record<string, string> = {};
  await Promise.all(
    (
      [
        ['TIDEWIRE_TEST_MONGODB', 'mongodb'],
        ['TIDEWIRE_TEST_POSTGRES', 'postgres'],
        ['TIDEWIRE_TEST_REDIS', 'redis'],
        ['TIDEWIRE_TEST_REDIS_SETTINGS', 'redis'],
        ['TIDEWIRE_TEST_VALKEY', 'valkey'],
        ['TIDEWIRE_TEST_VALKEY_SETTINGS', 'valkey'],
      ] as const
    ).map(async ([variable, kind]) => {
      // A variable may name a real MongoDB; the suite creates and drops databases test_* there.
      variables[variable] = process.env[variable] ?? (await Database.during(t, kind)).url;
    }),
  );
  const suite = spawn('cargo', ARGS, { cwd: REPOSITORY, env: { ...process.env, ...variables } });
  let output = '';
  for (const stream of [suite.stdout, suite.stderr]) stream.on('data', (text: Buffer) => (output += text.toString()));
  const code = await new Promise((done) => suite.once('exit', done));
  assert.equal(code, 0, output);
  assert.match(output, /test result: ok\. [1-9][0-9]+ passed; 0 failed; 0 ignored/, output);
});
