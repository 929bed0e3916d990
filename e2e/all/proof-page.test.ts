// docs/proof.md keeps only the newest line of each target.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { withNewest } from './proof-page.ts';
import { PROOFS } from './proofs.ts';

const PAGE = readFileSync(resolve(import.meta.dirname, '../../docs/proof.md'), 'utf8');
const targets = PAGE.split('\n').flatMap((line) => line.match(/^\| \d{4}-\d\d-\d\d \| `make proof-([a-z-]+)`/)?.[1] ?? []);

test('a new line replaces the earlier lines of its target and no others', () => {
  const page = '# Proof\n\n| Date | Command |\n|---|---|\n| 1 | `make proof-fuzz` |\n| 2 | `make proof-fuzz-rules` |\n| 3 | `make proof-fuzz`, a part |\n';
  assert.equal(
    withNewest(page, 'make proof-fuzz', '| 4 | `make proof-fuzz` |'),
    '# Proof\n\n| Date | Command |\n|---|---|\n| 2 | `make proof-fuzz-rules` |\n| 4 | `make proof-fuzz` |\n',
  );
});

test('docs/proof.md has one line for each target, made on a committed tree', () => {
  const known = new Set(PROOFS.map((proof) => proof.name));
  assert.deepEqual(targets.filter((target) => !known.has(target)), []);
  assert.deepEqual(targets, [...new Set(targets)]);
  assert.equal(PAGE.split('\n').filter((line) => line.startsWith('| 2')).length, targets.length);
  assert.doesNotMatch(PAGE, /and changes/);
});
