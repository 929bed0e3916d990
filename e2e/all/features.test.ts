// A build of the server alone reuses the crates from a build of the workspace. If one feature differs, `make run` compiles the server
// again after every `make test`, which takes minutes.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { run } from '../harness/program.ts';

const ROOT = join(import.meta.dirname, '../..');

/** The crates that a build with the options `what` links, each with its features. */
function linked(...what: string[]): Set<string> {
  const options = ['--edges', 'normal,build', '--prefix', 'none', '--no-dedupe', '--format', '{p} {f}'];
  const lines = run('cargo', ['tree', '--locked', ...options, ...what], { cwd: ROOT }).split('\n');
  return new Set(lines.map((line) => line.trim()).filter((line) => line !== ''));
}

test('a build of the server alone has each crate with the same features as a build of the workspace', () => {
  const inWorkspace = linked('--workspace');
  const alone = [...linked('--package', 'tidewire')];
  assert.ok(alone.length > 100, `only ${alone.length} crates`);
  assert.deepEqual(alone.filter((crate) => !inWorkspace.has(crate)), []);
});

test('the comparison finds a feature that only one of two builds enables', () => {
  const inWorkspace = linked('--workspace');
  const other = [...linked('--package', 'tidewire', '--no-default-features')];
  assert.ok(other.some((crate) => !inWorkspace.has(crate)));
});
