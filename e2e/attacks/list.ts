// The attacks, grouped by target. Each entry describes the attempt, the limit against it, the metric that reports it, and the harm
// without that limit.

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

/** One of two halves that can run in parallel: with its limit, an attack mostly waits. */
export function half(number: 0 | 1): Attack[] {
  const middle = Math.ceil(ATTACKS.length / 2);
  return number === 0 ? ATTACKS.slice(0, middle) : ATTACKS.slice(middle);
}
