// Events: a callback while a component is mounted, and publishing.

import type { Client } from '../client.js';
import type { EventContext, SubscribeOptions } from '../event.js';
import { whileUsable } from './shared.js';

export type EventOptions = Pick<SubscribeOptions, 'onGap' | 'onEnd'>;

/** The callbacks of a component, as it passed them last. */
export interface EventHandlers extends EventOptions {
  callback(payload: unknown, context: EventContext): void;
}

/** Calls the callbacks that `handlers` returns at the time of the event, until the returned function is called. */
export function followEvent(client: Client, name: string | undefined, handlers: () => EventHandlers): () => void {
  if (name === undefined) return () => {};
  // Without an `onEnd`, the client reports the end of a subscription by `onError`. So one is passed only if the component has one.
  const hasEnd = handlers().onEnd !== undefined;
  return whileUsable(client, () =>
    client.event.subscribe(name, (payload, context) => handlers().callback(payload, context), {
      onGap: (gap) => handlers().onGap?.(gap),
      ...(hasEnd && { onEnd: (error) => handlers().onEnd?.(error) }),
    }),
  );
}

export function publish(client: Client, name: string | undefined, payload: unknown): void {
  if (name === undefined) throw new Error('there is no event to publish: useEvent has no name');
  client.event.emit(name, payload);
}
