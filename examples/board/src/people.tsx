// Presence: the members on the board, and the card that has the focus of each.

import { useState, type FormEvent } from 'react';
import { BOARD, signIn, useMembers, user, type Attention } from './tidewire.ts';

/** Another member whose focus is on a card. */
export interface Watcher {
  id: string;
  user: string;
  isEditing: boolean;
}

const NOWHERE: Attention = { card: null, isEditing: false };

/** Shows the others the card that has this user's focus; `others` returns the members at a card. A visitor without a name is not shown. */
export function useAttention() {
  const [attention, attend] = useState(NOWHERE);
  const { value: members = [], self } = useMembers(BOARD, user ? attention : undefined);
  const others = (card: string): Watcher[] => {
    const there = members.filter(({ id, state }) => id !== self?.id && state.card === card);
    return there.map(({ id, user: name = '', state }) => ({ id, user: name, isEditing: state.isEditing }));
  };
  return { others, attend };
}

/** The members of the board; for a visitor also the form for a name. */
export function People() {
  const { value: members = [] } = useMembers(BOARD);
  return (
    <div className="people">
      <ul aria-label="People on the board">
        {members.map(({ id, user: name = '' }) => (
          <li key={id}>
            <Face user={name} /> {name}
          </li>
        ))}
      </ul>
      {user === '' ? <SignIn /> : <button onClick={() => signIn('')}>Leave</button>}
    </div>
  );
}

function SignIn() {
  const [name, setName] = useState('');
  const enter = (event: FormEvent): void => {
    event.preventDefault();
    if (name.trim() !== '') signIn(name.trim());
  };
  return (
    <form onSubmit={enter}>
      <input aria-label="Your name" placeholder="Your name" value={name} onChange={(event) => setName(event.target.value)} />
      <button>Join</button>
    </form>
  );
}

/** The first letter of a name, in a colour that follows from the name. */
export function Face({ user: name }: { user: string }) {
  const hue = [...name].reduce((sum, letter) => (sum * 31 + (letter.codePointAt(0) ?? 0)) % 360, 7);
  return (
    <span className="face" aria-hidden="true" style={{ background: `hsl(${hue} 55% 30%)` }}>
      {[...name][0]?.toUpperCase()}
    </span>
  );
}
