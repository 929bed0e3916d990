// Checks that the references match the program, the server and the sources of the client. TIDEWIRE_WRITE=1 writes them again.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { url } from '../harness/http.ts';
import { Server } from '../harness/server.ts';
import { REPOSITORY } from './block.ts';
import { cliReference } from './reference-cli.ts';
import { clientReference } from './reference-client.ts';
import { httpReference, type OpenApi } from './reference-http.ts';

function checkGenerated(path: string, expected: string): void {
  const full = join(REPOSITORY, path);
  if (process.env['TIDEWIRE_WRITE'] !== undefined) writeFileSync(full, expected);
  const found = readFileSync(full, 'utf8');
  assert.ok(found === expected, `${path} is out of date; run npm --prefix e2e run references`);
}

test('docs/cli.md matches --help', () => {
  const page = cliReference();
  assert.ok(page.includes('`tidewire store backup`') && page.includes('--password-file <FILE>'), page);
  checkGenerated('docs/cli.md', page);
});

test('docs/http-reference.md matches /openapi.json', async (t) => {
  const server = await Server.during(t);
  const answer = await fetch(url(server, '/openapi.json'));
  checkGenerated('docs/http-reference.md', httpReference((await answer.json()) as OpenApi));
});

test('docs/client-api.md matches the sources of the client', () => {
  const { exports } = JSON.parse(readFileSync(join(REPOSITORY, 'packages/client/package.json'), 'utf8')) as { exports: Record<string, unknown> };
  const entries = Object.keys(exports).filter((entry) => !/\.js(on)?$/.test(entry)).map((entry) => (entry === '.' ? 'index' : entry.slice(2)));
  assert.ok(entries.length >= 4, entries.join());
  const page = clientReference(entries);
  assert.ok(page.includes('setWithAck') && !page.includes('#interest'), 'methods are listed, private members are not');
  checkGenerated('docs/client-api.md', page);
});
