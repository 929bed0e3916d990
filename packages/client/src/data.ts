// Payloads: JSON texts on the wire, values in the app.

import type { Message } from './protocol.js';
import { TidewireError } from './error.js';

/**
 * `value` as the `data` field of a message; no field for undefined. Throws if it can't be written as JSON, such as a cycle, a function or
 * bytes.
 */
export function payload(value: unknown): Pick<Message, 'data'> {
  if (value === undefined) return {};
  let data: string | undefined;
  try {
    data = JSON.stringify(value);
  } catch (cause) {
    throw new TidewireError('INVALID_ARGUMENT', `the value can't be written as JSON: ${(cause as Error).message}`, { cause });
  }
  if (data === undefined || value instanceof Uint8Array) {
    throw new TidewireError('INVALID_ARGUMENT', `a ${data ? 'Uint8Array' : typeof value} can't be written as JSON`);
  }
  return { data };
}

/** Decodes the payload of a message: well-formed JSON, as the server sends no other, or bytes, which are copied. */
export function valueOf(data: string | Uint8Array | undefined): unknown {
  return typeof data === 'string' ? JSON.parse(data) : data?.slice();
}
