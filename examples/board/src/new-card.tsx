import { useState, type FormEvent } from 'react';
import { CARDS, useEdits, user, type Column } from './tidewire.ts';

/** The form below a column. The id of a card is made here, so that a card can be added without a connection. */
export function NewCard({ column, position }: { column: Column; position: number }) {
  const edits = useEdits();
  const [title, setTitle] = useState('');
  const add = (event: FormEvent): void => {
    event.preventDefault();
    if (title.trim() === '') return;
    edits(`${CARDS}/${crypto.randomUUID()}`).set({ title: title.trim(), titleBy: user, column, position, movedBy: user, isDeleted: false });
    setTitle('');
  };
  if (user === '') return null;
  return (
    <form onSubmit={add}>
      <input aria-label="New card" placeholder="New card" value={title} onChange={(event) => setTitle(event.target.value)} />
      <button>Add</button>
    </form>
  );
}
