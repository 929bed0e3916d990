// The vectors of entries between nodes, read by a library of protobuf with `spec/entries.proto`: the file, the vectors and our codec agree.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkVector, typesOf, vectorsOf, type Field, type Type } from './protobuf.ts';

const Batch = typesOf('entries.proto')('tidewire.entries.Batch');
const { entries } = vectorsOf<'entries'>('entries.json');

const isMessage = (type: Field['resolvedType']): type is Type => type !== null && 'fieldsArray' in type;

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
    checkVector(Batch, vector);
    const changed = withUnknown(Batch, Buffer.from(vector.bytes, 'hex'));
    assert.equal(changed.toString('hex'), vector.with_unknown_fields);
  });
}

test('the vectors have every field of the file', () => {
  const found = new Set<string>();
  for (const { message } of entries) visit(Batch, message, found);
  assert.deepEqual([...fields(Batch)].filter((name) => !found.has(name)), []);
});
