// The page: two users with separate connections side by side, and the cards that they share.

import type { Client } from '@tidewire/client';
import { render } from 'preact';
import { useMemo, useRef, useState } from 'preact/hooks';
import type { Demo } from './app.ts';
import { BotsCard } from './bots.tsx';
import { Code, LIST } from './code.tsx';
import { CrashCard } from './crash.tsx';
import { Die } from './die.tsx';
import { Pane } from './pane.tsx';
import { Phone } from './phone.tsx';
import { Ticker } from './ticker.tsx';
import { keepName, keptName, NAME_CHARACTERS_MAX, otherName, userId } from './user.ts';

const SOURCE = 'https://github.com/tidewire/tidewire';
/** With `?panes=1` the page is one user, for two windows side by side. */
const HAS_OTHER = new URLSearchParams(location.search).get('panes') !== '1';

function Page() {
  const [name, setName] = useState(keptName);
  const user = useMemo(() => userId(name), [name]);
  const other = useMemo(() => userId(otherName()), []);
  /** The client and the user of the first pane, which change together. */
  const [first, setFirst] = useState<{ client: Client<Demo>; user: string }>();
  const [p99, setP99] = useState<number>();
  keepName(name);
  return (
    <>
      <header class="top">
        <div class="bar">
          <h1>
            <img src="icon.svg" alt="" width="28" height="28" /> Tidewire
          </h1>
          {p99 === undefined ? null : <p class="p99">p99 {p99.toFixed(1)} ms</p>}
          <nav aria-label="More">
            <a href="/docs/">Documentation</a>
            <a href="/admin/">Admin page</a>
            <a href={SOURCE}>Source</a>
            <Phone />
          </nav>
        </div>
        <p class="lead">
          {HAS_OTHER ? 'Two users edit the same list: ' : ''}each edit shows at once where it is made, and milliseconds later everywhere else, also after a
          lost connection or a killed server.
        </p>
      </header>
      <main>
        <div class={HAS_OTHER ? 'panes two' : 'panes'}>
          <Pane key={user} user={user} title="You" own="you" onClient={(client) => setFirst({ client, user })}>
            <NameForm name={name} onName={setName} />
          </Pane>
          {HAS_OTHER ? (
            <Pane user={other} title="Another user" own="this user">
              <p class="hint">This user has a separate connection, as in another browser.</p>
            </Pane>
          ) : null}
          <div class="aside">
            <Code of="the list" text={LIST} />
            {HAS_OTHER ? <Suggestions /> : null}
          </div>
        </div>
        <div class="cards">
          {first ? <Ticker client={first.client} /> : null}
          {first ? <Die {...first} /> : null}
          <BotsCard onP99={setP99} />
          {first ? <CrashCard client={first.client} /> : null}
        </div>
      </main>
    </>
  );
}

function Suggestions() {
  return (
    <>
      <h3>Try it</h3>
      <ol>
        <li>Type into a row: the other user sees your cursor and each letter.</li>
        <li>Switch off the connection of one user, edit both lists, and switch it on again.</li>
        <li>Lock the list and edit it: the server refuses, and the edit is taken back.</li>
        <li>Start the bots, or kill the server, and go on editing.</li>
      </ol>
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

render(<Page />, document.getElementById('page') as HTMLElement);
