// Publishes events and calls rpcs for a test, as an operator or as a user. Permission rules apply only to a user.

import { useState } from 'preact/hooks';
import { query, reason, type Server } from './server.ts';

interface Outcome {
  success?: boolean;
  data?: unknown;
  error?: string;
}

export function Trial({ server }: { server: Server }) {
  const [kind, setKind] = useState<'event' | 'rpc'>('event');
  const [name, setName] = useState('');
  const [data, setData] = useState('');
  const [user, setUser] = useState('');
  const [userData, setUserData] = useState('');
  const [outcomes, setOutcomes] = useState<string[]>([]);

  /** The reason of a refusal, with the rule if the rules denied it. */
  const why = async (error: string, value: unknown): Promise<string> => {
    if (user === '') return error;
    const rule = kind === 'event' ? 'event.publish' : 'rpc.request';
    const given = { ...(userData.trim() !== '' && { userData: JSON.parse(userData) as unknown }), ...(value !== undefined && { data: value }) };
    try {
      const explained = await server.ask<{ outcome: string; rule: string | null }>('POST', '/rules/explain', { rule, name, user, ...given });
      return explained.outcome === 'allowed' ? error : `${error} by ${explained.rule ?? 'the file: no pattern that matches the name has this rule'}`;
    } catch {
      return error;
    }
  };

  const run = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const tell = (text: string): void => setOutcomes((before) => [text, ...before].slice(0, 20));
    let value: unknown;
    try {
      value = data.trim() === '' ? undefined : JSON.parse(data);
    } catch {
      return tell('The data is not JSON; put text in quotes.');
    }
    const command = kind === 'event' ? { topic: 'event', action: 'emit', eventName: name } : { topic: 'rpc', action: 'make', rpcName: name };
    try {
      const path = `/commands${query({ user, userData })}`;
      const answer = await server.ask<{ body: Outcome[] }>('POST', path, { body: [{ ...command, ...(value !== undefined && { data: value }) }] });
      const outcome = answer.body[0] as Outcome;
      const result = kind === 'rpc' ? `answered ${JSON.stringify(outcome.data)}` : 'published';
      const refusal = (): Promise<string> => why(outcome.error ?? 'no reason', value);
      tell(`${name}: ${outcome.success ? result : `refused, ${await refusal()}`}`);
    } catch (error) {
      tell(reason(error));
    }
  };

  return (
    <section aria-labelledby="trial">
      <h2 id="trial">Try out</h2>
      <form class="card fields" onSubmit={run}>
        <label>
          What
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value as 'event' | 'rpc')}>
            <option value="event">publish an event</option>
            <option value="rpc">call an rpc</option>
          </select>
        </label>
        <label>
          Name
          <input required value={name} onInput={(event) => setName(event.currentTarget.value)} autocomplete="off" />
        </label>
        <label>
          Data as JSON
          <textarea rows={4} spellcheck={false} value={data} onInput={(event) => setData(event.currentTarget.value)} />
        </label>
        <label>
          As user (empty: as an operator, whom no rule judges)
          <input value={user} onInput={(event) => setUser(event.currentTarget.value)} autocomplete="off" />
        </label>
        <label>
          With this as user.data, as JSON
          <input value={userData} disabled={user === ''} onInput={(event) => setUserData(event.currentTarget.value)} autocomplete="off" />
        </label>
        <button>Do it</button>
      </form>
      <ol class="rows" aria-label="Outcomes" aria-live="polite">
        {outcomes.map((outcome, index) => (
          <li class="card name" key={outcomes.length - index}>
            {outcome}
          </li>
        ))}
      </ol>
    </section>
  );
}
