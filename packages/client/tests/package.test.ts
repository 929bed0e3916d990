// The published package: its entries for ESM and CommonJS, its size, and that importing it has no side effects.
// `e2e/packages/published.test.ts` checks its metadata and types.

import { buildSync, type BuildOptions } from 'esbuild';
import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { runInNewContext } from 'node:vm';
import { Packed, isSmall } from './packed.js';

const PACKAGE = resolve(import.meta.dirname, '..');
/** The most bytes that a page has to load, and the most with offline records. */
const BUNDLE_BYTES_MAX = 12 * 1024;
const OFFLINE_BYTES_MAX = 22 * 1024;
/** The most bytes that each other entry adds. */
const ENTRY_BYTES_MAX = {
  anonymous: 1000,
  devtools: 3600,
  inspect: 2000,
  listen: 1200,
  lists: 1100,
  'live-query': 3.5 * 1024,
  // Loaded by `live-query` when an app edits records of a live query. Includes query.
  'local-edits': 7000,
  offline: 8 * 1024,
  patterns: 1000,
  presence: 1600,
  provide: 1300,
  query: 6000,
  scopes: 1700,
  storage: 1800,
  // Includes lists, live queries, presence, provide and scopes.
  store: 10 * 1024,
  transactions: 1500,
  validation: 1000,
};

const packed = new Packed(PACKAGE);
packed.link('ws');

test('it is imported as ESM and as CommonJS', () => {
  const check = "if (new Client('server:1').state !== 'closed' || !TidewireError) process.exit(1)";
  packed.runs('program.mjs', `import { Client, TidewireError } from '@tidewire/client'\n${check}`);
  packed.runs('program.cjs', `const { Client, TidewireError } = require('@tidewire/client')\n${check}`);
});

test('the module that finds out causes is loaded by both kinds of modules, and is not a part of the core', () => {
  const check = `
    globalThis.fetch = async () => new Response('', { status: 404 })
    class Failing { constructor() { setTimeout(() => this.onclose({ code: 1006 })) } close() {} }
    const client = new Client('server:1', { webSocket: Failing, reconnectMinMs: 1 })
    client.onError((error) => process.exit(error.code === 'PATH_NOT_FOUND' && error instanceof TidewireError ? 0 : 1))
    setTimeout(() => process.exit(2), 10_000)
    client.connect()`;
  packed.runs('cause.mjs', `import { Client, TidewireError } from '@tidewire/client'\n${check}`);
  packed.runs('cause.cjs', `const { Client, TidewireError } = require('@tidewire/client')\n${check}`);
  assert.doesNotMatch(readFileSync(join(PACKAGE, 'dist/tidewire.min.js'), 'utf8'), /PATH_NOT_FOUND/);
});

test('modules that others load when they need them are in the package, for both kinds of modules', () => {
  const found = ['esm', 'cjs'].flatMap((kind) => {
    const folder = join(PACKAGE, 'dist', kind);
    const texts = readdirSync(folder).filter((file) => file.endsWith('.js')).map((file) => readFileSync(join(folder, file), 'utf8'));
    return texts.flatMap((text) => [...text.matchAll(/\bimport\("([^"]+)"\)/g)].map(([, module = '']) => join(folder, module)));
  });
  assert.ok(found.length >= 6, found.join());
  assert.deepEqual(found.filter((file) => !existsSync(file)), []);
});

test('its entries share what they have in common', () => {
  const check = `
    try {
      listen(new Client('server:1').event, '', () => false)
    } catch (error) {
      if (error instanceof TidewireError && error.code === 'INVALID_ARGUMENT') process.exit(0)
    }
    process.exit(1)`;
  packed.runs('entries.mjs', `import { Client, TidewireError } from '@tidewire/client'\nimport { listen } from '@tidewire/client/listen'\n${check}`);
  packed.runs('entries.cjs', `const { Client, TidewireError } = require('@tidewire/client')\nconst { listen } = require('@tidewire/client/listen')\n${check}`);
});

test('the offline entry is imported as ESM and as CommonJS, and returns handles of the client', () => {
  const check = `
    const offline = new Offline(new Client('server:1', { webSocket: class { close() {} } }))
    if (!(offline.open('todo') instanceof RecordHandle)) process.exit(1)
    offline.close()`;
  packed.runs('offline.mjs', `import { Client, RecordHandle } from '@tidewire/client'\nimport { Offline } from '@tidewire/client/offline'\n${check}`);
  packed.runs('offline.cjs', `const { Client, RecordHandle } = require('@tidewire/client')\nconst { Offline } = require('@tidewire/client/offline')\n${check}`);
});

test('the module for pages has every export of each entry', async () => {
  const all = await import('../src/all.js');
  // The store is for the bindings to frameworks, which a bundler loads, and the storages are for other runtimes. Queries are for apps with
  // local copies, which a bundler loads too.
  for (const entry of ['index', ...Object.keys(ENTRY_BYTES_MAX)].filter((entry) => !['store', 'storage', 'query', 'local-edits'].includes(entry))) {
    const names = Object.keys(await import(`../src/${entry}.js`));
    assert.deepEqual(names.filter((name) => !Object.hasOwn(all, name)), [], entry);
  }
});

test('it has no dependency at run time', () => {
  const { dependencies } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8')) as { dependencies?: object };
  assert.equal(dependencies, undefined);
});

test('a page loads at most 12 KB, and at most 22 KB with offline records', () => {
  isSmall('dist/tidewire.min.js', readFileSync(join(PACKAGE, 'dist/tidewire.min.js')), BUNDLE_BYTES_MAX);
  isSmall('dist/tidewire-offline.min.js', readFileSync(join(PACKAGE, 'dist/tidewire-offline.min.js')), OFFLINE_BYTES_MAX);
});

const MODULES = join(PACKAGE, 'dist/esm');
const COMMON: BuildOptions = { absWorkingDir: MODULES, bundle: true, format: 'esm', minify: true, write: false };

for (const [entry, bytesMax] of Object.entries(ENTRY_BYTES_MAX)) {
  test(`the entry ${entry} adds at most ${bytesMax} bytes`, () => {
    const core = buildSync({ ...COMMON, entryPoints: ['index.js'], metafile: true });
    const external = Object.keys(core.metafile?.inputs ?? {}).map((file) => join(MODULES, file));
    // The store loads the offline records by itself when an app uses them.
    if (entry === 'store') external.push(join(MODULES, 'offline.js'));
    if (entry === 'store' || entry === 'live-query') external.push(join(MODULES, 'local-edits.js'));
    const [added] = buildSync({ ...COMMON, entryPoints: [`${entry}.js`], external }).outputFiles ?? [];
    isSmall(`the modules of ${entry} that the core does not load`, added?.text ?? assert.fail(), bytesMax);
  });
}

for (const script of ['tidewire', 'tidewire-offline', 'tidewire-all']) {
  test(`${script} evaluates no text, and reads and writes no global while it is loaded`, () => {
    const bundle = readFileSync(join(PACKAGE, `dist/${script}.min.js`), 'utf8');
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
}
