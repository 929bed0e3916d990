// Every published package, packed as it is published: its metadata, its licences, its links, and the reports of publint and attw.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { run } from '../harness/program.ts';
import { PUBLISHED, siteOf, withSiteLinks } from '../packaging/npm.ts';
import { tarball } from './project.ts';

const REPOSITORY = resolve(import.meta.dirname, '../..');
const TOOLS = join(REPOSITORY, 'packages/client/node_modules/.bin');
const SITE = siteOf(JSON.parse(readFileSync(join(REPOSITORY, 'packages/tidewire/package.json'), 'utf8')));
const DOCUMENTS = `${SITE}/blob/main/`;
/** Packages that contain types, with the arguments of attw. Scripts for pages have no types. */
const TYPED: Record<string, string[]> = {
  '@tidewire/client': ['--exclude-entrypoints', './tidewire.min.js', './tidewire-offline.min.js', './tidewire-all.min.js'],
  '@tidewire/react': [],
  '@tidewire/vue': [],
  '@tidewire/svelte': ['--profile', 'esm-only'],
  '@tidewire/solid': [],
  '@tidewire/server': [],
  '@tidewire/socket.io': [],
};

interface Manifest {
  name: string;
  description: string;
  license: string;
  keywords: string[];
  homepage: string;
  repository: { url: string; directory: string };
  devDependencies?: object;
}

/** A file of a packed package. */
function packed(name: string, path: string): string {
  return run('tar', ['-xzOf', tarball(name), `package/${path}`]);
}

function lint(tool: string, ...args: string[]): void {
  const { status, stdout, stderr } = spawnSync(join(TOOLS, tool), args, { encoding: 'utf8' });
  assert.equal(status, 0, `${tool}: ${stdout}${stderr}`);
}

for (const [name, folder] of Object.entries(PUBLISHED)) {
  test(`${name}: publint reports nothing`, () => lint('publint', tarball(name), '--strict'));

  const types = TYPED[name];
  if (types) test(`${name}: attw finds the types for every way to import`, () => lint('attw', tarball(name), ...types));

  test(`${name}: it names its repository and has the licences`, () => {
    const manifest = JSON.parse(packed(name, 'package.json')) as Manifest;
    assert.equal(manifest.license, 'MIT OR Apache-2.0');
    assert.deepEqual(manifest.repository, { type: 'git', url: `git+${SITE}.git`, directory: `packages/${folder}` });
    assert.equal(manifest.homepage, `${SITE}#readme`);
    assert.ok(manifest.description.length > 20 && manifest.keywords.length >= 4);
    assert.equal(manifest.devDependencies, undefined);
    for (const licence of ['LICENSE-APACHE', 'LICENSE-MIT']) assert.ok(packed(name, licence).length > 1_000, licence);
  });

  test(`${name}: the links of its README lead to documents of the repository`, () => {
    const targets = [...packed(name, 'README.md').matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = '']) => target);
    assert.ok(targets.length > 0);
    for (const target of targets.filter((target) => !target.startsWith('#'))) {
      assert.ok(target.startsWith(DOCUMENTS), target);
      const [path = ''] = target.slice(DOCUMENTS.length).split('#');
      assert.ok(existsSync(join(REPOSITORY, path)), target);
    }
  });
}

test('packing changes links, not code, and refuses a link to nothing', () => {
  const home = join(REPOSITORY, 'packages/client');
  const change = (text: string): string => withSiteLinks(text, home, DOCUMENTS);
  assert.equal(change('[a](../../docs/client.md#lists) [b](#c) [d](https://e.example)'), `[a](${DOCUMENTS}docs/client.md#lists) [b](#c) [d](https://e.example)`);
  const code = '```js\ncalls[0](first)\n```\n';
  assert.equal(change(code), code);
  assert.throws(() => change('[a](missing.md)'), /missing\.md/);
});
