// The users of file authentication, with passwords hashed as deepstream's `users.yml` holds them.

import { pbkdf2Sync, randomBytes } from 'node:crypto';

/** One `users.yml`: by user name. */
export type Users = Record<string, { password: string; serverData?: object; clientData?: object }>;

/** The hash options that deepstream's own example configuration uses. */
export const PASSWORD_HASH = { hash: 'md5', iterations: 100, keyLength: 32 };

/** `password` as it stands in `users.yml`: base64 of the PBKDF2 key, then the salt as text. */
export function hashPassword(password: string): string {
  const salt = randomBytes(16).toString('base64');
  const { iterations, keyLength, hash } = PASSWORD_HASH;
  return pbkdf2Sync(password, salt, iterations, keyLength, hash).toString('base64') + salt;
}
