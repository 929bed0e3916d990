// The page: sign-in with the key, then one view at a time. The page requests figures in every view, so that it shows at once when the
// server does not answer.

import { render, type VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { addressOf, FIRST_VIEW, useAddress, visit, type Parameters } from './address.ts';
import { Connections } from './connections.tsx';
import { pointsOf, type Figures, type History, type Point } from './figures.ts';
import { useLoaded } from './loaded.ts';
import { Names } from './names.tsx';
import { Overview } from './overview.tsx';
import { Providers } from './providers.tsx';
import { Records } from './records.tsx';
import { Revocations } from './revocations.tsx';
import { RulesView } from './rules.tsx';
import { keptSession, reason, Refused, Server, signIn, type Session } from './server.ts';
import { TailView } from './tail.tsx';
import { Trial } from './trial.tsx';

const FIGURES_MS = 1_000;
/** Older points are dropped, as the server does. */
const HISTORY_SECONDS = 3_600;

interface ViewProps {
  server: Server;
  parameters: Parameters;
  figures: Figures | undefined;
  points: readonly Point[];
}

const revoke = (user: string): void => visit('revoke', { user });

/** The views by the name in their address. */
const VIEWS: Record<string, { title: string; of: (props: ViewProps) => VNode }> = {
  overview: { title: 'Overview', of: ({ figures, points, parameters }) => <Overview figures={figures} points={points} parameters={parameters} /> },
  connections: { title: 'Connections', of: ({ server, parameters }) => <Connections server={server} parameters={parameters} onRevoke={revoke} /> },
  names: { title: 'Names', of: ({ server, parameters }) => <Names server={server} parameters={parameters} /> },
  providers: { title: 'Providers', of: ({ server, parameters }) => <Providers server={server} parameters={parameters} /> },
  'live-tail': { title: 'Live tail', of: ({ server, parameters }) => <TailView server={server} parameters={parameters} /> },
  records: { title: 'Records', of: ({ server, parameters }) => <Records server={server} parameters={parameters} /> },
  'try-out': { title: 'Try out', of: ({ server }) => <Trial server={server} /> },
  rules: { title: 'Rules', of: ({ server, parameters }) => <RulesView server={server} parameters={parameters} /> },
  revoke: {
    title: 'Revoke',
    of: ({ server, parameters }) => <Revocations key={parameters['user']} server={server} wanted={parameters['user'] ?? ''} sort={parameters['sort']} />,
  },
};

/** The key that the server's first screen has put into the address. It is removed from there. */
function takeKey(): string | undefined {
  const key = /^#key=(.+)$/.exec(location.hash)?.[1];
  if (key !== undefined) history.replaceState(null, '', location.pathname);
  return key;
}

function Page() {
  const [session, setSession] = useState<Session | null>();
  const [problem, setProblem] = useState('');

  const enter = async (key: string): Promise<void> => {
    try {
      setSession(await signIn(key));
      setProblem('');
    } catch (error) {
      const seconds = error instanceof Refused ? error.retryAfter : undefined;
      setProblem(seconds === undefined ? reason(error) : `${reason(error)}; try again in ${seconds} s`);
      setSession(null);
    }
  };
  useEffect(() => {
    const key = takeKey();
    if (key !== undefined) return void enter(key);
    keptSession().then(
      (kept) => setSession(kept ?? null),
      (error: unknown) => (setProblem(reason(error)), setSession(null)),
    );
  }, []);

  if (session === undefined) return <p class="quiet">One moment …</p>;
  if (session === null) return <SignIn problem={problem} onKey={enter} />;
  return <SignedIn key={session.token} session={session} onEnd={() => setSession(null)} />;
}

function SignIn({ problem, onKey }: { problem: string; onKey: (key: string) => void }) {
  const [key, setKey] = useState('');
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    onKey(key);
  };
  return (
    <main>
      <h1>Tidewire admin</h1>
      <form class="card fields" onSubmit={submit}>
        <label>
          Key
          <input type="password" required value={key} onInput={(event) => setKey(event.currentTarget.value)} autocomplete="current-password" />
        </label>
        <p class="quiet">In development mode the first screen of the server shows it, elsewhere it is that of admin.key_file.</p>
        <button>Sign in</button>
        <p class="problem" role="alert">
          {problem}
        </p>
      </form>
    </main>
  );
}

function SignedIn({ session, onEnd }: { session: Session; onEnd: () => void }) {
  const [server] = useState(() => new Server(session, onEnd));
  const { view, parameters } = useAddress();
  const current = VIEWS[view] === undefined ? FIRST_VIEW : view;
  const { title, of } = VIEWS[current] as (typeof VIEWS)[string];
  const [points, setPoints] = useState<readonly Point[]>([]);
  const [refusal, setRefusal] = useState('');
  const newest = useRef(0);
  const look = async (): Promise<Figures> => {
    const began = performance.now();
    const figures = await server.ask<Figures>('GET', '/figures');
    const roundTrip = (performance.now() - began) / 1000;
    const more = pointsOf(await server.ask<History>('GET', `/history?after=${newest.current}`), roundTrip);
    const last = more.at(-1);
    if (last !== undefined) {
      newest.current = Math.round(last.at * 1000);
      setPoints((known) => [...known, ...more].filter(({ at }) => at > last.at - HISTORY_SECONDS));
    }
    return figures;
  };
  const { value: figures, problem } = useLoaded(look, [], FIGURES_MS);

  useEffect(() => {
    document.title = `${title} · Tidewire admin`;
    return () => void (document.title = 'Tidewire admin');
  }, [title]);
  return (
    <>
      <header class="top">
        <h1>Tidewire admin</h1>
        <span class="quiet">{session.version}</span>
        <button type="button" onClick={() => void server.signOut().catch((error: unknown) => setRefusal(reason(error)))}>
          Sign out
        </button>
      </header>
      <nav aria-label="Views">
        {Object.entries(VIEWS).map(([name, { title }]) => (
          <a key={name} href={addressOf(name)} aria-current={name === current ? 'page' : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <p class="problem" role="alert">
        {problem || refusal}
      </p>
      <main>
        {of({ server, parameters, figures, points })}
      </main>
    </>
  );
}

render(<Page />, document.getElementById('page') as HTMLElement);
