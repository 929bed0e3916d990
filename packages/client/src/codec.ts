// Messages to bytes and back: deepstream's protobuf in frames with a length. Contract: `spec/deepstream.md`, "Frames".

import { FIELDS, FLAGS, POSITION, type FieldName, type FieldNames, type Message } from './protocol.js';
import { decodeText, encodeText } from './utf8.js';

/** A part of a message's bytes; `encode` joins the parts at the end. */
type Piece = ArrayLike<number>;

function lengthOf(pieces: Piece[]): number {
  return pieces.reduce((sum, { length }) => sum + length, 0);
}

/** The varint of a number from 0 to 2^53 - 1, or of a negative 32-bit number, which takes ten bytes. */
function varint(value: number): number[] {
  if (value < 0) return [...[0, 7, 14, 21, 28].map((shift) => (value >> shift) | 128), 255, 255, 255, 255, 1];
  const bytes: number[] = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return [...bytes, value];
}

/** A field of bytes, preceded by their length. */
function sized(field: number, pieces: Piece[]): Piece[] {
  return [varint(field * 8 + 2), varint(lengthOf(pieces)), ...pieces];
}

/** Encodes a field by the type of its value: a text, a number, a flag, bytes or the varint of a number, an array of texts or of positions. */
function written(field: number, value: unknown): Piece[] {
  if (value === undefined) return [];
  if (typeof value === 'string') return sized(field, [encodeText(value)]);
  if (Array.isArray(value)) return value.flatMap((one) => written(field, one));
  // The varint of an incarnation, field 20 of a record, or the payload of an event, field 21.
  if (value instanceof Uint8Array) return field > 20 ? sized(field, [value]) : [varint(field * 8), value];
  if (typeof value !== 'object') return [varint(field * 8), varint(Number(value))];
  return sized(field, allWritten(POSITION, value as Message));
}

/** Encodes the fields with these names. */
function allWritten(names: FieldNames | undefined, values: Message): Piece[] {
  return names?.flatMap((name, number) => (name ? written(number, values[name]) : [])) ?? [];
}

/** Encodes `message` as one frame. */
export function encode(message: Message): Uint8Array {
  const envelope = [...written(2, message.topic), ...sized(3, allWritten(FIELDS[message.topic], message))];
  const pieces = [varint(lengthOf(envelope)), ...envelope];
  const frame = new Uint8Array(lengthOf(pieces));
  let at = 0;
  for (const piece of pieces) {
    frame.set(piece, at);
    at += piece.length;
  }
  return frame;
}

/** Reads consecutive fields. */
class Reader {
  #at = 0;

  constructor(readonly bytes: Uint8Array) {}

  get isAtEnd(): boolean {
    return this.#at >= this.bytes.length;
  }

  /** A varint as an unsigned number. If that exceeds the safe integers, the signed number in its lowest 32 bits. */
  varint(): number {
    let uint = 0;
    let int = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.bytes[this.#at++];
      if (byte === undefined) break;
      uint += (byte & 127) * 2 ** shift;
      if (shift < 32) int |= (byte & 127) << shift;
      if (byte < 128) return uint > Number.MAX_SAFE_INTEGER ? int : uint;
    }
    throw unreadable();
  }

  /** A number that was just read: if it may exceed the safe integers, its varint. */
  exact(value: number, start: number): Uint8Array | number {
    return this.#at - start > 7 ? this.bytes.slice(start, this.#at) : value;
  }

  take(count: number): Uint8Array {
    const start = this.#at;
    this.#at += count;
    if (this.#at > this.bytes.length) throw unreadable();
    return this.bytes.subarray(start, this.#at);
  }

  /** Calls `found` with every field: its number, and its bytes or its numeric value, in the second case with the index of its varint. */
  fields(found: (field: number, value: Uint8Array | number, start: number) => void): void {
    while (!this.isAtEnd) {
      const tag = this.varint();
      const type = tag % 8;
      const field = (tag - type) / 8;
      const start = this.#at;
      if (type === 0) found(field, this.varint(), start);
      else if (type === 2) found(field, this.take(this.varint()), start);
      else if (type === 1 || type === 5) this.take(type === 1 ? 8 : 4);
      else throw unreadable();
    }
  }
}

function unreadable(): Error {
  return new Error('the server sent bytes that are not a message');
}

/**
 * The messages of one WebSocket message: one, or several with batches. Unknown fields are skipped.
 *
 * Throws if the bytes are not valid messages.
 */
export function decode(bytes: Uint8Array): Message[] {
  const messages: Message[] = [];
  const frames = new Reader(bytes);
  while (!frames.isAtEnd) {
    let topic = 0;
    let content: Uint8Array = new Uint8Array();
    new Reader(frames.take(frames.varint())).fields((field, value) => {
      if (typeof value === 'number') topic = field === 2 ? value : topic;
      else if (field === 3) content = value;
    });
    messages.push(read(FIELDS[topic], content, { topic, action: 0 }));
  }
  return messages;
}

/** Adds the fields with these names to `message`. */
function read<Kind extends Partial<Message>>(names: FieldNames | undefined, content: Uint8Array, message: Kind): Kind {
  const known: Partial<Message> = message;
  const fields = known as Record<FieldName, unknown>;
  const reader = new Reader(content);
  reader.fields((field, value, start) => {
    const name = names?.[field];
    if (name === undefined) return;
    if (typeof value === 'number' && /^(names|positions|bytes)$/.test(name)) throw unreadable();
    else if (typeof value === 'number') fields[name] = FLAGS.includes(name) ? value !== 0 : name === 'incarnation' ? reader.exact(value, start) : value;
    else if (name === 'names') (known.names ??= []).push(decodeText(value));
    else if (name === 'positions') (known.positions ??= []).push(read(POSITION, value, { name: '' }));
    else fields[name] = name === 'bytes' ? value : decodeText(value);
  });
  return message;
}
