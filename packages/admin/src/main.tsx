// The page: sign-in with the key, then one view at a time. The page requests figures in every view, so that the plots have no gaps.

import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Connections } from './connections.tsx';
import { point, type Figures, type Point } from './figures.ts';
import { useLoaded } from './loaded.ts';
import { Names } from './names.tsx';
import { Overview } from './overview.tsx';
import { Records } from './records.tsx';
import { Revocations } from './revocations.tsx';
import { RulesView } from './rules.tsx';
import { keptSession, reason, Refused, Server, signIn, type Session } from './server.ts';
import { Trial } from './trial.tsx';

const FIGURES_MS = 1_000;
/** Five minutes of figures. */
const POINTS_MAX = 300;

const VIEWS = ['Overview', 'Connections', 'Names', 'Records', 'Try out', 'Rules', 'Revoke'] as const;
type View = (typeof VIEWS)[number];

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
  const [view, setView] = useState<View>('Overview');
  const [revoked, setRevoked] = useState('');
  const [points, setPoints] = useState<readonly Point[]>([]);
  const [refusal, setRefusal] = useState('');
  const last = useRef<Figures>();
  const look = async (): Promise<Figures> => {
    const began = performance.now();
    const now = await server.ask<Figures>('GET', '/figures');
    const roundTrip = performance.now() - began;
    const before = last.current;
    last.current = now;
    if (before) setPoints((known) => [...known, point(before, now, roundTrip)].slice(-POINTS_MAX));
    return now;
  };
  const { value: figures, problem } = useLoaded(look, [], FIGURES_MS);

  const revoke = (user: string): void => {
    setRevoked(user);
    setView('Revoke');
  };
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
        {VIEWS.map((name) => (
          <button type="button" key={name} aria-current={name === view ? 'page' : undefined} onClick={() => (setRevoked(''), setView(name))}>
            {name}
          </button>
        ))}
      </nav>
      <p class="problem" role="alert">
        {problem || refusal}
      </p>
      <main>
        {view === 'Overview' && <Overview figures={figures} points={points} />}
        {view === 'Connections' && <Connections server={server} onRevoke={revoke} />}
        {view === 'Names' && <Names server={server} />}
        {view === 'Records' && <Records server={server} />}
        {view === 'Try out' && <Trial server={server} />}
        {view === 'Rules' && <RulesView server={server} />}
        {view === 'Revoke' && <Revocations key={revoked} server={server} wanted={revoked} />}
      </main>
    </>
  );
}

render(<Page />, document.getElementById('page') as HTMLElement);
