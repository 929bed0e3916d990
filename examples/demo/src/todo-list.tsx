// The shared list. Every edit shows at once; if the server refuses an edit, it is undone, and its row is marked.

import type { Client, RecordHandle, TidewireError } from '@tidewire/client';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Action } from './action.tsx';
import type { Demo, Todos } from './app.ts';
import { Carets } from './carets.tsx';
import { useCursors, type Following, type Place } from './cursors.ts';
import { SyncNote, useEdits, type Outcome } from './edits.tsx';
import { examples, newIds, rowsOf, withoutDone, type Row } from './todos.ts';
import { colourOf, nameOf } from './user.ts';
import { VirtualRows } from './virtual-rows.tsx';

/** How long a row shows that its edit was refused. */
const REFUSED_MS = 2_000;
const TEXT_CHARACTERS_MAX = 200;
const EXAMPLES = 1_000;
const NO_PLACES: Place[] = [];
/** The most entries for which examples can be added: with more, the record would exceed the server's limit. */
const ROWS_MAX = 5_000;

export interface TodoListProps {
  client: Client<Demo>;
  user: string;
  tell: (text: string) => void;
  /** Whether the visitor has cut the connection. */
  isCut: boolean;
}

export function TodoList({ client, user, tell, isCut }: TodoListProps) {
  const [handle, setHandle] = useState<RecordHandle<Todos>>();
  const [value, setValue] = useState<Todos>();
  const [refused, setRefused] = useState<ReadonlySet<string>>(new Set());
  const [text, setText] = useState('');
  const field = useRef<HTMLInputElement>(null);
  const { cursors, move } = useCursors(client, user);

  useEffect(() => {
    const opened = client.record.open('tidewire-demo/todos', {
      onEnd: (error) => tell(`The list has ended: ${error.code}. Reload the page to open it again.`),
    });
    opened.ready.catch(() => undefined);
    opened.subscribe(setValue);
    setHandle(opened);
    return () => opened.close();
  }, [client]);

  const rows = useMemo(() => rowsOf(value), [value]);
  const edits = useEdits(rows, isCut);
  const isLocked = value?.locked === true;
  const left = rows.filter(({ done }) => !done).length;

  /** Waits for the server's answer to an edit of `id`. */
  const follow = (edit: Promise<void> | undefined, id?: string): void => {
    if (edit) edits.follow(edit, id);
    edit?.catch((error: TidewireError) => {
      if (error.code === 'CLOSED') return;
      tell(`The server refused the edit and it was taken back: ${error.code}`);
      if (id === undefined) return;
      setRefused((ids) => new Set(ids).add(id));
      setTimeout(() => setRefused((ids) => new Set([...ids].filter((other) => other !== id))), REFUSED_MS);
    });
  };

  const add = (event: SubmitEvent): void => {
    event.preventDefault();
    const [id] = newIds(1);
    if (text.trim() === '' || id === undefined) return;
    follow(handle?.setWithAck(['items', id], { text: text.trim(), done: false }), id);
    setText('');
    field.current?.focus();
  };

  const more = (): void => {
    const items = examples(EXAMPLES);
    follow(handle?.update((before) => ({ ...before, items: { ...before.items, ...items } })));
  };

  return (
    <div class="list">
      <h3>Shared list</h3>
      <form class="add" onSubmit={add}>
        <input
          ref={field}
          aria-label="New entry"
          placeholder="What needs to be done?"
          autocomplete="off"
          maxLength={TEXT_CHARACTERS_MAX}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <button disabled={value === undefined}>Add</button>
      </form>
      <VirtualRows label="Entries" rows={rows} idOf={({ id }) => id} onEnter={move}>
        {(row, tabIndex) => {
          const places = cursors.get(row.id) ?? NO_PLACES;
          const outcome = edits.outcomes.get(row.id);
          return <Entry {...{ row, tabIndex, places, outcome, handle, follow, move }} isRefused={refused.has(row.id)} />;
        }}
      </VirtualRows>
      <SyncNote edits={edits} isCut={isCut} />
      <p class="hint">
        {isLocked
          ? 'Locked: a rule of the server refuses every edit. Try one, and see it taken back.'
          : 'Edits show at once, here and in all other tabs. The arrow keys lead from entry to entry.'}
      </p>
      <footer class="actions">
        <span class="count">{value === undefined ? 'Waiting for the server' : `${left} of ${rows.length} to do`}</span>
        <Action isOff={value === undefined || rows.length + EXAMPLES > ROWS_MAX} act={more}>
          Add {EXAMPLES.toLocaleString('en')}
        </Action>
        <Action isOff={left === rows.length} act={() => follow(handle?.update(withoutDone))}>
          Remove done
        </Action>
        <Action isOff={rows.length === 0} act={() => follow(handle?.setWithAck('items', {}))}>
          Remove all
        </Action>
        <label class="lock">
          <input type="checkbox" checked={isLocked} onChange={(event) => follow(handle?.setWithAck('locked', event.currentTarget.checked))} />
          Lock
        </label>
      </footer>
    </div>
  );
}

interface EntryProps {
  row: Row;
  tabIndex: number;
  /** The users whose cursors are in this row. */
  places: Place[];
  isRefused: boolean;
  /** The outcome of the last edit of this row. */
  outcome: Outcome | undefined;
  move: Following['move'];
  handle: RecordHandle<Todos> | undefined;
  follow: (edit: Promise<void> | undefined, id: string) => void;
}

function Entry({ row: { id, text, done }, tabIndex, places, isRefused, outcome, handle, follow, move }: EntryProps) {
  const select = ({ currentTarget: { selectionStart: start, selectionEnd: end } }: { currentTarget: HTMLInputElement }): void => {
    if (start !== null && end !== null) move(id, [start, end]);
  };
  const [first] = places;
  return (
    <div class={`entry${done ? ' done' : ''}${isRefused ? ' refused' : ''}`}>
      <input
        type="checkbox"
        tabIndex={tabIndex}
        aria-label={`Done: ${text}`}
        checked={done}
        onChange={(event) => follow(handle?.setWithAck(['items', id, 'done'], event.currentTarget.checked), id)}
      />
      <span class="field">
        <input
          class="text"
          tabIndex={tabIndex}
          aria-label="Text of the entry"
          autocomplete="off"
          maxLength={TEXT_CHARACTERS_MAX}
          value={text}
          onInput={(event) => {
            follow(handle?.setWithAck(['items', id, 'text'], event.currentTarget.value), id);
            select(event);
          }}
          onKeyUp={select}
          onPointerUp={select}
          onSelect={select}
          onFocus={select}
          onBlur={() => move(id, null)}
        />
        <Carets places={places} text={text} />
      </span>
      {first ? (
        <span class={`cursor ${colourOf(first.user)}`}>
          {nameOf(first.user)}
          {places.length > 1 ? ` +${places.length - 1}` : ''}
        </span>
      ) : null}
      {outcome === undefined ? null : <span class="ms">{outcome === 'waits' ? 'waits' : `${outcome} ms`}</span>}
      <button
        class="remove"
        tabIndex={tabIndex}
        aria-label={`Remove: ${text}`}
        onClick={() => follow(handle?.setWithAck(['items', id], undefined), id)}
      >
        ×
      </button>
    </div>
  );
}
