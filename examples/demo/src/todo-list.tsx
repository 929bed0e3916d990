// The shared list. Every edit shows at once; if the server refuses an edit, it is undone, and its row is marked.

import type { Client, RecordHandle, TidewireError } from '@tidewire/client';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Action } from './action.tsx';
import type { Demo, Todos } from './app.ts';
import { useCursors } from './cursors.ts';
import { examples, newIds, rowsOf, withoutDone, type Row } from './todos.ts';
import { colourOf, nameOf } from './user.ts';
import { VirtualRows } from './virtual-rows.tsx';

/** How long a row shows that its edit was refused. */
const REFUSED_MS = 2_000;
const TEXT_CHARACTERS_MAX = 200;
const EXAMPLES = 1_000;
const NOBODY: string[] = [];
/** The most entries for which examples can be added: with more, the record would exceed the server's limit. */
const ROWS_MAX = 5_000;

export interface TodoListProps {
  client: Client<Demo>;
  user: string;
  tell: (text: string) => void;
}

export function TodoList({ client, user, tell }: TodoListProps) {
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
  const isLocked = value?.locked === true;
  const left = rows.filter(({ done }) => !done).length;

  /** Waits for the server's answer to an edit of `id`. */
  const follow = (edit: Promise<void> | undefined, id?: string): void => {
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
    <section class="card list" aria-labelledby="list-title">
      <h2 id="list-title">Shared list</h2>
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
          const users = cursors.get(row.id) ?? NOBODY;
          return <Entry row={row} tabIndex={tabIndex} isRefused={refused.has(row.id)} users={users} handle={handle} follow={follow} />;
        }}
      </VirtualRows>
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
    </section>
  );
}

interface EntryProps {
  row: Row;
  tabIndex: number;
  /** The users whose cursors are in this row. */
  users: string[];
  isRefused: boolean;
  handle: RecordHandle<Todos> | undefined;
  follow: (edit: Promise<void> | undefined, id: string) => void;
}

function Entry({ row: { id, text, done }, tabIndex, users, isRefused, handle, follow }: EntryProps) {
  return (
    <div class={`entry${done ? ' done' : ''}${isRefused ? ' refused' : ''}`}>
      <input
        type="checkbox"
        tabIndex={tabIndex}
        aria-label={`Done: ${text}`}
        checked={done}
        onChange={(event) => follow(handle?.setWithAck(['items', id, 'done'], event.currentTarget.checked), id)}
      />
      <input
        class="text"
        tabIndex={tabIndex}
        aria-label="Text of the entry"
        autocomplete="off"
        maxLength={TEXT_CHARACTERS_MAX}
        value={text}
        onInput={(event) => follow(handle?.setWithAck(['items', id, 'text'], event.currentTarget.value), id)}
      />
      {users.length > 0 ? (
        <span class={`cursor ${colourOf(users[0] ?? '')}`}>
          {nameOf(users[0] ?? '')}
          {users.length > 1 ? ` +${users.length - 1}` : ''}
        </span>
      ) : null}
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
