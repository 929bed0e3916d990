// The vectors of frames between nodes, read by a library of protobuf with `spec/links.proto`: the file, the vectors and our codec agree.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkVector, typesOf, vectorsOf } from './protobuf.ts';

const type = typesOf('links.proto');
const [Frame, Hello] = [type('tidewire.links.Frame'), type('tidewire.links.Hello')];
const { frames } = vectorsOf<'frames'>('links.json');

for (const vector of frames) {
  test(`a protobuf library reads and writes the frame "${vector.name}"`, () => checkVector(Frame, vector));
}

test('the vectors have every field of the file', () => {
  const found = new Set(frames.flatMap(({ message }) => [...Object.keys(message), ...Object.keys(message['hello'] ?? {})]));
  const fields = [...Frame.fieldsArray, ...Hello.fieldsArray].map(({ name }) => name);
  assert.deepEqual(fields.filter((name) => !found.has(name)), []);
});
