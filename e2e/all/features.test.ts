// A build of the server alone takes the crates that a build of the workspace has made. If one feature differs, `make run` compiles
// the server again after every `make test`, which takes minutes.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { run } from '../harness/program.ts';

const ROOT = join(import.meta.dirname, '../..');

/** The crates that a build of `what` links, each with its features. */
function linked(...what: string[]): Set<string> {
  const options = ['--edges', 'normal,build', '--prefix', 'none', '--no-dedupe', '--format', '{p} {f}'];
  const lines = run('cargo', ['tree', '--locked', ...options, ...what], { cwd: ROOT }).split('\n');
  return new Set(lines.map((line) => line.trim()).filter((line) => line !== ''));
}

test('the server alone has the features of its dependencies that it has in the workspace', () => {
  const inWorkspace = linked('--workspace');
  const alone = [...linked('--package', 'tidewire')];
  assert.ok(alone.length > 100, `only ${alone.length} crates`);
  assert.deepEqual(alone.filter((crate) => !inWorkspace.has(crate)), []);
});

test('a feature that only one of two builds has is found', () => {
  const inWorkspace = linked('--workspace');
  const other = [...linked('--package', 'tidewire', '--no-default-features')];
  assert.ok(other.some((crate) => !inWorkspace.has(crate)));
});
