// The messages that a backend exchanges with the server, as bytes: `spec/backend.md`, and for the frames `spec/deepstream.md`.

/** The topics that a backend uses. */
export const Topic = { CONNECTION: 2, AUTH: 3, BACKEND: 33 } as const;

/** The actions of the topic CONNECTION. */
export const Connection = { PING: 2, PONG: 3, ACCEPT: 4, CHALLENGE: 5, REJECT: 6, AUTHENTICATION_TIMEOUT: 100 } as const;

/** The actions of the topic AUTH. */
export const Auth = { REQUEST: 2, SUCCESSFUL: 3, UNSUCCESSFUL: 4, TOO_MANY_ATTEMPTS: 100 } as const;

/** The actions of the topic BACKEND. */
export const Action = {
  SERVE: 1,
  SERVED: 2,
  OPENED: 3,
  ACCEPT: 4,
  REFUSE: 5,
  EVENT: 6,
  ANSWER: 7,
  SEND: 8,
  ANSWERED: 9,
  BROADCAST: 10,
  JOIN: 11,
  LEAVE: 12,
  END: 13,
  END_CONNECTION: 14,
  CLOSED: 15,
  CONFIRM: 16,
  ASK: 17,
  RESPONSE: 18,
  ASKED: 19,
  TELL: 20,
  TOLD: 21,
  REPLY: 22,
  HAND_OVER: 23,
  HANDED_OVER: 24,
  RELEASE: 25,
  DELIVER_AGAIN: 26,
  SET_DATA: 27,
  RECEIVED: 28,
  NOT_A_BACKEND: 100,
  INVALID_COMMAND: 101,
  ASK_FAILED: 102,
} as const;

/** A message. Absent fields are `undefined`. */
export interface Message {
  topic: number;
  action: number;
  data?: string | undefined;
  correlationId?: string | undefined;
  isError?: boolean | undefined;
  name?: string | undefined;
  names?: readonly string[] | undefined;
  session?: string | undefined;
  except?: readonly string[] | undefined;
  count?: number | undefined;
  isLocal?: boolean | undefined;
  timeout?: number | undefined;
  attachments?: readonly Uint8Array[] | undefined;
  url?: string | undefined;
  protocolVersion?: string | undefined;
  sdkType?: string | undefined;
  batches?: boolean | undefined;
}

type Field = Exclude<keyof Message, 'topic'>;
type Kind = 'text' | 'number' | 'flag' | 'texts' | 'bytes';

const KINDS: Record<Field, Kind> = {
  action: 'number',
  data: 'text',
  correlationId: 'text',
  isError: 'flag',
  name: 'text',
  names: 'texts',
  session: 'text',
  except: 'texts',
  count: 'number',
  isLocal: 'flag',
  timeout: 'number',
  attachments: 'bytes',
  url: 'text',
  protocolVersion: 'text',
  sdkType: 'text',
  batches: 'flag',
};

/** The fields of the topics, in the order of their numbers. */
const LAYOUTS: Record<number, ReadonlyArray<readonly [number, Field]>> = {
  [Topic.CONNECTION]: [[1, 'action'], [2, 'data'], [3, 'isError'], [5, 'url'], [6, 'protocolVersion'], [8, 'sdkType'], [15, 'batches']],
  [Topic.AUTH]: [[1, 'action'], [2, 'data'], [3, 'isError']],
  [Topic.BACKEND]: [
    [1, 'action'], [2, 'data'], [3, 'correlationId'], [4, 'isError'], [6, 'name'], [7, 'names'],
    [15, 'session'], [16, 'except'], [17, 'count'], [18, 'isLocal'], [19, 'timeout'], [22, 'attachments'],
  ],
};

/** Appends to bytes that grow. */
class Writer {
  bytes = Buffer.allocUnsafe(256);
  length = 0;

  #reserve(more: number): void {
    if (this.length + more <= this.bytes.length) return;
    const grown = Buffer.allocUnsafe(Math.max(this.bytes.length * 2, this.length + more));
    this.bytes.copy(grown, 0, 0, this.length);
    this.bytes = grown;
  }

  varint(value: number): void {
    this.#reserve(8);
    for (; value > 127; value = Math.floor(value / 128)) this.bytes[this.length++] = (value % 128) | 128;
    this.bytes[this.length++] = value;
  }

  text(number: number, text: string): void {
    const length = Buffer.byteLength(text);
    this.varint(number * 8 + 2);
    this.varint(length);
    this.#reserve(length);
    this.length += this.bytes.write(text, this.length);
  }

  content(number: number, bytes: Uint8Array): void {
    this.varint(number * 8 + 2);
    this.varint(bytes.length);
    this.#reserve(bytes.length);
    this.bytes.set(bytes, this.length);
    this.length += bytes.length;
  }

  number(number: number, value: number): void {
    this.varint(number * 8);
    this.varint(value);
  }
}

/** Encodes a message as the payload of one frame. */
export function encode(message: Message): Buffer {
  const body = new Writer();
  for (const [number, field] of LAYOUTS[message.topic] ?? []) {
    const value = message[field];
    if (value === undefined) continue;
    if (typeof value === 'string') body.text(number, value);
    else if (typeof value === 'object') for (const one of value) typeof one === 'string' ? body.text(number, one) : body.content(number, one);
    else body.number(number, Number(value));
  }
  const envelope = new Writer();
  envelope.number(2, message.topic);
  envelope.content(3, body.bytes.subarray(0, body.length));
  const frame = new Writer();
  frame.varint(envelope.length);
  return Buffer.concat([frame.bytes.subarray(0, frame.length), envelope.bytes.subarray(0, envelope.length)]);
}

class Reader {
  at = 0;

  constructor(readonly bytes: Buffer) {}

  get isAtEnd(): boolean {
    return this.at >= this.bytes.length;
  }

  varint(): number {
    let value = 0;
    for (let factor = 1; factor < 2 ** 64; factor *= 128) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) break;
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
    throw unreadable();
  }

  /** Bytes behind their length. */
  sized(): Buffer {
    const length = this.varint();
    if (length > this.bytes.length - this.at) throw unreadable();
    return this.bytes.subarray(this.at, (this.at += length));
  }

  skip(wireType: number): void {
    if (wireType === 0) this.varint();
    else if (wireType === 2) this.sized();
    else if (wireType === 1) this.at += 8;
    else if (wireType === 5) this.at += 4;
    else throw unreadable();
    if (this.at > this.bytes.length) throw unreadable();
  }
}

function unreadable(): Error {
  return new Error('the server sent bytes that are not a message; check that the url is the address of a Tidewire server');
}

function decodeFields(topic: number, body: Buffer): Message {
  const layout = new Map(LAYOUTS[topic]);
  const message: Message = { topic, action: 0 };
  const values = message as unknown as Record<Field, unknown>;
  const reader = new Reader(body);
  while (!reader.isAtEnd) {
    const key = reader.varint();
    const [field, wireType] = [layout.get(Math.floor(key / 8)), key % 8];
    const kind = field && KINDS[field];
    if (!field || !kind) {
      reader.skip(wireType);
      continue;
    }
    if (wireType !== (kind === 'number' || kind === 'flag' ? 0 : 2)) throw unreadable();
    if (kind === 'number') values[field] = reader.varint();
    else if (kind === 'flag') values[field] = reader.varint() !== 0;
    else if (kind === 'text') values[field] = reader.sized().toString();
    else {
      const bytes = reader.sized();
      const known = (values[field] ??= []) as unknown[];
      // A copy: the bytes of the frame are released or used again.
      known.push(kind === 'texts' ? bytes.toString() : Buffer.from(bytes));
    }
  }
  return message;
}

/**
 * Decodes the messages of one frame.
 *
 * @throws if the bytes are not messages.
 */
export function decode(frame: Buffer): Message[] {
  const messages: Message[] = [];
  const frames = new Reader(frame);
  while (!frames.isAtEnd) {
    const envelope = new Reader(frames.sized());
    let [topic, body] = [0, Buffer.alloc(0)];
    while (!envelope.isAtEnd) {
      const key = envelope.varint();
      if (key === 2 * 8) topic = envelope.varint();
      else if (key === 3 * 8 + 2) body = envelope.sized() as Buffer<ArrayBuffer>;
      else envelope.skip(key % 8);
    }
    messages.push(decodeFields(topic, body));
  }
  return messages;
}
