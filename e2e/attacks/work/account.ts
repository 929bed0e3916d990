// The users of the tests: each has an entry in the server's file of users.

import { hashPassword, type Users } from '../../harness/users.ts';

export interface Accounts {
  bystanders: number;
  password: string;
}

export const ACCOUNTS: Accounts = { bystanders: 10, password: 'work' };
/** Users of the attackers: one for each of ten connections, and users that only have to be online. */
export const ATTACKERS = 10;
export const ONLINE = 1_000;

/** The file of users. All have the same password, so that it is hashed once. */
export function users(): Users {
  const entry = { password: hashPassword(ACCOUNTS.password) };
  const named = (count: number, prefix: string): Array<[string, typeof entry]> => Array.from({ length: count }, (_, index) => [`${prefix}${index}`, entry]);
  return Object.fromEntries([...named(ACCOUNTS.bystanders, 'bystander'), ...named(ATTACKERS, 'attacker'), ...named(ONLINE, 'online-user-with-a-name-of-forty-bytes-')]);
}
