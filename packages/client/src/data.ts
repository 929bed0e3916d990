// Payloads: JSON texts on the wire, values in the app.

import type { Message } from './protocol.js';
import { TidewireError } from './error.js';

/**
 * `value` as the `data` field of a message; no field for undefined. Throws if it can't be written as JSON, such as a cycle or a function.
 */
export function payload(value: unknown): Pick<Message, 'data'> {
  if (value === undefined) return {};
  let data: string | undefined;
  try {
    data = JSON.stringify(value);
  } catch (cause) {
    throw new TidewireError('INVALID_ARGUMENT', `the value can't be written as JSON: ${(cause as Error).message}`, { cause });
  }
  if (data === undefined) throw new TidewireError('INVALID_ARGUMENT', `a ${typeof value} can't be written as JSON`);
  return { data };
}

/** Decodes the payload of a message. The server sends only well-formed JSON. */
export function valueOf(data: string | undefined): unknown {
  return data === undefined ? undefined : JSON.parse(data);
}
