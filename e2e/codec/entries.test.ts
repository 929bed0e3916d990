// The vectors of entries between nodes, read by a library of protobuf with `spec/entries.proto`: the file, the vectors and our codec agree.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';

interface Field {
  name: string;
  id: number;
  repeated: boolean;
  resolvedType: Type | { values: Record<string, number> } | null;
}

interface Type {
  name: string;
  fieldsArray: Field[];
  resolveAll(): Type;
  decode(bytes: Buffer): Record<string, unknown>;
  encode(message: object): { finish(): Uint8Array };
  toObject(message: object, options: object): Record<string, unknown>;
}

interface Vector {
  name: string;
  bytes: string;
  with_unknown_fields: string;
  message: Record<string, unknown>;
}

// It is installed with deepstream's client, whose codec uses it.
const protobuf = createRequire(import.meta.url)('protobufjs') as {
  parse(text: string, options: object): { root: { lookupType(name: string): Type; resolveAll(): void } };
};

const SPEC = join(import.meta.dirname, '../../spec');
const { root } = protobuf.parse(readFileSync(join(SPEC, 'entries.proto'), 'utf8'), { keepCase: true });
root.resolveAll();
const Batch = root.lookupType('tidewire.entries.Batch');
const { entries } = JSON.parse(readFileSync(join(SPEC, 'vectors/cluster/entries.json'), 'utf8')) as { entries: Vector[] };

const isMessage = (type: Field['resolvedType']): type is Type => type !== null && 'fieldsArray' in type;
const asObject = (message: object): Record<string, unknown> => Batch.toObject(message, { longs: String, enums: String, bytes: String });

/** One field of each wire type, with numbers that no message has. */
const UNKNOWN = Buffer.from('c03e05' + 'c93e0102030405060708' + 'd23e03616263' + 'dd3e01020304', 'hex');

/** The same message with unknown fields in front of and behind the fields of each message. */
function withUnknown(type: Type, bytes: Buffer): Buffer {
  const parts: Uint8Array[] = [UNKNOWN];
  let at = 0;
  const varint = (): number => {
    let [value, factor] = [0, 1];
    for (;;) {
      const byte = bytes[at++]!;
      value += (byte & 0x7f) * factor;
      factor *= 128;
      if (byte < 0x80) return value;
    }
  };
  const written = (value: number): number[] => (value < 0x80 ? [value] : [(value % 128) | 0x80, ...written(Math.floor(value / 128))]);
  while (at < bytes.length) {
    const start = at;
    const key = varint();
    const field = type.fieldsArray.find(({ id }) => id === key >> 3)!;
    if ((key & 7) === 0) {
      varint();
      parts.push(bytes.subarray(start, at));
      continue;
    }
    const length = varint();
    const content = bytes.subarray(at, (at += length));
    if (isMessage(field.resolvedType)) {
      const inner = withUnknown(field.resolvedType, content);
      parts.push(Buffer.from([...written(key), ...written(inner.length)]), inner);
    } else {
      parts.push(bytes.subarray(start, at));
    }
  }
  return Buffer.concat([...parts, UNKNOWN]);
}

/** All fields that a message has, with the values of enums. */
function visit(type: Type, message: Record<string, unknown>, found: Set<string>): void {
  for (const field of type.fieldsArray) {
    const value = message[field.name];
    if (value === undefined) continue;
    for (const each of field.repeated ? (value as unknown[]) : [value]) {
      found.add(`${type.name}.${field.name}`);
      if (isMessage(field.resolvedType)) visit(field.resolvedType, each as Record<string, unknown>, found);
    }
  }
}

/** All fields of a message and of the messages in it. */
function fields(type: Type, found = new Set<string>()): Set<string> {
  for (const field of type.fieldsArray) {
    const name = `${type.name}.${field.name}`;
    if (found.has(name)) continue;
    found.add(name);
    if (isMessage(field.resolvedType)) fields(field.resolvedType, found);
  }
  return found;
}

for (const vector of entries) {
  test(`a protobuf library reads and writes the entry "${vector.name}"`, () => {
    const bytes = Buffer.from(vector.bytes, 'hex');
    const message = Batch.decode(bytes);
    assert.deepEqual(asObject(message), vector.message);
    assert.equal(Buffer.from(Batch.encode(message).finish()).toString('hex'), vector.bytes);
    const changed = withUnknown(Batch, bytes);
    assert.equal(changed.toString('hex'), vector.with_unknown_fields);
    assert.deepEqual(asObject(Batch.decode(changed)), vector.message);
  });
}

test('the vectors have every field of the file', () => {
  const found = new Set<string>();
  for (const { message } of entries) visit(Batch, message, found);
  assert.deepEqual([...fields(Batch)].filter((name) => !found.has(name)), []);
});
