// Each patch applies to the tree and compiles, and the list names each planted fault. `red.test.ts` shows that the tests find them.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { run } from '../harness/program.ts';
import { FAULTS } from './list.ts';
import { apply, BASE, makeTree, PATCHES, patches, REPOSITORY } from './tree.ts';

const text = (patch: string): string => readFileSync(join(PATCHES, `${patch}.patch`), 'utf8');

test('the list and the patches name the same faults', () => {
  const planted = patches().flatMap((patch) => [...text(patch).matchAll(/is_planted\("([^"]+)"\)/g)].map(([, name]) => `${patch}: ${name}`));
  assert.deepEqual([...new Set(planted)].sort(), FAULTS.map(({ name, patch }) => `${patch}: ${name}`).sort());
});

test('each test in the list exists', () => {
  for (const { foundBy } of FAULTS) {
    // A property has parameters.
    const pattern = `fn ${foundBy.test.split('::').at(-1)}(`;
    const { status } = spawnSync('git', ['grep', '--quiet', '--fixed-strings', pattern, '--', `crates/${foundBy.package}`], { cwd: REPOSITORY });
    assert.equal(status, 0, `${foundBy.package} has ${pattern}`);
  }
});

test('no source of the product has a planted fault', () => {
  const found = spawnSync('git', ['grep', '--line-number', 'is_planted\\|planted_fault', '--', 'crates/*/src'], { cwd: REPOSITORY, encoding: 'utf8' });
  assert.equal(found.status, 1, found.stdout + found.stderr);
});

test('a patch that no longer applies is a failure that names it', (t) => {
  const folder = makeTree('faults-stale', []);
  t.after(() => rmSync(folder, { recursive: true }));
  const [patch] = patches().filter((name) => name !== BASE) as [string];
  const file = join(folder, /^\+\+\+ b\/(.+)$/m.exec(text(patch))?.[1] as string);
  const removed = /^[- ](.*\w.*)$/m.exec(text(patch).split(/^@@.*$/m)[1] as string)?.[1] as string;
  const source = readFileSync(file, 'utf8');
  assert.ok(source.includes(removed), `${file} has the line ${removed}`);
  writeFileSync(file, source.replaceAll(removed, `${removed} // changed`));
  assert.throws(() => apply(folder, join(PATCHES, `${patch}.patch`)), new RegExp(`${patch}\\.patch[^]*patch does not apply`));
});

test('all patches apply to one copy of the tree, which compiles', () => {
  const folder = makeTree('faults', patches());
  const env = { ...process.env, CARGO_TARGET_DIR: join(REPOSITORY, 'target') };
  run('cargo', ['check', '--quiet', '--locked', '--workspace', '--all-features', '--lib'], { cwd: folder, env });
});
