// Waits that a signal or a time limit ends.

import { deferred } from './deferred.js';

/** The parts of an AbortSignal that the client uses. Runtimes without that class may pass their own object. */
export interface Signal {
  readonly aborted: boolean;
  readonly reason?: unknown;
  addEventListener(event: 'abort', listener: () => void): void;
  removeEventListener(event: 'abort', listener: () => void): void;
}

/** Waits for `promise`, until the signal aborts or the time has passed: then it rejects with the error that `failed` returns. */
export async function limited<T>(
  promise: Promise<T>,
  signal: Signal | undefined,
  timeoutMs: number | undefined,
  failed: (isLate: boolean) => unknown,
): Promise<T> {
  const end = deferred<never>();
  const abort = (): void => end.reject(failed(false));
  const timer = timeoutMs === undefined ? undefined : setTimeout(() => end.reject(failed(true)), timeoutMs);
  signal?.addEventListener('abort', abort);
  try {
    return await Promise.race([promise, end.promise]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  }
}
