// The page: the users online, and the data that they share. Each name has its own connection.

import { Client, type State } from '@tidewire/client';
import { render } from 'preact';
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Demo } from './app.ts';
import { Die } from './die.tsx';
import { People } from './people.tsx';
import { Ticker } from './ticker.tsx';
import { TodoList } from './todo-list.tsx';
import { keepName, keptName, NAME_CHARACTERS_MAX, userId } from './user.ts';

/** How long the page shows a notice. */
const NOTICE_MS = 6_000;

const STATES: Record<State, string> = {
  closed: 'closed',
  connecting: 'connecting',
  authenticating: 'logging in',
  open: 'connected',
  checking: 'checking the connection',
  stale: 'the server is silent',
  waiting: 'connection lost, trying again',
};

function Page() {
  const [name, setName] = useState(keptName);
  const user = useMemo(() => userId(name), [name]);
  keepName(name);
  return (
    <>
      <header class="top">
        <h1>
          <img src="icon.svg" alt="" width="28" height="28" /> Tidewire
        </h1>
        <p>Open this page in a second tab: it shows every change that you make here at once.</p>
        <NameForm name={name} onName={setName} />
      </header>
      <Shared key={user} user={user} />
    </>
  );
}

function NameForm({ name, onName }: { name: string; onName: (name: string) => void }) {
  const field = useRef<HTMLInputElement>(null);
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    const wanted = field.current?.value.trim() ?? '';
    if (wanted !== '' && wanted !== name) onName(wanted);
  };
  return (
    <form class="name" onSubmit={submit}>
      <label for="name">Your name</label>
      <input id="name" ref={field} defaultValue={name} autocomplete="off" maxLength={NAME_CHARACTERS_MAX} />
      <button>Change</button>
    </form>
  );
}

/** The shared parts of the page for one user, over one connection. */
function Shared({ user }: { user: string }) {
  const client = useMemo(() => new Client<Demo>(undefined, { auth: { username: user } }), []);
  const [state, setState] = useState<State>(client.state);
  const [notice, setNotice] = useState('');
  const timer = useRef<ReturnType<typeof setTimeout>>();
  const tell = useCallback((text: string) => {
    setNotice(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setNotice(''), NOTICE_MS);
  }, []);

  useEffect(() => {
    client.onState(setState);
    client.onError((error) => tell(error.message));
    client.connect().catch(() => tell(`The server refused the login: ${client.closeReason?.message ?? ''}`));
    return () => client.close();
  }, []);

  return (
    <>
      <section class="status" aria-label="Connection">
        <span class={`state ${state}`} role="status">
          {STATES[state]}
        </span>
        <People client={client} user={user} />
      </section>
      <main>
        <TodoList client={client} user={user} tell={tell} />
        <div class="side">
          <Ticker client={client} />
          <Die client={client} user={user} />
        </div>
      </main>
      <div class="notice" role="alert">
        {notice}
      </div>
    </>
  );
}

render(<Page />, document.getElementById('page') as HTMLElement);
