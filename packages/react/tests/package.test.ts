// The package as it is published: its entries for ESM and CommonJS, and its size. `e2e/packages/published.test.ts` checks its metadata and types.

import assert from 'node:assert/strict';
import { transformSync } from 'esbuild';
import { readFileSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { testBinding } from '../../client/tests/binding.js';
import { isSmall } from '../../client/tests/packed.js';

const PACKAGE = resolve(import.meta.dirname, '..');
/** The most bytes that a page has to load of the hooks and of the store, in addition to React and the client. */
const WITH_STORE_BYTES_MAX = 3.5 * 1024;
/** The most bytes that each further entry adds. */
const ENTRY_BYTES_MAX = 600;

const check = 'if (typeof TidewireProvider !== "function" || hooks().useRecord !== useRecord) process.exit(1)';
const packed = testBinding(PACKAGE, ['react', 'react-dom'], ['TidewireProvider', 'hooks', 'useRecord'], check, WITH_STORE_BYTES_MAX);

test('the further entries share the provider of the first one', () => {
  const check = `
    const All = () => {
      const [entries, rows] = [useList('names', { initial: ['milk'] }), useQuery('todos', {}, { initial: [{ id: '7' }] })]
      return entries.value[0] + rows.value[0].id + useMembers('board', { x: 1 }, { initial: [{ id: '8' }] }).value[0].id
    }
    const page = createElement(TidewireProvider, { client: new Client('server:1') }, createElement(All))
    const areSame = listHooks().useList === useList && queryHooks().useQuery === useQuery && scopeHooks().useMembers === useMembers
    if (!areSame || renderToString(page) !== 'milk78') process.exit(1)`;
  const names = [
    ['{ Client }', '@tidewire/client'],
    ['{ TidewireProvider }', '@tidewire/react'],
    ['{ listHooks, useList }', '@tidewire/react/lists'],
    ['{ queryHooks, useQuery }', '@tidewire/react/queries'],
    ['{ scopeHooks, useMembers }', '@tidewire/react/scopes'],
    ['{ createElement }', 'react'],
    ['{ renderToString }', 'react-dom/server'],
  ];
  packed.runs('entries.mjs', names.map(([what, from]) => `import ${what} from '${from}'\n`).join('') + check);
  packed.runs('entries.cjs', names.map(([what, from]) => `const ${what} = require('${from}')\n`).join('') + check);
});

for (const entry of ['lists', 'queries', 'scopes']) {
  test(`the entry of ${entry} adds at most ${ENTRY_BYTES_MAX} bytes`, () => {
    const { code } = transformSync(readFileSync(join(PACKAGE, `dist/esm/${entry}.js`), 'utf8'), { minify: true });
    isSmall(`dist/esm/${entry}.js, minified`, code, ENTRY_BYTES_MAX);
  });
}

test('all modules are marked as client components', () => {
  for (const kind of ['esm', 'cjs']) {
    const modules = readdirSync(join(PACKAGE, 'dist', kind)).filter((file) => file.endsWith('.js'));
    assert.ok(modules.length >= 2);
    for (const file of modules) assert.match(readFileSync(join(PACKAGE, 'dist', kind, file), 'utf8'), /^(?:"use strict";\n)?['"]use client['"];/, `${kind}/${file}`);
  }
});
