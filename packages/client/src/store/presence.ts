// Presence: whether one user is online, and which other users are.

import { presenceOf } from '../presence.js';
import type { Kind } from './shared.js';

const ONE: Kind<boolean> = {
  start(client, user, tell) {
    const subscription = presenceOf(client).subscribe(user, (isOnline) => tell({ value: isOnline, isReady: true, error: undefined }), {
      onEnd: (error) => tell({ value: undefined, isReady: false, error }),
    });
    subscription.ready.catch((error) => tell({ error }));
    return subscription;
  },
};

const EVERYONE: Kind<readonly string[]> = {
  start(client, _name, tell) {
    const subscription = presenceOf(client).subscribeAll((users) => tell({ value: [...users], isReady: true, error: undefined }), {
      onEnd: (error) => tell({ value: undefined, isReady: false, error }),
    });
    subscription.ready.catch((error) => tell({ error }));
    return subscription;
  },
};

/** The value that a component shows of one user, or of all others. */
export type Online = boolean | readonly string[];

/** The kind for one user, whose id is the name, or for all other users, for which any name will do. */
export function presenceKind(isOne: boolean): Kind<Online> {
  return isOne ? ONE : EVERYONE;
}
