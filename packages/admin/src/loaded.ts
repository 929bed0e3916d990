// Values from the server that a view shows. A view loads a value when it opens and when the request changes. A value that changes by itself
// is loaded periodically.

import { useEffect, useState } from 'preact/hooks';
import { reason } from './server.ts';

export interface Loaded<T> {
  value?: T;
  /** The error of the last attempt; empty if it succeeded. After an error the previous value stays. */
  problem: string;
}

/**
 * The result of `ask`. It is loaded again when one of `about` changes, and `againMs` milliseconds after each answer if `againMs` is given.
 * An answer that arrives after `about` has changed is ignored.
 */
export function useLoaded<T>(ask: () => Promise<T>, about: readonly unknown[], againMs?: number): Loaded<T> {
  const [loaded, setLoaded] = useState<Loaded<T>>({ problem: '' });
  useEffect(() => {
    let isOver = false;
    let timer: ReturnType<typeof setTimeout>;
    const load = async (): Promise<void> => {
      const change: Loaded<T> = await ask().then((value) => ({ value, problem: '' }), (error: unknown) => ({ problem: reason(error) }));
      if (isOver) return;
      setLoaded((before) => ({ ...before, ...change }));
      if (againMs !== undefined) timer = setTimeout(load, againMs);
    };
    void load();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, about);
  return loaded;
}
