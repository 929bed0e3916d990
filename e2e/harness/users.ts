// The users of file authentication, with password hashes in the format of deepstream's `users.yml`.

import { pbkdf2Sync, randomBytes } from 'node:crypto';

/** The content of `users.yml`, by user name. */
export type Users = Record<string, { password: string; serverData?: object; clientData?: object }>;

/** The hash options of deepstream's example configuration. */
export const PASSWORD_HASH = { hash: 'md5', iterations: 100, keyLength: 32 };

/** The hash of `password` for `users.yml`: base64 of the PBKDF2 key, then the salt as text. */
export function hashPassword(password: string): string {
  const salt = randomBytes(16).toString('base64');
  const { iterations, keyLength, hash } = PASSWORD_HASH;
  return pbkdf2Sync(password, salt, iterations, keyLength, hash).toString('base64') + salt;
}
