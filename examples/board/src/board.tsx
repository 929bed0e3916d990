// The board: one live query for all cards, which includes the edits that wait on this device, and the moves between its columns.

import { useRef, useState } from 'react';
import { CardView, type Place } from './card.tsx';
import { NewCard } from './new-card.tsx';
import { positions } from './order.ts';
import { CARDS, useEdits, useQuery, user, type Column } from './tidewire.ts';
import { useAttention } from './people.tsx';

const COLUMNS: ReadonlyArray<[Column, string]> = [
  ['todo', 'To do'],
  ['doing', 'Doing'],
  ['done', 'Done'],
];

export function Board() {
  const { value: cards, error } = useQuery(CARDS, { where: { isDeleted: false }, sort: ['position'] });
  const edits = useEdits();
  const [announcement, announce] = useState('');
  /** The card that the user moves by keyboard: its element in another column takes the focus. */
  const moving = useRef<string | undefined>(undefined);
  const { others, attend } = useAttention();

  /** Moves a card before the card that is now at `index` of the column. */
  const move = (id: string, { column, index }: Place): void => {
    const there = cardsIn(column).filter((card) => card.id !== id);
    const at = Math.max(0, Math.min(index, there.length));
    for (const place of positions(there.map((card) => ({ id: card.id, position: card.data.position })), id, at)) {
      edits(`${CARDS}/${place.id}`).patch({ position: place.position, movedBy: user, ...(place.id === id && { column }) }).catch(() => {
        // `Status` shows the refusal.
      });
    }
    const name = COLUMNS.find(([one]) => one === column)?.[1];
    announce(`moved to ${name}, ${at + 1} of ${there.length + 1}`);
  };
  const cardsIn = (column: Column) => (cards ?? []).filter(({ data }) => data.column === column);

  /** Moves a card by keyboard: up and down in its column, left and right to the neighbouring columns. */
  const moveBy = (id: string, key: string): void => {
    const columns = COLUMNS.map(([column]) => column);
    const from = columns.findIndex((column) => cardsIn(column).some((card) => card.id === id));
    const index = cardsIn(columns[from] as Column).findIndex((card) => card.id === id);
    const to = columns[from + (key === 'ArrowRight' ? 1 : key === 'ArrowLeft' ? -1 : 0)];
    const step = key === 'ArrowDown' ? 1 : key === 'ArrowUp' ? -1 : 0;
    if (!to) return;
    moving.current = id;
    move(id, { column: to, index: index + step });
  };

  if (error && !cards) return <p role="alert">The cards can't be shown: {error.code}</p>;
  if (!cards) return <p>Loading the cards…</p>;
  return (
    <main>
      {COLUMNS.map(([column, name]) => (
        <section key={column} aria-label={name} onDragOver={(event) => event.preventDefault()} onDrop={(event) => move(event.dataTransfer.getData('text'), { column, index: Infinity })}>
          <h2>
            {name} <small>{cardsIn(column).length}</small>
          </h2>
          <ol>
            {cardsIn(column).map(({ id, data }, index) => (
              <CardView key={id} id={id} card={data} watchers={others(id)} place={{ column, index }} moving={moving} move={move} moveBy={moveBy} attend={attend} />
            ))}
          </ol>
          <NewCard column={column} position={(cardsIn(column).at(-1)?.data.position ?? 0) + 1} />
        </section>
      ))}
      <p id="keys" className="keys">
        Enter edits a card. Alt with the arrow keys moves it.
      </p>
      <p className="hidden" aria-live="polite">
        {announcement}
      </p>
    </main>
  );
}
