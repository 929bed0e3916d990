// deepstream's own JavaScript codec decodes every message that Tidewire's codec wrote into the fuzz corpus, and encodes it
// again to the same bytes. The vectors in the corpus came from that codec; the other messages came from ours.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, test } from 'node:test';

interface JsMessage {
  parseError?: boolean;
  requestorData?: string;
}

// The package exports no entry with both halves, so load them by their paths.
const require = createRequire(import.meta.url);
const { parse } = require('@deepstream/protobuf/dist/src/message-parser') as {
  parse(bytes: Buffer): JsMessage[];
};
const { getMessage } = require('@deepstream/protobuf/dist/src/message-builder') as {
  getMessage(message: JsMessage, isAck: boolean): Uint8Array;
};

const ARCHIVE = resolve(import.meta.dirname, '../../fuzz/corpus/decode.tar.gz');
const CORPUS = mkdtempSync(join(tmpdir(), 'corpus-'));
execFileSync('tar', ['-xzf', ARCHIVE, '-C', CORPUS]);
after(() => rmSync(CORPUS, { recursive: true }));

/** The payload of a seed's only frame: two bytes of settings, then a frame whose mask, if any, is zero. */
function payload(seed: Buffer): Buffer {
  const masked = (seed[3]! & 0x80) !== 0;
  const long = (seed[3]! & 0x7f) === 126;
  return seed.subarray(2 + 2 + (long ? 2 : 0) + (masked ? 4 : 0));
}

const seeds = readdirSync(CORPUS).filter((name) => /^(vector|message)-/.test(name));

test('the corpus holds the vectors and the messages that no vector has', () => {
  assert.ok(seeds.filter((name) => name.startsWith('vector-')).length === 109);
  assert.ok(seeds.filter((name) => name.startsWith('message-')).length > 80);
});

for (const name of seeds) {
  test(`${name} comes back from the JavaScript codec`, () => {
    const bytes = payload(readFileSync(resolve(CORPUS, name)));
    const [message] = parse(bytes);
    assert.ok(message !== undefined && message.parseError !== true);
    // The builder treats this field as a value and encodes it again, so pass it decoded.
    if (message.requestorData !== undefined) {
      message.requestorData = JSON.parse(message.requestorData);
    }
    assert.equal(Buffer.from(getMessage(message, false)).toString('hex'), bytes.toString('hex'));
  });
}
