// What a view shows of the server: loaded when the view opens, anew when something else is asked for, and again and again where it changes by itself.

import { useEffect, useState } from 'preact/hooks';
import { reason } from './server.ts';

export interface Loaded<T> {
  value?: T;
  /** Why the last attempt failed; empty if it did not. The value before it stays. */
  problem: string;
}

/**
 * What `ask` gives, asked anew when one of `about` changes, and `againMs` milliseconds after each answer if that is given. An answer that comes when
 * something else has been asked for counts no more.
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
