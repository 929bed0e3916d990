// The cursors of other users in the list. Cursors are events without a history, because old positions are useless.

import type { Client } from '@tidewire/client';
import { presenceOf } from '@tidewire/client/presence';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Cursor, Demo } from './app.ts';

/** The shortest time between two events of this tab. */
const INTERVAL_MS = 80;

/** The users in each row. */
export type Cursors = ReadonlyMap<string, string[]>;

export interface Following {
  cursors: Cursors;
  /** Sends this user's row to the others. */
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
    const users = new Map<string, string[]>();
    for (const [of, row] of rowOf) users.set(row, [...(users.get(row) ?? []), of]);
    return users;
  }, [rowOf]);
  return { cursors, move: own.move };
}

/** Emits the cursor of this tab: at once if the interval allows it, otherwise the latest row at the end of the interval. */
function teller(client: Client<Demo>, user: string) {
  let row: string | null = null;
  let told: string | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const emit = (): void => {
    // Without a connection the event would wait and arrive too late.
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
