// Events: a callback while the component is mounted, and publishing.

import type { EventContext, SubscribeOptions } from '@tidewire/client';
import { useCallback, useEffect } from 'react';
import { useLatest } from './latest.js';
import { useClient } from './provider.js';
import { whileUsable } from './shared.js';

export type EventOptions = Pick<SubscribeOptions, 'onGap' | 'onEnd'>;

export function useEvent(
  name: string | undefined,
  callback: (payload: unknown, context: EventContext) => void,
  options: EventOptions = {},
): (payload?: unknown) => void {
  const client = useClient();
  const latest = useLatest({ callback, ...options });
  // Without an `onEnd`, the client reports the end of a subscription by `onError`. So one is passed only if the component has one.
  const isEndTold = options.onEnd !== undefined;
  useEffect(() => {
    if (name === undefined) return;
    return whileUsable(client, () =>
      client.event.subscribe(name, (payload, context) => latest.current.callback(payload, context), {
        onGap: (gap) => latest.current.onGap?.(gap),
        ...(isEndTold && { onEnd: (error) => latest.current.onEnd?.(error) }),
      }),
    );
  }, [client, name, isEndTold, latest]);
  return useCallback(
    (payload) => {
      if (name === undefined) throw new Error('there is no event to publish: useEvent has no name');
      client.event.emit(name, payload);
    },
    [client, name],
  );
}
