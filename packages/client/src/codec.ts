// Messages to bytes and back: deepstream's protobuf in frames with a length. Contract: `spec/deepstream.md`, "Frames".

import { FIELDS, KINDS, type FieldName, type Kind, type Message } from './protocol.js';
import { decodeText, encodeText } from './utf8.js';

function kindOf(name: FieldName | undefined): Kind {
  return KINDS[name as FieldName] ?? 'text';
}

/** Bytes in the order in which they were written. */
class Writer {
  #bytes = new Uint8Array(128);
  #length = 0;

  get written(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  raw(bytes: Uint8Array): void {
    const needed = this.#length + bytes.length;
    if (needed > this.#bytes.length) {
      const grown = new Uint8Array(needed * 2);
      grown.set(this.written);
      this.#bytes = grown;
    }
    this.#bytes.set(bytes, this.#length);
    this.#length = needed;
  }

  /** A varint of a number from 0 to 2^53 - 1. */
  uint(value: number): void {
    const bytes: number[] = [];
    for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
    this.raw(Uint8Array.from([...bytes, value]));
  }

  /** A varint of a signed 32-bit number: ten bytes if it is negative. */
  int(value: number): void {
    if (value >= 0) return this.uint(value);
    const bytes = [0, 7, 14, 21].map((shift) => ((value >> shift) & 127) | 128);
    this.raw(Uint8Array.from([...bytes, (value >> 28) | 128, 255, 255, 255, 255, 1]));
  }

  tag(field: number, isBytes: boolean): void {
    this.uint(field * 8 + (isBytes ? 2 : 0));
  }

  /** A field of bytes with their length before them. */
  bytes(field: number, bytes: Uint8Array): void {
    this.tag(field, true);
    this.uint(bytes.length);
    this.raw(bytes);
  }

  text(field: number, text: string): void {
    this.bytes(field, encodeText(text));
  }

  field(number: number, kind: Kind, value: unknown): void {
    if (kind === 'text') this.text(number, value as string);
    else if (kind === 'texts') (value as string[]).forEach((text) => this.text(number, text));
    else if (kind === 'versions') {
      for (const [name, version] of Object.entries(value as Record<string, number>)) {
        this.entry(number, name, (entry) => entry.field(2, 'int', version));
      }
    } else if (kind === 'positions') {
      for (const { name, epoch, offset } of value as NonNullable<Message['positions']>) {
        this.entry(number, name, (entry) => {
          if (epoch !== undefined) entry.field(2, 'uint', epoch);
          if (offset !== undefined) entry.field(3, 'uint', offset);
        });
      }
    } else {
      this.tag(number, false);
      if (kind === 'uint') this.uint(value as number);
      else this.int(Number(value));
    }
  }

  /** A field that has fields of its own, the first of which is a name. */
  entry(field: number, name: string, write: (entry: Writer) => void): void {
    const entry = new Writer();
    entry.text(1, name);
    write(entry);
    this.bytes(field, entry.written);
  }
}

/** `message` in a frame of its own. */
export function encode(message: Message): Uint8Array {
  const fields = new Writer();
  FIELDS[message.topic]?.forEach((name, number) => {
    const value = name && message[name];
    if (value !== undefined) fields.field(number, kindOf(name), value);
  });
  const envelope = new Writer();
  envelope.field(2, 'int', message.topic);
  envelope.bytes(3, fields.written);
  const frame = new Writer();
  frame.uint(envelope.written.length);
  frame.raw(envelope.written);
  return frame.written;
}

/** Fields one after the other. */
class Reader {
  #at = 0;

  constructor(readonly bytes: Uint8Array) {}

  get isAtEnd(): boolean {
    return this.#at >= this.bytes.length;
  }

  /** A varint as an unsigned number, and as the signed one of its last 32 bits. */
  varint(): { uint: number; int: number } {
    let uint = 0;
    let int = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.bytes[this.#at++];
      if (byte === undefined) break;
      uint += (byte & 127) * 2 ** shift;
      if (shift < 32) int |= (byte & 127) << shift;
      if (byte < 128) return { uint, int };
    }
    throw unreadable();
  }

  take(count: number): Uint8Array {
    const start = this.#at;
    this.#at += count;
    if (this.#at > this.bytes.length) throw unreadable();
    return this.bytes.subarray(start, this.#at);
  }

  /** Calls `found` with every field: its number, and its bytes or its number. */
  fields(found: (field: number, value: Uint8Array | { uint: number; int: number }) => void): void {
    while (!this.isAtEnd) {
      const tag = this.varint().uint;
      const type = tag % 8;
      const field = (tag - type) / 8;
      if (type === 0) found(field, this.varint());
      else if (type === 2) found(field, this.take(this.varint().uint));
      else if (type === 1 || type === 5) this.take(type === 1 ? 8 : 4);
      else throw unreadable();
    }
  }
}

function unreadable(): Error {
  return new Error('the server sent bytes that are no message');
}

/** Name, first and second number of an entry of a map. */
function entry(bytes: Uint8Array): { name: string; numbers: Array<{ uint: number; int: number }> } {
  let name = '';
  const numbers: Array<{ uint: number; int: number }> = [];
  new Reader(bytes).fields((field, value) => {
    if (value instanceof Uint8Array) name = field === 1 ? decodeText(value) : name;
    else numbers[field] = value;
  });
  return { name, numbers };
}

/**
 * The messages of one WebSocket message: one, or with batches several. Fields that are not known are passed over.
 *
 * Throws if the bytes are no messages.
 */
export function decode(bytes: Uint8Array): Message[] {
  const messages: Message[] = [];
  const frames = new Reader(bytes);
  while (!frames.isAtEnd) {
    let topic = 0;
    let content = new Uint8Array();
    new Reader(frames.take(frames.varint().uint)).fields((field, value) => {
      if (value instanceof Uint8Array) content = field === 3 ? (value as typeof content) : content;
      else if (field === 2) topic = value.int;
    });
    messages.push(fieldsOf(topic, content));
  }
  return messages;
}

function fieldsOf(topic: number, content: Uint8Array): Message {
  const known = FIELDS[topic] ?? [];
  const message: Message = { topic, action: 0 };
  const put = (name: string, value: unknown): void => {
    (message as unknown as Record<string, unknown>)[name] = value;
  };
  new Reader(content).fields((field, value) => {
    const name = known[field];
    if (name === undefined) return;
    const kind = kindOf(name);
    if (value instanceof Uint8Array) {
      if (kind === 'text') put(name, decodeText(value));
      else if (kind === 'texts') (message.names ??= []).push(decodeText(value));
      else if (kind === 'versions') {
        const { name: of, numbers } = entry(value);
        (message.versions ??= Object.create(null) as Record<string, number>)[of] = numbers[2]?.int ?? 0;
      } else if (kind === 'positions') {
        const { name: of, numbers } = entry(value);
        const [, , epoch, offset] = numbers;
        (message.positions ??= []).push({ name: of, ...(epoch && { epoch: epoch.uint }), ...(offset && { offset: offset.uint }) });
      }
    } else if (kind === 'int') put(name, value.int);
    else if (kind === 'uint') put(name, value.uint);
    else if (kind === 'flag') put(name, value.int !== 0);
  });
  return message;
}
