// Where the others are in the list. Cursors are events: nobody needs those of yesterday, so the server keeps none.

import type { Client } from '@tidewire/client';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Cursor, Demo } from './app.ts';

/** Shortest time between two events of this tab. */
const INTERVAL_MS = 80;

/** The users in each row. */
export type Cursors = ReadonlyMap<string, string[]>;

export interface Following {
  cursors: Cursors;
  /** Tells the others in which row this user is. */
  move: (row: string | null) => void;
}

export function useCursors(client: Client<Demo>, user: string): Following {
  const [rowOf, setRowOf] = useState<ReadonlyMap<string, string>>(new Map());
  const own = useMemo(() => teller(client, user), [client, user]);

  useEffect(() => {
    const put = (of: string, row: string | null): void => {
      if (of === user) return;
      setRowOf((rows) => {
        const next = new Map(rows);
        if (row === null) next.delete(of);
        else next.set(of, row);
        return next;
      });
    };
    const stops = [
      client.event.subscribe('tidewire-demo/cursor', (cursor: Partial<Cursor> | null) => {
        const { user: of, row } = cursor ?? {};
        if (typeof of === 'string' && (typeof row === 'string' || row === null)) put(of, row);
      }),
      client.presence.subscribeAll((_, change) => {
        // Who has just come knows no cursors yet.
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
    const users = new Map<string, string[]>();
    for (const [of, row] of rowOf) users.set(row, [...(users.get(row) ?? []), of]);
    return users;
  }, [rowOf]);
  return { cursors, move: own.move };
}

/** Emits the cursor of this tab: at once where it may, else the last one when the time has come. */
function teller(client: Client<Demo>, user: string) {
  let row: string | null = null;
  let told: string | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const emit = (): void => {
    // Without a connection it would wait for one, and come too late.
    if (client.state !== 'open') return;
    told = row;
    client.event.emit('tidewire-demo/cursor', { user, row });
    timer = setTimeout(() => {
      timer = undefined;
      if (row !== told) emit();
    }, INTERVAL_MS);
  };
  return {
    move: (to: string | null): void => {
      row = to;
      if (timer === undefined && row !== told) emit();
    },
    repeat: (): void => {
      if (timer === undefined && row !== null) emit();
    },
    stop: (): void => clearTimeout(timer),
  };
}
