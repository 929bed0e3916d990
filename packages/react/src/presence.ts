// Presence: whether one user is online, or which other users are.

import { presenceOf } from '@tidewire/client/presence';
import { useLive, type Live, type LiveOptions } from './live.js';
import type { Kind } from './shared.js';

const USER: Kind<boolean> = {
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

const all = (value: boolean | readonly string[]): boolean | readonly string[] => value;

export function usePresence(
  user: string | LiveOptions<readonly string[]> = {},
  options: LiveOptions<boolean | readonly string[]> = {},
): Live<boolean | readonly string[]> {
  const isOne = typeof user === 'string';
  const kind: Kind<boolean | readonly string[]> = isOne ? USER : EVERYONE;
  return useLive(kind, isOne ? user : 'everyone', isOne ? options : user, all);
}
