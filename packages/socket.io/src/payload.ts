// Arguments as JSON with attachments: each binary value is replaced by the placeholder `{"_placeholder":true,"num":0}`.

import type { Payload } from '@tidewire/server';

/** The parsers of Socket.IO clients refuse more. */
const ATTACHMENTS_MAX = 10;

function bytesOf(value: object): Buffer | undefined {
  if (Buffer.isBuffer(value)) return value;
  if (value instanceof ArrayBuffer) return Buffer.from(value);
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  return undefined;
}

function extracted(value: unknown, attachments: Buffer[], above: Set<object>): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const bytes = bytesOf(value);
  if (bytes) return { _placeholder: true, num: attachments.push(bytes) - 1 };
  if (above.has(value)) throw new TypeError('the arguments of an event refer to themselves; send a value that JSON can have');
  const withJson = value as { toJSON?: () => unknown };
  if (typeof withJson.toJSON === 'function') return extracted(withJson.toJSON(), attachments, above);
  above.add(value);
  const copy = Array.isArray(value)
    ? value.map((item) => extracted(item, attachments, above))
    : Object.fromEntries(Object.entries(value).map(([key, item]) => [key, extracted(item, attachments, above)]));
  above.delete(value);
  return copy;
}

/** The payload of these values. */
export function payloadOf(values: readonly unknown[]): Payload {
  const attachments: Buffer[] = [];
  const data = JSON.stringify(extracted(values, attachments, new Set()));
  if (attachments.length > ATTACHMENTS_MAX) throw new Error(`an event may have ${ATTACHMENTS_MAX} binary values, and this one has ${attachments.length}; join them or send several events`);
  return attachments.length > 0 ? { data, attachments } : { data };
}

/** The values of a payload. */
export function valuesOf({ data, attachments }: Payload): unknown[] {
  const fill = (value: unknown): unknown => {
    if (typeof value !== 'object' || value === null) return value;
    const { _placeholder: isPlaceholder, num } = value as { _placeholder?: unknown; num?: unknown };
    if (isPlaceholder === true) return attachments?.[num as number];
    if (Array.isArray(value)) return value.map(fill);
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, fill(item)]));
  };
  const values = JSON.parse(data) as unknown[];
  return attachments ? (fill(values) as unknown[]) : values;
}

/** The data of a broadcast: the event `message` with one argument is that argument for the clients of other protocols. */
export function publicationOf(event: string, args: readonly unknown[]): Payload {
  const payload = payloadOf([event, ...args]);
  const [only] = args;
  const isAlone = event === 'message' && args.length === 1 && !Array.isArray(only) && only !== undefined && !payload.attachments;
  return isAlone ? { data: JSON.stringify(only) } : payload;
}

