// Checks the client's codec against the same vectors as the server's codec.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { test } from 'node:test';
import { decode, encode } from '../src/codec.js';
import { Topic, type Message } from '../src/protocol.js';
import { decodeText, encodeText } from '../src/utf8.js';

interface Vector {
  name: string;
  hex: string;
  topicNumber: number;
  actionNumber: number;
  /** With bytes as `base64`. */
  fields: Partial<Message> & { base64?: string; versions?: object; attachments?: string[] };
}

const FOLDER = resolve(import.meta.dirname, '../../../spec/vectors/deepstream');
const ALL = ['messages.json', 'additions.json'].flatMap((file) => JSON.parse(readFileSync(resolve(FOLDER, file), 'utf8')) as Vector[]);
/** Without attachments, which this client does not read, and the answer of versions by name, which it never requests. */
const VECTORS = ALL.filter(({ fields }) => !fields.versions && !fields.attachments);

function message({ topicNumber, actionNumber, fields }: Vector): Message {
  const { base64, ...others } = fields;
  const bytes = base64 === undefined ? {} : { bytes: new Uint8Array(Buffer.from(base64, 'base64')) };
  return { topic: topicNumber, action: actionNumber, ...others, ...bytes };
}
const bytes = (hex: string): Uint8Array => Uint8Array.from(Buffer.from(hex, 'hex'));

test('the number of vectors matches the specification', () => {
  assert.ok(VECTORS.length >= 130, `${VECTORS.length} vectors`);
});

for (const vector of VECTORS) {
  test(`vector: ${vector.name}`, () => {
    assert.deepEqual(decode(bytes(vector.hex)), [message(vector)]);
    assert.equal(Buffer.from(encode(message(vector))).toString('hex'), vector.hex);
  });
}

test('attachments of events are skipped', () => {
  const vectors = ALL.filter(({ fields }) => fields.attachments);
  assert.equal(vectors.length, 2);
  for (const vector of vectors) {
    const { attachments: _, ...fields } = vector.fields;
    assert.deepEqual(decode(bytes(vector.hex)), [message({ ...vector, fields })]);
  }
});

test('a batch decodes to its messages in order', () => {
  const batch = bytes(VECTORS.map(({ hex }) => hex).join(''));
  assert.deepEqual(decode(batch), VECTORS.map(message));
});

test('every incomplete message is refused, and no byte is read after its end', () => {
  for (const { hex } of VECTORS) {
    const whole = bytes(hex);
    for (let length = 1; length < whole.length; length += 1) {
      assert.throws(() => decode(whole.slice(0, length)), /bytes that are not a message/);
    }
  }
});

test('random bytes decode to messages or are refused', () => {
  let seed = 1;
  const random = (): number => (seed = (seed * 48_271) % 0x7fffffff);
  let refused = 0;
  for (let round = 0; round < 20_000; round += 1) {
    const noise = bytes(VECTORS[random() % VECTORS.length]?.hex ?? '');
    noise[random() % noise.length] = random() & 255;
    try {
      decode(noise);
    } catch (error) {
      assert.match((error as Error).message, /bytes that are not a message/);
      refused += 1;
    }
  }
  assert.ok(refused > 1_000, `${refused} refused`);
});

test('unknown fields of any type are skipped', () => {
  // Fields 90 to 93 of the event as varint, bytes, fixed64 and fixed32, before its action.
  const strange = 'd00501' + 'da050161' + 'e1050102030405060708' + 'ed0501020304';
  const content = `${strange}0802`;
  const envelope = `10041a${(content.length / 2).toString(16)}${content}`;
  const frame = `${(envelope.length / 2).toString(16)}${envelope}`;
  assert.deepEqual(decode(bytes(frame)), [{ topic: Topic.Event, action: 2 }]);
});

test('numbers at their limits survive a round trip', () => {
  for (const version of [0, 1, 127, 128, 2 ** 31 - 1, -1, -(2 ** 31)]) {
    assert.deepEqual(decode(encode({ topic: Topic.Record, action: 18, version })), [{ topic: Topic.Record, action: 18, version }]);
  }
  for (const incarnation of [0, 2 ** 31, 2 ** 49 - 1, bytes('8080808080808001'), bytes('ffffffffffffffffff01')]) {
    assert.deepEqual(decode(encode({ topic: Topic.Record, action: 18, incarnation })), [{ topic: Topic.Record, action: 18, incarnation }]);
  }
  for (const offset of [0, 2 ** 31, 2 ** 32, Number.MAX_SAFE_INTEGER]) {
    assert.deepEqual(decode(encode({ topic: Topic.Event, action: 2, offset })), [{ topic: Topic.Event, action: 2, offset }]);
  }
});

test('text without TextEncoder and TextDecoder is the same', (t) => {
  const texts = ['', 'plain', 'größe', '日本\u2028', '🎉 \u{10ffff}', '\ufeffmark', '\ud800 half', '\u0000\u007f\u0080\u07ff\u0800\uffff'];
  const expected = texts.map((text) => Buffer.from(text).toString('hex'));
  for (const name of ['TextEncoder', 'TextDecoder'] as const) {
    const original = globalThis[name];
    t.after(() => Object.assign(globalThis, { [name]: original }));
    Reflect.deleteProperty(globalThis, name);
  }
  assert.equal(typeof TextEncoder, 'undefined');
  texts.forEach((text, i) => {
    assert.equal(Buffer.from(encodeText(text)).toString('hex'), expected[i]);
    assert.equal(decodeText(encodeText(text)), text.replace('\ud800', '\ufffd'));
  });
});
