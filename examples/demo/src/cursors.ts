// The cursors of other users in the list. Cursors are events without a history, because old positions are useless.

import type { Client } from '@tidewire/client';
import { presenceOf } from '@tidewire/client/presence';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Cursor, Demo } from './app.ts';

/** The shortest time between two events of this tab. */
const INTERVAL_MS = 80;

/** Where another user is in a row. */
export interface Place {
  user: string;
  selection?: readonly [start: number, end: number];
}

/** The users in each row. */
export type Cursors = ReadonlyMap<string, Place[]>;

export interface Following {
  cursors: Cursors;
  /** Sends this user's row to the others; without a `selection` the row keeps the one that it has, null removes it. */
  move: (row: string | null, selection?: Place['selection'] | null) => void;
}

export function useCursors(client: Client<Demo>, user: string): Following {
  const [rowOf, setRowOf] = useState<ReadonlyMap<string, { row: string; place: Place }>>(new Map());
  const own = useMemo(() => teller(client, user), [client, user]);

  useEffect(() => {
    const put = (of: string, row: string | null, selection?: Place['selection']): void => {
      if (of === user) return;
      setRowOf((rows) => {
        const next = new Map(rows);
        if (row === null) next.delete(of);
        else next.set(of, { row, place: { user: of, ...(selection && { selection }) } });
        return next;
      });
    };
    const stops = [
      client.event.subscribe('tidewire-demo/cursor', (cursor: Partial<Cursor> | null) => {
        const { user: of, row, start, end } = cursor ?? {};
        const selection = typeof start === 'number' && typeof end === 'number' ? ([start, end] as const) : undefined;
        if (typeof of === 'string' && (typeof row === 'string' || row === null)) put(of, row, selection);
      }),
      presenceOf(client).subscribeAll((_, change) => {
        // A new user has received no cursors yet.
        if (change?.isOnline) own.repeat();
        else if (change) put(change.user, null);
      }),
      client.onState((state) => {
        if (state === 'open') own.repeat();
        else if (state === 'waiting') setRowOf(new Map());
      }),
      own.stop,
    ];
    return () => stops.forEach((stop) => stop());
  }, [client, user]);

  const cursors = useMemo(() => {
    const users = new Map<string, Place[]>();
    for (const { row, place } of rowOf.values()) users.set(row, [...(users.get(row) ?? []), place]);
    return users;
  }, [rowOf]);
  return { cursors, move: own.move };
}

/** Emits the cursor of this tab: at once if the interval allows it, otherwise the latest place at the end of the interval. */
function teller(client: Client<Demo>, user: string) {
  let cursor: Cursor = { user, row: null };
  let told = cursor;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const emit = (): void => {
    // Without a connection the event would wait and arrive too late.
    if (client.state !== 'open') return;
    told = cursor;
    client.event.emit('tidewire-demo/cursor', cursor);
    timer = setTimeout(() => {
      timer = undefined;
      if (cursor !== told) emit();
    }, INTERVAL_MS);
  };
  return {
    move: (row: string | null, selection?: Place['selection'] | null): void => {
      if (row === cursor.row && selection === undefined) return;
      const next: Cursor = selection ? { user, row, start: selection[0], end: selection[1] } : { user, row };
      if (row === cursor.row && next.start === cursor.start && next.end === cursor.end) return;
      cursor = next;
      if (timer === undefined) emit();
    },
    repeat: (): void => {
      if (timer === undefined && cursor.row !== null) emit();
    },
    stop: (): void => clearTimeout(timer),
  };
}
