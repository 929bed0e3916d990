// The package as it is published: its entries and types for ESM and CommonJS, and its size.

import assert from 'node:assert/strict';
import { buildSync, transformSync } from 'esbuild';
import { readFileSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { Packed, isSmall } from '../../client/tests/packed.js';

const PACKAGE = resolve(import.meta.dirname, '..');
/** The most bytes that a page has to load, in addition to React and the client. */
const BYTES_MAX = 3 * 1024;
/** The most bytes that the entry of lists adds. */
const LISTS_BYTES_MAX = 600;

const packed = new Packed(PACKAGE);
packed.link('react');
packed.link('react-dom');
packed.link('@tidewire/client');

test('publint reports nothing, and the types are right for every way to import', () => packed.check());

test('it is imported as ESM and as CommonJS, and loads nothing but React', () => {
  const check = 'if (typeof TidewireProvider !== "function" || hooks().useRecord !== useRecord) process.exit(1)';
  packed.runs('program.mjs', `import { TidewireProvider, hooks, useRecord } from '@tidewire/react'\n${check}`);
  packed.runs('program.cjs', `const { TidewireProvider, hooks, useRecord } = require('@tidewire/react')\n${check}`);
});

test('the entry of lists shares the provider of the other one', () => {
  const check = `
    const List = () => useList('names', { initial: ['milk'] }).value[0]
    const page = createElement(TidewireProvider, { client: new Client('server:1') }, createElement(List))
    if (listHooks().useList !== useList || renderToString(page) !== 'milk') process.exit(1)`;
  const names = [
    ['{ Client }', '@tidewire/client'],
    ['{ TidewireProvider }', '@tidewire/react'],
    ['{ listHooks, useList }', '@tidewire/react/lists'],
    ['{ createElement }', 'react'],
    ['{ renderToString }', 'react-dom/server'],
  ];
  packed.runs('lists.mjs', names.map(([what, from]) => `import ${what} from '${from}'\n`).join('') + check);
  packed.runs('lists.cjs', names.map(([what, from]) => `const ${what} = require('${from}')\n`).join('') + check);
});

test('it has no dependency at run time', () => {
  const { dependencies } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8')) as { dependencies?: object };
  assert.equal(dependencies, undefined);
});

/** An entry as a page loads it, together with the modules that it imports. */
function loaded(entry: string): string {
  const entryPoints = [join(PACKAGE, `dist/esm/${entry}.js`)];
  const { outputFiles } = buildSync({ entryPoints, bundle: true, external: ['react', '@tidewire/client'], format: 'esm', minify: true, write: false });
  return outputFiles[0]?.text ?? '';
}

test('a page loads at most 3 KB of it', () => {
  isSmall('dist/esm/index.js with its modules, minified', loaded('index'), BYTES_MAX);
});

test(`the entry of lists adds at most ${LISTS_BYTES_MAX} bytes`, () => {
  const { code } = transformSync(readFileSync(join(PACKAGE, 'dist/esm/lists.js'), 'utf8'), { minify: true });
  isSmall('dist/esm/lists.js, minified', code, LISTS_BYTES_MAX);
});

test('all modules are marked as client components', () => {
  for (const kind of ['esm', 'cjs']) {
    const modules = readdirSync(join(PACKAGE, 'dist', kind)).filter((file) => file.endsWith('.js'));
    assert.ok(modules.length >= 2);
    for (const file of modules) assert.match(readFileSync(join(PACKAGE, 'dist', kind, file), 'utf8'), /^(?:"use strict";\n)?['"]use client['"];/, `${kind}/${file}`);
  }
});
