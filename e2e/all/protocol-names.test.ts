// Only `tidewire-wire` knows the protocols. The crates below the front name none, comments and tests in `src` included.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { rustFiles } from './imports.ts';

const ROOT = join(import.meta.dirname, '../..');
const CRATES = ['core', 'rules', 'net', 'shard', 'store', 'auth', 'server'];
/** The names of protocols and of their encodings. */
const NAMES = /deepstream|protobuf|dialect|socket\.?io|feathers|meteor|mqtt/i;

/** The lines of a text that name a protocol, with their numbers. */
function named(text: string): string[] {
  return text.split('\n').flatMap((line, index) => (NAMES.test(line) ? [`${index + 1}: ${line.trim()}`] : []));
}

test('no crate but wire, the front and the commands names a protocol', () => {
  const found = CRATES.flatMap((crate) => {
    const folder = join(ROOT, 'crates', `tidewire-${crate}`, 'src');
    const files = rustFiles(folder);
    assert(files.length > 0, folder);
    return files.flatMap((file) => named(readFileSync(join(folder, file), 'utf8')).map((line) => `${crate}/${file}:${line}`));
  });
  assert.deepEqual(found, []);
});

test('finds a name in code and in a comment', () => {
  assert.deepEqual(named('use wire::protocol::Protocol;\nlet codec = Deepstream;'), ['2: let codec = Deepstream;']);
  assert.deepEqual(named('// as protobuf'), ['1: // as protobuf']);
});
