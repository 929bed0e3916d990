// Remote procedure calls: the progress and the answer of the last call, and providing while the component is mounted.

import type { RequestOptions } from '@tidewire/client';
import { provide, type ProvideOptions, type RpcContext } from '@tidewire/client/provide';
import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { useLatest } from './latest.js';
import { useClient } from './provider.js';
import { whileUsable } from './shared.js';

/** The progress of the last call. */
export interface Progress<Value> {
  /** The answer; undefined before the first answer, and after a failure. */
  readonly value: Value | undefined;
  /** The error, if the last call has failed. */
  readonly error: unknown;
  readonly isRunning: boolean;
}

const IDLE: Progress<unknown> = { value: undefined, error: undefined, isRunning: false };

export function useRpc(name: string): Progress<unknown> & { call(argument?: unknown, options?: RequestOptions): Promise<unknown> } {
  const client = useClient();
  const [last, setLast] = useState({ client, name, progress: IDLE });
  const count = useRef(0);
  const call = useCallback(
    (argument?: unknown, options?: RequestOptions) => {
      const number = (count.current += 1);
      const show = (progress: Progress<unknown>): void => {
        if (number === count.current) setLast({ client, name, progress });
      };
      setLast((before) => ({ client, name, progress: { value: before.name === name ? before.progress.value : undefined, error: undefined, isRunning: true } }));
      const answer = client.rpc.call(name, argument, options);
      // A component that ignores the promise sees the failure in `error`.
      answer.then(
        (value) => show({ value, error: undefined, isRunning: false }),
        (error: unknown) => show({ value: undefined, error, isRunning: false }),
      );
      return answer;
    },
    [client, name],
  );
  // The answer of another rpc is not shown as the answer of this one.
  const progress = last.client === client && last.name === name ? last.progress : IDLE;
  return useMemo(() => ({ ...progress, call }), [progress, call]);
}

export function useProvide(
  name: string | undefined,
  answer: (argument: unknown, context: RpcContext) => unknown,
  options: ProvideOptions = {},
): void {
  const client = useClient();
  const latest = useLatest({ answer, ...options });
  const isEndTold = options.onEnd !== undefined;
  useEffect(() => {
    if (name === undefined) return;
    return whileUsable(client, () =>
      provide(client.rpc, name, (argument, context) => latest.current.answer(argument, context), {
        ...(isEndTold && { onEnd: (error) => latest.current.onEnd?.(error) }),
      }),
    );
  }, [client, name, isEndTold, latest]);
}
