// The package as it is published: its entries and types for ESM and CommonJS, and its size.

import assert from 'node:assert/strict';
import { transformSync } from 'esbuild';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { Packed, isSmall } from '../../client/tests/packed.js';

const PACKAGE = resolve(import.meta.dirname, '..');
/** What a page has to load at most, beside React and the client. */
const BYTES_MAX = 3 * 1024;

const packed = new Packed(PACKAGE);
packed.link('react');

test('publint has nothing to say, and the types are right for every way to import', () => packed.check());

test('it is imported as ESM and as CommonJS, and loads nothing but React', () => {
  const check = 'if (typeof TidewireProvider !== "function" || hooks().useRecord !== useRecord) process.exit(1)';
  packed.runs('program.mjs', `import { TidewireProvider, hooks, useRecord } from '@tidewire/react'\n${check}`);
  packed.runs('program.cjs', `const { TidewireProvider, hooks, useRecord } = require('@tidewire/react')\n${check}`);
});

test('it has no dependency at run time', () => {
  const { dependencies } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8')) as { dependencies?: object };
  assert.equal(dependencies, undefined);
});

test('a page loads at most 3 KB of it', () => {
  const { code } = transformSync(readFileSync(join(PACKAGE, 'dist/esm/index.js'), 'utf8'), { minify: true });
  isSmall('dist/esm/index.js, minified', code, BYTES_MAX);
});

test('both entries say that they are for browsers', () => {
  for (const entry of ['esm', 'cjs']) assert.match(readFileSync(join(PACKAGE, `dist/${entry}/index.js`), 'utf8'), /^(?:"use strict";\n)?['"]use client['"];/);
});
