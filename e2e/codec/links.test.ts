// The vectors of frames between nodes, read by a library of protobuf with `spec/links.proto`: the file, the vectors and our codec agree.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';

interface Type {
  fieldsArray: { name: string }[];
  decode(bytes: Buffer): object;
  encode(message: object): { finish(): Uint8Array };
  toObject(message: object, options: object): Record<string, unknown>;
}

interface Vector {
  name: string;
  bytes: string;
  with_unknown_fields: string;
  message: Record<string, unknown> & { hello?: object };
}

// It is installed with deepstream's client, whose codec uses it.
const protobuf = createRequire(import.meta.url)('protobufjs') as {
  parse(text: string, options: object): { root: { lookupType(name: string): Type; resolveAll(): void } };
};

const SPEC = join(import.meta.dirname, '../../spec');
const { root } = protobuf.parse(readFileSync(join(SPEC, 'links.proto'), 'utf8'), { keepCase: true });
root.resolveAll();
const Frame = root.lookupType('tidewire.links.Frame');
const Hello = root.lookupType('tidewire.links.Hello');
const { frames } = JSON.parse(readFileSync(join(SPEC, 'vectors/cluster/links.json'), 'utf8')) as { frames: Vector[] };

const asObject = (message: object): Record<string, unknown> => Frame.toObject(message, { longs: String, bytes: String });

for (const vector of frames) {
  test(`a protobuf library reads and writes the frame "${vector.name}"`, () => {
    const message = Frame.decode(Buffer.from(vector.bytes, 'hex'));
    assert.deepEqual(asObject(message), vector.message);
    assert.equal(Buffer.from(Frame.encode(message).finish()).toString('hex'), vector.bytes);
    assert.deepEqual(asObject(Frame.decode(Buffer.from(vector.with_unknown_fields, 'hex'))), vector.message);
  });
}

test('the vectors have every field of the file', () => {
  const found = new Set(frames.flatMap(({ message }) => [...Object.keys(message), ...Object.keys(message.hello ?? {})]));
  const fields = [...Frame.fieldsArray, ...Hello.fieldsArray].map(({ name }) => name);
  assert.deepEqual(fields.filter((name) => !found.has(name)), []);
});
