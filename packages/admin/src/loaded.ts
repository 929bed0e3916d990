// Values from the server that a view shows. A view loads a value when it opens and when the request changes. A value that changes by itself
// is loaded periodically.

import { useEffect, useState } from 'preact/hooks';
import { query, reason, type Server } from './server.ts';

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

/** A part of a long list that the server sorts. */
export interface ListPart<Page> {
  page?: Page | undefined;
  /** The index of its first row in the list. */
  first: number;
  problem: string;
  /** Requests the part around this row. */
  onScroll: (firstVisible: number) => void;
}

const PART_STEP = 50;

/**
 * The part of the list at `path` around the visible rows: more than is visible, so that scrolling within it shows rows at once. `asked` has the
 * filters and the order. The part changes only after some rows, so that scrolling does not request each row.
 */
export function useListPart<Page>(server: Server, path: string, asked: Record<string, string>, againMs: number): ListPart<Page> {
  const [offset, setOffset] = useState(0);
  const ask = async (): Promise<{ page: Page; first: number }> => {
    const part = { ...asked, offset: String(offset), count: String(3 * PART_STEP) };
    return { page: await server.ask<Page>('GET', `${path}${query(part)}`), first: offset };
  };
  const { value, problem } = useLoaded(ask, [...Object.values(asked), offset], againMs);
  const onScroll = (firstVisible: number): void => setOffset(Math.max(Math.floor(firstVisible / PART_STEP) * PART_STEP - PART_STEP, 0));
  return { page: value?.page, first: value?.first ?? 0, problem, onScroll };
}
