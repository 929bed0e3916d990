// The package as it is published: its entries and types for ESM and CommonJS, its size, and that importing it does nothing.

import { transformSync } from 'esbuild';
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { runInNewContext } from 'node:vm';
import { gzipSync } from 'node:zlib';

const PACKAGE = resolve(import.meta.dirname, '..');
const TOOLS = join(PACKAGE, 'node_modules/.bin');
/** What a page has to load at most. */
const BUNDLE_BYTES_MAX = 12 * 1024;
/** What the other entries add to that at most. */
const ENTRY_BYTES_MAX = { listen: 1100 };

let folder = '';
let tarball = '';

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'tidewire-client-'));
  // The build has run before: `npm test` does it.
  execFileSync('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', folder], { cwd: PACKAGE });
  const packed = readdirSync(folder)[0];
  assert.ok(packed, 'npm pack wrote a file');
  tarball = join(folder, packed);
  const home = join(folder, 'node_modules/@tidewire/client');
  mkdirSync(home, { recursive: true });
  execFileSync('tar', ['-xzf', tarball, '--strip-components=1', '-C', home]);
  symlinkSync(join(PACKAGE, 'node_modules/ws'), join(folder, 'node_modules/ws'));
});
after(() => rmSync(folder, { recursive: true }));

/** Runs a program in a folder that has the package installed. */
function runs(name: string, text: string): void {
  writeFileSync(join(folder, name), text);
  const ran = spawnSync(process.execPath, [name], { cwd: folder, encoding: 'utf8' });
  assert.equal(ran.status, 0, ran.stderr);
}

test('publint has nothing to say', () => {
  const ran = spawnSync(join(TOOLS, 'publint'), [tarball, '--strict'], { encoding: 'utf8' });
  assert.equal(ran.status, 0, ran.stdout + ran.stderr);
});

test('the types are right for every way to import', () => {
  const ran = spawnSync(join(TOOLS, 'attw'), [tarball, '--exclude-entrypoints', './tidewire.min.js'], { encoding: 'utf8' });
  assert.equal(ran.status, 0, ran.stdout + ran.stderr);
});

test('it is imported as ESM and as CommonJS', () => {
  const check = "if (new Client('server:1').state !== 'closed' || !TidewireError) process.exit(1)";
  runs('program.mjs', `import { Client, TidewireError } from '@tidewire/client'\n${check}`);
  runs('program.cjs', `const { Client, TidewireError } = require('@tidewire/client')\n${check}`);
});

test('its entries share what they have in common', () => {
  const check = `
    try {
      listen(new Client('server:1').event, '', () => false)
    } catch (error) {
      if (error instanceof TidewireError && error.code === 'INVALID_ARGUMENT') process.exit(0)
    }
    process.exit(1)`;
  runs('entries.mjs', `import { Client, TidewireError } from '@tidewire/client'\nimport { listen } from '@tidewire/client/listen'\n${check}`);
  runs('entries.cjs', `const { Client, TidewireError } = require('@tidewire/client')\nconst { listen } = require('@tidewire/client/listen')\n${check}`);
});

test('it has no dependency at run time', () => {
  const { dependencies } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8')) as { dependencies?: object };
  assert.equal(dependencies, undefined);
});

test('a page loads at most 12 KB', () => {
  const bundle = readFileSync(join(PACKAGE, 'dist/tidewire.min.js'));
  const bytes = gzipSync(bundle, { level: 9 }).length;
  console.log(`dist/tidewire.min.js: ${bytes} bytes with gzip`);
  assert.ok(bytes <= BUNDLE_BYTES_MAX, `${bytes} bytes`);
});

for (const [entry, bytesMax] of Object.entries(ENTRY_BYTES_MAX)) {
  test(`the entry ${entry} adds at most ${bytesMax} bytes`, () => {
    const { code } = transformSync(readFileSync(join(PACKAGE, `dist/esm/${entry}.js`), 'utf8'), { minify: true });
    const bytes = gzipSync(code, { level: 9 }).length;
    console.log(`dist/esm/${entry}.js: ${bytes} bytes with gzip`);
    assert.ok(bytes <= bytesMax, `${bytes} bytes`);
  });
}

test('it evaluates no text, and needs and touches no global while it is loaded', () => {
  const bundle = readFileSync(join(PACKAGE, 'dist/tidewire.min.js'), 'utf8');
  const touched: string[] = [];
  const language = new Set(Object.getOwnPropertyNames(globalThis).filter((name) => name in runInNewContext('globalThis')));
  const page = new Proxy({} as Record<string, unknown>, {
    has: (_target, name) => typeof name === 'string' && name !== 'Tidewire' && !language.has(name),
    get: (target, name) => {
      if (typeof name === 'string') touched.push(name);
      return target[name as string];
    },
  });
  const context = { page };
  runInNewContext(`with (page) { ${bundle} }`, context, { contextCodeGeneration: { strings: false, wasm: false } });
  assert.deepEqual(touched, []);
  assert.equal(typeof (context as unknown as { Tidewire: { Client: unknown } }).Tidewire.Client, 'function');
  assert.doesNotMatch(bundle, /\beval\b|\bFunction\(/);
});
