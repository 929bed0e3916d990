// The tests that each binding passes as a package: its entries and types, its size together with the shared store, and no dependency.

import assert from 'node:assert/strict';
import { buildSync, type BuildOptions } from 'esbuild';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { Packed, isSmall } from './packed.js';

const MODULES = resolve(import.meta.dirname, '../dist/esm');
/** The entries of the client that a page loads for what the binding shows. The binding and the shared store come in addition. */
const ENTRIES = ['index.js', 'lists.js', 'live-query.js', 'presence.js', 'provide.js', 'scopes.js'];
/** The most bytes of the binding itself. */
const BYTES_MAX = 3 * 1024;
/** The most bytes that a page has to load of the binding and of the shared store, in addition to the framework and these entries. */
export const BYTES_WITH_STORE_MAX = 4.75 * 1024;

interface Manifest {
  name: string;
  exports: { '.': { require?: object } };
  dependencies?: object;
}

/** The text that a page loads of the binding, together with the modules that it imports. */
function loaded(home: string, frameworks: readonly string[], withStore: boolean): string {
  // Without the `paths` of tsconfig.json, which lead to the sources of the client instead of the package.
  const common: BuildOptions = { bundle: true, format: 'esm', minify: true, write: false, logLevel: 'error', tsconfigRaw: {} };
  const { metafile } = buildSync({ ...common, absWorkingDir: MODULES, entryPoints: ENTRIES, outdir: MODULES, metafile: true });
  const external = [...frameworks, ...Object.keys(metafile?.inputs ?? {}).map((file) => join(MODULES, file))];
  // The store loads the offline records by itself when an app uses them.
  external.push(join(MODULES, 'offline.js'), join(MODULES, 'local-edits.js'));
  if (!withStore) external.push('@tidewire/client');
  const { outputFiles } = buildSync({ ...common, entryPoints: [join(home, 'dist/esm/index.js')], external });
  return outputFiles?.[0]?.text ?? assert.fail('esbuild has an output');
}

/** Defines the tests of the binding in `home`, which `npm test` has built. `check` is a program that exits with 0 if `names` are right. */
export function testBinding(home: string, frameworks: readonly string[], names: readonly string[], check: string, withStoreMax = BYTES_WITH_STORE_MAX): Packed {
  const { name, exports, dependencies } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8')) as Manifest;
  const isEsmOnly = !exports['.'].require;
  const packed = new Packed(home);
  for (const module of [...frameworks, '@tidewire/client']) packed.link(module);

  test('it is imported in every way, and loads nothing but its framework', () => {
    packed.runs('program.mjs', `import { ${names.join()} } from '${name}'\n${check}`);
    if (!isEsmOnly) packed.runs('program.cjs', `const { ${names.join()} } = require('${name}')\n${check}`);
  });

  test('it has no dependency at run time', () => assert.equal(dependencies, undefined));

  test(`a page loads at most 3 KB of it, and with the shared store at most ${withStoreMax} bytes`, () => {
    isSmall(`${name}, minified`, loaded(home, frameworks, false), BYTES_MAX);
    const text = loaded(home, frameworks, true);
    // The store is in the text, so its size counts.
    assert.match(text, /closeReason/);
    isSmall(`${name} and the store, minified`, text, withStoreMax);
  });

  return packed;
}
