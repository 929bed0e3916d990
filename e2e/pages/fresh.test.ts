// Checks that the pages in the binary match their sources: a new build gives the same files, byte for byte.

import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { buildPages, COMMITTED, SITES } from './build.ts';

/** The files in `folder`, with their bytes as text. */
function files(folder: string): Record<string, string> {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const paths = entries.map(({ parentPath, name }) => join(parentPath, name)).sort();
  return Object.fromEntries(paths.map((path) => [path.slice(folder.length + 1), readFileSync(path, 'latin1')]));
}

test('the committed pages are fresh; after a change of their sources run `make pages`', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tidewire-pages-'));
  t.after(() => rmSync(folder, { recursive: true }));
  buildPages(folder);
  const [built, committed] = [files(folder), files(COMMITTED)];
  assert.deepEqual(Object.keys(committed), Object.keys(built));
  assert.deepEqual(readdirSync(COMMITTED).sort(), Object.keys(SITES).sort());
  for (const path of Object.keys(built)) assert.ok(committed[path] === built[path], `${path} does not match its source`);
});
