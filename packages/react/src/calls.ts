// Events and remote procedure calls: callbacks that are registered while the component is mounted, publishing and calling.

import type { RequestOptions } from '@tidewire/client';
import { Calls, answerCalls, followEvent, publish, type AnswerHandlers, type EventHandlers, type EventOptions, type Progress } from '@tidewire/client/store';
import { useCallback, useEffect, useInsertionEffect, useMemo, useRef, useSyncExternalStore } from 'react';
import { useClient } from './provider.js';

/** The values of a component's last render, for callbacks that outlive that render. */
function useLatest<Value>(value: Value): { current: Value } {
  const latest = useRef(value);
  // Runs before all other effects, and only for a render that React commits.
  useInsertionEffect(() => {
    latest.current = value;
  });
  return latest;
}

export function useEvent(name: string | undefined, callback: EventHandlers['callback'], options: EventOptions = {}): (payload?: unknown) => void {
  const client = useClient();
  const latest = useLatest({ ...options, callback });
  const hasEnd = options.onEnd !== undefined;
  useEffect(() => followEvent(client, name, () => latest.current), [client, name, hasEnd, latest]);
  return useCallback((payload) => publish(client, name, payload), [client, name]);
}

export function useRpc(name: string): Progress<unknown> & { call(argument?: unknown, options?: RequestOptions): Promise<unknown> } {
  const client = useClient();
  const calls = useMemo(() => new Calls(client, name), [client, name]);
  const read = (): Progress<unknown> => calls.progress;
  const progress = useSyncExternalStore(calls.subscribe, read, read);
  return useMemo(() => ({ ...progress, call: calls.call }), [progress, calls]);
}

export function useProvide(name: string | undefined, answer: AnswerHandlers['answer'], options: Omit<AnswerHandlers, 'answer'> = {}): void {
  const client = useClient();
  const latest = useLatest({ ...options, answer });
  const hasEnd = options.onEnd !== undefined;
  useEffect(() => answerCalls(client, name, () => latest.current), [client, name, hasEnd, latest]);
}
