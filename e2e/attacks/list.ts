// The attacks, by what they attack: what each tries, which limit stands against it, which metric says so, and what it does where
// that limit is switched off.

import type { Attack } from './attack.ts';
import { CONNECTIONS } from './list/connection.ts';
import { FRAMES } from './list/frame.ts';
import { LOGINS } from './list/login.ts';
import { MESSAGES } from './list/message.ts';
import { RATES } from './list/rate.ts';
import { READERS } from './list/reader.ts';
import { RECORDS } from './list/record.ts';
import { REQUESTS } from './list/request.ts';

export const ATTACKS: Attack[] = [
  ...CONNECTIONS, ...FRAMES, ...REQUESTS, ...LOGINS, ...MESSAGES, ...RECORDS, ...RATES, ...READERS,
];

/** One of two halves that can run beside each other: an attack with its limit mostly waits, for the pairs and for its end. */
export function half(number: 0 | 1): Attack[] {
  const middle = Math.ceil(ATTACKS.length / 2);
  return number === 0 ? ATTACKS.slice(0, middle) : ATTACKS.slice(middle);
}
