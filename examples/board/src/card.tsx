// One card: its title, which a click or Enter edits, its moves by drag and by keyboard, and the other members whose focus is on it.

import { useEffect, useRef, useState, type DragEvent, type KeyboardEvent, type RefObject } from 'react';
import { Face, type Watcher } from './people.tsx';
import { CARDS, useEdits, useSync, user, type Attention, type Card, type Column } from './tidewire.ts';

/** A place in a column. */
export interface Place {
  column: Column;
  index: number;
}

interface Props {
  id: string;
  card: Card;
  place: Place;
  /** The other members whose focus is on this card. */
  watchers: readonly Watcher[];
  moving: RefObject<string | undefined>;
  move(id: string, to: Place): void;
  moveBy(id: string, key: string): void;
  attend(attention: Attention): void;
}

export function CardView({ id, card, place, watchers, moving, move, moveBy, attend }: Props) {
  const { patch } = useEdits()(`${CARDS}/${id}`);
  const waits = useSync().queue.some(({ name }) => name === `${CARDS}/${id}`);
  const [isEditing, setEditing] = useState(false);
  const title = useRef<HTMLButtonElement>(null);

  useEffect(() => {
    if (moving.current !== id) return;
    moving.current = undefined;
    title.current?.focus();
  });

  const edit = (isOn: boolean): void => {
    setEditing(isOn);
    attend({ card: id, isEditing: isOn });
  };
  const end = (text: string): void => {
    edit(false);
    // `Status` shows a refusal.
    if (text.trim() !== card.title) patch({ title: text.trim(), titleBy: user }).catch(() => {});
  };
  const onKey = (event: KeyboardEvent): void => {
    if (!event.altKey || !event.key.startsWith('Arrow')) return;
    event.preventDefault();
    moveBy(id, event.key);
  };
  const drop = (event: DragEvent): void => {
    event.stopPropagation();
    move(event.dataTransfer.getData('text'), place);
  };

  return (
    <li className={waits ? 'card waits' : 'card'} draggable={user !== '' && !isEditing} onDragStart={(event) => event.dataTransfer.setData('text', id)} onDrop={drop}>
      {isEditing ? (
        <TitleField title={card.title} end={end} focusNext={() => (moving.current = id)} />
      ) : (
        <button
          ref={title}
          className="title"
          disabled={user === ''}
          aria-describedby="keys"
          onClick={() => edit(true)}
          onKeyDown={onKey}
          onFocus={() => attend({ card: id, isEditing: false })}
          onBlur={() => attend({ card: null, isEditing: false })}
        >
          {card.title}
        </button>
      )}
      <p className="signed">
        {card.titleBy === card.movedBy ? `by ${card.titleBy}` : `title by ${card.titleBy}, moved by ${card.movedBy}`}
        {waits && ' · waits for a connection'}
      </p>
      <p className="watchers">
        {watchers.map(({ id: member, user: name, isEditing: edits }) => (
          <span key={member}>
            <Face user={name} /> {edits ? `${name} is writing` : name}
          </span>
        ))}
      </p>
      {user !== '' && (
        <button className="delete" aria-label={`Delete: ${card.title}`} onClick={() => patch({ isDeleted: true }).catch(() => {})}>
          ×
        </button>
      )}
    </li>
  );
}

/** Ends with Enter or with the loss of the focus; Escape leaves the title as it was. After a key the button of the title has the focus. */
function TitleField({ title, end, focusNext }: { title: string; end(text: string): void; focusNext(): void }) {
  const [text, setText] = useState(title);
  const isOver = useRef(false);
  const finish = (result: string): void => {
    // The browser also reports the loss of the focus of a field that is removed.
    if (!isOver.current) end(result);
    isOver.current = true;
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key !== 'Enter' && event.key !== 'Escape') return;
    // Otherwise Enter would also press the button that gets the focus.
    event.preventDefault();
    focusNext();
    finish(event.key === 'Enter' ? text : title);
  };
  return <input autoFocus aria-label="Title" value={text} onChange={(event) => setText(event.target.value)} onKeyDown={onKey} onBlur={() => finish(text)} />;
}
