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

/** A member of the table of protocols. */
const MEMBER = /\bProtocol::(?!ALL\b)[A-Z]/;

/** The lines of a text that match, with their numbers. */
function lines(text: string, pattern: RegExp): string[] {
  return text.split('\n').flatMap((line, index) => (pattern.test(line) ? [`${index + 1}: ${line.trim()}`] : []));
}

/** The lines in the sources of these crates that match, with their files and numbers. */
function inSources(crates: string[], pattern: RegExp): string[] {
  return crates.flatMap((crate) => {
    const folder = join(ROOT, 'crates', `tidewire-${crate}`, 'src');
    const files = rustFiles(folder);
    assert(files.length > 0, folder);
    return files.flatMap((file) => lines(readFileSync(join(folder, file), 'utf8'), pattern).map((line) => `${crate}/${file}:${line}`));
  });
}

test('no crate but wire, the front and the commands names a protocol', () => {
  assert.deepEqual(inSources(CRATES, NAMES), []);
});

test('the front takes the protocol of a path from the table', () => {
  assert.deepEqual(inSources([...CRATES, 'http', 'config'], MEMBER), []);
});

test('finds a name in code and in a comment', () => {
  assert.deepEqual(lines('use wire::protocol::Protocol;\nlet codec = Deepstream;', NAMES), ['2: let codec = Deepstream;']);
  assert.deepEqual(lines('// as protobuf', NAMES), ['1: // as protobuf']);
  assert.deepEqual(lines('Protocol::ALL[0];\nProtocol::Deepstream', MEMBER), ['2: Protocol::Deepstream']);
});
