// The builds of the packages: only after a change, and replaced as a whole.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { buildFolder } from '../build-folder.js';

function project(t: TestContext): { home: string; source: string; build: (name?: string) => Promise<boolean> } {
  const home = mkdtempSync(join(tmpdir(), 'tidewire-build-'));
  t.after(() => rmSync(home, { recursive: true }));
  mkdirSync(join(home, 'src'));
  const source = join(home, 'src/index.ts');
  writeFileSync(source, '1');
  /** Returns whether it was built. */
  const build = async (name = 'index'): Promise<boolean> => {
    let isBuilt = false;
    await buildFolder(join(home, 'dist'), [join(home, 'src')], async (folder) => {
      isBuilt = true;
      writeFileSync(join(folder, `${name}.js`), readFileSync(source));
    });
    return isBuilt;
  };
  return { home, source, build };
}

test('a folder is built again only after its inputs have changed, or if it is missing', async (t) => {
  const { home, source, build } = project(t);
  assert.equal(await build(), true);
  assert.equal(await build(), false);
  writeFileSync(source, '2');
  assert.equal(await build('other'), true);
  assert.deepEqual(readdirSync(join(home, 'dist')), ['other.js']);
  rmSync(join(home, 'dist'), { recursive: true });
  assert.equal(await build(), true);
  assert.deepEqual(readdirSync(home).sort(), ['dist', 'dist.inputs', 'src']);
});

test('the previous build is there until the next one is complete, and after one that fails', async (t) => {
  const { home, source, build } = project(t);
  await build();
  writeFileSync(source, '2');
  const failing = buildFolder(join(home, 'dist'), [source], async (folder) => {
    writeFileSync(join(folder, 'part.js'), '');
    assert.deepEqual(readdirSync(join(home, 'dist')), ['index.js']);
    throw new Error('does not compile');
  });
  await assert.rejects(failing, /does not compile/);
  assert.equal(readFileSync(join(home, 'dist/index.js'), 'utf8'), '1');
  assert.equal(await build(), true);
});

test('programs that build the same folder at the same time leave one whole build', async (t) => {
  const { home, build } = project(t);
  await Promise.all(Array.from({ length: 8 }, () => build()));
  assert.deepEqual(readdirSync(home).sort(), ['dist', 'dist.inputs', 'src']);
  assert.ok(existsSync(join(home, 'dist/index.js')));
});
