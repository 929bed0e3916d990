// Descriptions of messages in `spec/*.proto` and their vectors, read by a library of protobuf that is independent of our codecs.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

export interface Field {
  name: string;
  id: number;
  repeated: boolean;
  resolvedType: Type | { values: Record<string, number> } | null;
}

/** A message type. */
export interface Type {
  name: string;
  fieldsArray: Field[];
  decode(bytes: Buffer): object;
  encode(message: object): { finish(): Uint8Array };
  toObject(message: object, options: object): Record<string, unknown>;
}

/** A vector, with its bytes in hexadecimal digits. */
export interface Vector {
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

/** Returns the types of a file in `spec` by their names. */
export function typesOf(file: string): (name: string) => Type {
  const { root } = protobuf.parse(readFileSync(join(SPEC, file), 'utf8'), { keepCase: true });
  root.resolveAll();
  return (name) => root.lookupType(name);
}

/** The vectors of a file in `spec/vectors/cluster`, by kind. */
export function vectorsOf<Kind extends string>(file: string): Record<Kind, Vector[]> {
  return JSON.parse(readFileSync(join(SPEC, 'vectors/cluster', file), 'utf8')) as Record<Kind, Vector[]>;
}

/** Reads and writes a vector, and reads it again with unknown fields. */
export function checkVector(type: Type, vector: Vector): void {
  const asObject = (bytes: string): object => type.toObject(type.decode(Buffer.from(bytes, 'hex')), { longs: String, enums: String, bytes: String });
  assert.deepEqual(asObject(vector.bytes), vector.message);
  const written = type.encode(type.decode(Buffer.from(vector.bytes, 'hex'))).finish();
  assert.equal(Buffer.from(written).toString('hex'), vector.bytes);
  assert.deepEqual(asObject(vector.with_unknown_fields), vector.message);
}
