// The edits of a pane: how long the server needed for each, which ones wait, and the merge after a cut.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Row } from './todos.ts';

/** Milliseconds from the edit until the server has saved it, or that it still waits. */
export type Outcome = number | 'waits';

/** How long a row shows its milliseconds. */
const SHOWN_MS = 4_000;

export interface Edits {
  /** By the id of the row; edits of the whole list have none. */
  outcomes: ReadonlyMap<string | undefined, Outcome>;
  waiting: number;
  /** The result of the last return with edits in the queue, until the next edit or cut. */
  merged: { own: number; others: number } | undefined;
  /** The milliseconds of the last edit. */
  last: number | undefined;
  follow: (edit: Promise<void>, id?: string) => void;
}

export function useEdits(rows: Row[], isCut: boolean): Edits {
  const [outcomes, setOutcomes] = useState<Edits['outcomes']>(new Map());
  const [waiting, setWaiting] = useState(0);
  const [merged, setMerged] = useState<Edits['merged']>();
  const [last, setLast] = useState<number>();
  /** The edits that waited and the rows with them, when the visitor restored the connection. */
  const returned = useRef<{ own: number; rows: Row[] }>();
  const wasCut = useRef(false);

  useEffect(() => {
    returned.current = wasCut.current && waiting > 0 ? { own: waiting, rows } : undefined;
    setMerged(undefined);
    wasCut.current = isCut;
  }, [isCut]);

  // When the server has confirmed all edits, the rows include what others changed before: every other difference is theirs.
  useEffect(() => {
    const before = returned.current;
    if (isCut || waiting > 0 || !before) return;
    returned.current = undefined;
    const old = new Map(before.rows.map((row) => [row.id, JSON.stringify(row)]));
    const changed = rows.filter((row) => old.get(row.id) !== JSON.stringify(row));
    rows.forEach(({ id }) => old.delete(id));
    // The rest of the old rows has been removed.
    setMerged({ own: before.own, others: changed.length + old.size });
  }, [rows, waiting, isCut]);

  const put = (id: string | undefined, outcome: Outcome | undefined): void => {
    setOutcomes((all) => (outcome === undefined ? without(all, id) : new Map(all).set(id, outcome)));
  };

  const follow = (edit: Promise<void>, id?: string): void => {
    const began = performance.now();
    setWaiting((count) => count + 1);
    setMerged(undefined);
    put(id, 'waits');
    const end = (outcome: Outcome | undefined): void => {
      setWaiting((count) => count - 1);
      put(id, outcome);
    };
    edit.then(
      () => {
        const ms = Math.max(1, Math.round(performance.now() - began));
        setLast(ms);
        end(ms);
        setTimeout(() => setOutcomes((all) => (all.get(id) === ms ? without(all, id) : all)), SHOWN_MS);
      },
      () => {
        // The row of a refused edit changes too.
        returned.current = undefined;
        end(undefined);
      },
    );
  };
  return { outcomes, waiting, merged, last, follow };
}

function without(outcomes: Edits['outcomes'], id: string | undefined): Edits['outcomes'] {
  const next = new Map(outcomes);
  next.delete(id);
  return next;
}

const count = (number: number, one: string): string => `${number} ${one}${number === 1 ? '' : 's'}`;

/** The queue of a pane whose connection is cut, and the merge afterwards. */
export function SyncNote({ edits: { waiting, merged, last }, isCut }: { edits: Edits; isCut: boolean }) {
  let text = last === undefined ? 'No edit yet.' : `The server has saved the last edit after ${last} ms.`;
  if (isCut) text = `Connection cut: ${count(waiting, 'edit')} in the queue. Edit both lists, then restore it.`;
  else if (waiting > 0) text = `${count(waiting, 'edit')} in the queue.`;
  else if (merged) text = `Restored: ${count(merged.own, 'edit')} sent and merged with ${count(merged.others, 'changed row')} of others.`;
  return (
    <p class={isCut ? 'sync cut' : 'sync'} role="note">
      {text}
    </p>
  );
}
