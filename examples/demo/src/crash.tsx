// A button that kills the server while edits arrive, and the check afterwards that no acknowledged edit is lost.

import { Client } from '@tidewire/client';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Action } from './action.tsx';
import type { Demo } from './app.ts';
import { Code, CRASH } from './code.tsx';
import { LOOPBACK } from './phone.tsx';
import { BOT, userId } from './user.ts';

const RECORD = 'tidewire-demo/crash';
/** The server is killed when it has acknowledged this number of edits. */
const ACKNOWLEDGED = 100;
/** The time between two edits, which go on while the server is away. */
const INTERVAL_MS = 5;
const DEADLINE_MS = 30_000;

interface Outcome {
  /** Milliseconds from the loss of the connection until the client is connected again. */
  awayMs: number;
  /** Edits that were acknowledged before the loss, and the ones of them that a new client does not find. */
  acknowledged: number;
  lost: number;
  /** Edits that were made without an answer before the return. */
  waited: number;
}

/** A client without the state of the page, which shows what the server has stored. */
async function stored(run: string): Promise<Set<string>> {
  const witness = new Client<Demo>(undefined, { auth: { username: userId(BOT) } });
  await witness.connect();
  const value = await witness.record.get(RECORD);
  witness.close();
  return new Set(Object.keys(value?.[run] ?? {}));
}

/** Kills the server while this client edits a record, and compares the record afterwards. Rejects if the server refuses to end. */
async function crash(client: Client<Demo>, show: (text: string) => void, signal: AbortSignal): Promise<Outcome> {
  if (client.state !== 'open') throw new Error('The first user of the page has no connection. Restore it, and try again.');
  const handle = client.record.open(RECORD);
  const run = userId('run');
  const saved = new Set<string>();
  let made = 0;
  let lostAt: number | undefined;
  let before: Set<string> | undefined;
  let fail: (error: Error) => void = () => undefined;
  const failed = new Promise<never>((_, reject) => (fail = reject));
  let returned: (ms: number) => void = () => undefined;
  const back = new Promise<number>((done) => (returned = done));
  const stop = client.onState((state) => {
    if (state !== 'open' && before === undefined) {
      [before, lostAt] = [new Set(saved), performance.now()];
      show('The server is gone. Edits wait in this page.');
    } else if (state === 'open' && lostAt !== undefined) returned(performance.now() - lostAt);
  });
  const kill = async (): Promise<void> => {
    show('The server ends while edits arrive.');
    // The connection of a request may end with the server; only an answer can be a refusal.
    const answer = await fetch('/crash', { method: 'POST' }).catch(() => undefined);
    if (answer && answer.status !== 202) fail(new Error((await answer.text()).trim()));
  };
  const timer = setInterval(() => {
    const edit = String((made += 1));
    handle.setWithAck([run, edit], true).then(
      () => saved.add(edit).size === ACKNOWLEDGED && void kill(),
      (error: Error) => fail(error),
    );
  }, INTERVAL_MS);
  const late = setTimeout(() => fail(new Error('The server did not return in time.')), DEADLINE_MS);
  signal.addEventListener('abort', () => fail(new Error('The page has ended.')));
  show('Edits arrive.');
  try {
    const awayMs = await Promise.race([back, failed]);
    clearInterval(timer);
    await Promise.race([handle.saved(), failed]);
    const found = await Promise.race([stored(run), failed]);
    const acknowledged = before ?? new Set<string>();
    const lost = [...acknowledged].filter((edit) => !found.has(edit)).length;
    return { awayMs, acknowledged: acknowledged.size, lost, waited: made - acknowledged.size };
  } finally {
    stop();
    clearInterval(timer);
    clearTimeout(late);
    handle.set([run], undefined);
    handle.close();
  }
}

export function CrashCard({ client }: { client: Client<Demo> }) {
  const [text, setText] = useState('');
  const [outcome, setOutcome] = useState<Outcome>();
  const [isRunning, setRunning] = useState(false);
  const ended = useRef(new AbortController());
  useEffect(() => () => ended.current.abort(), []);

  const start = async (): Promise<void> => {
    setRunning(true);
    setOutcome(undefined);
    try {
      setOutcome(await crash(client, setText, ended.current.signal));
      setText('');
    } catch (error) {
      setText(error instanceof Error ? error.message : String(error));
    }
    setRunning(false);
  };

  return (
    <section class="card feature" aria-labelledby="crash-title">
      <div class="live">
        <h2 id="crash-title">Crash</h2>
        {LOOPBACK.test(location.hostname) ? (
          <div class="actions">
            <Action isOff={isRunning} act={() => void start()} isDanger>
              Kill the server
            </Action>
          </div>
        ) : (
          <p class="hint">Only a page on the server's machine can kill it.</p>
        )}
        <div class="crash" role="status">
          {text === '' ? null : <p>{text}</p>}
          {outcome ? <Result outcome={outcome} /> : null}
        </div>
        <p class="hint">
          The process ends as with <code>kill -9</code> while this page edits a record, and starts again with the same arguments. A new client then reads what the
          server has stored. Only development mode has this button.
        </p>
      </div>
      <Code of="the crash" text={CRASH} />
    </section>
  );
}

function Result({ outcome: { awayMs, acknowledged, lost, waited } }: { outcome: Outcome }) {
  return (
    <>
      <p class="big">
        <strong>{Math.round(awayMs)} ms</strong> until this page was connected again
      </p>
      <p class={lost === 0 ? 'good' : 'bad'}>
        {lost === 0 ? `All ${acknowledged} acknowledged edits are there, 0 lost.` : `${lost} of ${acknowledged} acknowledged edits are lost.`}
      </p>
      <p>{waited === 1 ? '1 edit waited and was' : `${waited} edits waited and were`} sent after the return.</p>
    </>
  );
}
