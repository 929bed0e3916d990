// One user of the page: a connection that can be cut, its state, and the shared list as this user sees it.

import { Client, type State } from '@tidewire/client';
import type { ComponentChildren } from 'preact';
import { useCallback, useEffect, useId, useMemo, useRef, useState } from 'preact/hooks';
import type { Demo } from './app.ts';
import { Cable } from './cable.ts';
import { People } from './people.tsx';
import { TodoList } from './todo-list.tsx';
import { colourOf } from './user.ts';

/** How long the page shows a notice. */
const NOTICE_MS = 6_000;

const STATES: Record<State, string> = {
  closed: 'closed',
  connecting: 'connecting',
  authenticating: 'logging in',
  open: 'connected',
  checking: 'checking the connection',
  stale: 'the server is silent',
  waiting: 'connection lost',
};

export interface PaneProps {
  user: string;
  title: string;
  /** The words behind the name of this user in the list of people. */
  own: string;
  /** Called with the client of the pane, whose data the other parts of the page show. */
  onClient?: (client: Client<Demo>) => void;
  children?: ComponentChildren;
}

export function Pane({ user, title, own, onClient, children }: PaneProps) {
  const heading = useId();
  const cable = useMemo(() => new Cable(), []);
  const client = useMemo(() => new Client<Demo>(undefined, { auth: { username: user }, webSocket: cable.webSocket, reconnectMinMs: 100, reconnectMaxMs: 2_000 }), []);
  const [state, setState] = useState<State>(client.state);
  const [isCut, setCut] = useState(false);
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
    onClient?.(client);
    return () => client.close();
  }, []);

  const cut = (wanted: boolean): void => {
    setCut(wanted);
    if (wanted) cable.cut();
    else {
      cable.restore();
      // Dials at once instead of at the end of the delay.
      client.check();
    }
  };

  return (
    <section class={`pane card ${colourOf(user)}`} aria-labelledby={heading}>
      <div class="status">
        <h2 id={heading}>{title}</h2>
        <span class={`state ${state}`} role="status">
          {STATES[state]}
        </span>
        <label class="switch">
          <input type="checkbox" role="switch" checked={!isCut} onChange={(event) => cut(!event.currentTarget.checked)} /> Connection
        </label>
      </div>
      <People client={client} user={user} own={own} />
      {children}
      <TodoList client={client} user={user} tell={tell} isCut={isCut} />
      <div class="notice" role="alert">
        {notice}
      </div>
    </section>
  );
}
