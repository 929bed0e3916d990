// The attacks by work: each costs the server far more than the bytes that the attacker sends.

import type { WorkAttack } from './attack.ts';
import { HTTP } from './list/http.ts';
import { LOGINS } from './list/login.ts';
import { NAMES } from './list/name.ts';
import { RECORDS } from './list/record.ts';
import { WAITING } from './list/waiting.ts';

export const ATTACKS: WorkAttack[] = [...RECORDS, ...NAMES, ...WAITING, ...HTTP, ...LOGINS];
