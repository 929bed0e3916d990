// The messages of `spec/vectors/deepstream/backend.json`, which the server reads and writes, too.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { addressesOf, addressOf } from '../src/backend.js';
import { Action, Topic, decode, encode, type Message } from '../src/codec.js';

interface Vector {
  name: string;
  hex: string;
  action: keyof typeof Action;
  actionNumber: number;
  fields: Partial<Omit<Message, 'attachments'>> & { attachments?: string[] };
}

const FILE = join(import.meta.dirname, '../../../spec/vectors/deepstream/backend.json');
const VECTORS = JSON.parse(readFileSync(FILE, 'utf8')) as Vector[];

function messageOf({ actionNumber: action, fields: { attachments, ...fields } }: Vector): Message {
  const bytes = attachments?.map((text) => Buffer.from(text, 'base64'));
  return { topic: Topic.BACKEND, action, ...fields, ...(bytes && { attachments: bytes }) };
}

for (const vector of VECTORS) {
  test(`vector: ${vector.name}`, () => {
    assert.equal(Action[vector.action], vector.actionNumber);
    assert.equal(encode(messageOf(vector)).toString('hex'), vector.hex);
    assert.deepEqual(decode(Buffer.from(vector.hex, 'hex')), [messageOf(vector)]);
  });
}

test('every action has a vector', () => {
  const numbers = new Set(VECTORS.map(({ actionNumber }) => actionNumber));
  assert.deepEqual(Object.entries(Action).filter(([, number]) => !numbers.has(number)), []);
});

test('a frame has several messages', () => {
  const frame = Buffer.from(VECTORS.map(({ hex }) => hex).join(''), 'hex');
  assert.deepEqual(decode(frame), VECTORS.map(messageOf));
});

test('an incomplete message is refused', () => {
  for (const { hex } of VECTORS) {
    const whole = Buffer.from(hex, 'hex');
    for (let length = 1; length < whole.length; length += 1) {
      assert.throws(() => decode(whole.subarray(0, length)), /bytes that are not a message/);
    }
  }
});

test('unknown topics and fields are skipped', () => {
  assert.deepEqual(decode(Buffer.from('0610281a02080a', 'hex')), [{ topic: 40, action: 0 }]);
  // Field 30 with a number, a text and fixed numbers in front of the action.
  const fields = 'f00105' + 'f20102abcd' + 'f1010102030405060708' + 'f50101020304' + '080d';
  const body = `1021${`1a${(fields.length / 2).toString(16).padStart(2, '0')}${fields}`}`;
  const frame = Buffer.from((body.length / 2).toString(16).padStart(2, '0') + body, 'hex');
  assert.deepEqual(decode(frame), [{ topic: Topic.BACKEND, action: Action.END }]);
});

test('an address has a scheme of WebSockets and a path', () => {
  for (const [url, expected] of [
    ['localhost:6020', 'ws://localhost:6020/deepstream'],
    ['http://a', 'ws://a/deepstream'],
    ['https://a/', 'wss://a/deepstream'],
    ['wss://a/other', 'wss://a/other'],
  ] as const) {
    assert.equal(addressOf(url), expected);
  }
});

test('the members of a cluster are a list, or a text with commas', () => {
  const expected = ['ws://a:1/deepstream', 'wss://b/deepstream'];
  assert.deepEqual(addressesOf('http://a:1, https://b'), expected);
  assert.deepEqual(addressesOf(['a:1', 'wss://b']), expected);
  assert.throws(() => addressesOf([]), /set `url`/);
});
