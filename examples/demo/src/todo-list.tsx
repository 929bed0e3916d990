// The shared list. Every edit shows at once; what the server refuses goes back, and its row says so.

import type { Client, RecordHandle, TidewireError } from '@tidewire/client';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Demo, Todos } from './app.ts';
import { examples, newIds, rowsOf, withoutDone, type Row } from './todos.ts';
import { VirtualRows } from './virtual-rows.tsx';

/** How long a row shows that its edit was refused. */
const REFUSED_MS = 2_000;
const TEXT_CHARACTERS_MAX = 200;
const EXAMPLES = 1_000;
/** Entries from which no more examples are added: they would make the record larger than the server takes. */
const ROWS_MAX = 5_000;

export interface TodoListProps {
  client: Client<Demo>;
  tell: (text: string) => void;
}

export function TodoList({ client, tell }: TodoListProps) {
  const [handle, setHandle] = useState<RecordHandle<Todos>>();
  const [value, setValue] = useState<Todos>();
  const [refused, setRefused] = useState<ReadonlySet<string>>(new Set());
  const [text, setText] = useState('');
  const field = useRef<HTMLInputElement>(null);

  useEffect(() => {
    const opened = client.record.open('tidewire-demo/todos', {
      onEnd: (error) => tell(`The list is gone: ${error.code}. Reload the page to have it again.`),
    });
    opened.ready.catch(() => undefined);
    opened.subscribe(setValue);
    setHandle(opened);
    return () => opened.close();
  }, [client]);

  const rows = useMemo(() => rowsOf(value), [value]);
  const left = rows.filter(({ done }) => !done).length;

  /** Waits for the server's word about an edit of `id`. */
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
    follow(handle?.setWithAck(`items.${id}`, { text: text.trim(), done: false }), id);
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
          placeholder="What is to be done?"
          autocomplete="off"
          maxLength={TEXT_CHARACTERS_MAX}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <button disabled={value === undefined}>Add</button>
      </form>
      <VirtualRows label="Entries" rows={rows} idOf={({ id }) => id}>
        {(row) => <Entry row={row} isRefused={refused.has(row.id)} handle={handle} follow={follow} />}
      </VirtualRows>
      <footer class="actions">
        <span class="count">{value === undefined ? 'Waiting for the server' : `${left} of ${rows.length} to do`}</span>
        <button disabled={value === undefined || rows.length + EXAMPLES > ROWS_MAX} onClick={more}>
          Add {EXAMPLES.toLocaleString('en')}
        </button>
        <button disabled={left === rows.length} onClick={() => follow(handle?.update(withoutDone))}>
          Remove done
        </button>
      </footer>
    </section>
  );
}

interface EntryProps {
  row: Row;
  isRefused: boolean;
  handle: RecordHandle<Todos> | undefined;
  follow: (edit: Promise<void> | undefined, id: string) => void;
}

function Entry({ row: { id, text, done }, isRefused, handle, follow }: EntryProps) {
  return (
    <div class={`entry${done ? ' done' : ''}${isRefused ? ' refused' : ''}`}>
      <input
        type="checkbox"
        aria-label={`Done: ${text}`}
        checked={done}
        onChange={(event) => follow(handle?.setWithAck(`items.${id}.done`, event.currentTarget.checked), id)}
      />
      <input
        class="text"
        aria-label="Text of the entry"
        autocomplete="off"
        maxLength={TEXT_CHARACTERS_MAX}
        value={text}
        onInput={(event) => follow(handle?.setWithAck(`items.${id}.text`, event.currentTarget.value), id)}
      />
      <button class="remove" aria-label={`Remove: ${text}`} onClick={() => follow(handle?.setWithAck(`items.${id}`, undefined), id)}>
        ×
      </button>
    </div>
  );
}
