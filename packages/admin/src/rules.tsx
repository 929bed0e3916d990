// The permission rules, and the rule that decides a given case.

import { useEffect, useState } from 'preact/hooks';
import { reason, type Server } from './server.ts';

interface Rules {
  kind: string;
  file?: string;
  text?: string | null;
  problems?: string[];
}

interface Explained {
  outcome: string;
  rule: string | null;
  reads: string[];
  others: Array<{ outcome: string; rule: string }>;
}

const KINDS = [
  'record.read', 'record.write', 'record.create', 'record.delete', 'record.listen', 'record.notify',
  'event.publish', 'event.subscribe', 'event.listen', 'rpc.request', 'rpc.provide', 'presence.allow',
];

export function RulesView({ server }: { server: Server }) {
  const [rules, setRules] = useState<Rules>();
  const [rule, setRule] = useState('record.read');
  const [name, setName] = useState('');
  const [user, setUser] = useState('');
  const [userData, setUserData] = useState('');
  const [data, setData] = useState('');
  const [explained, setExplained] = useState<Explained>();
  const [problem, setProblem] = useState('');

  useEffect(() => {
    server.ask<Rules>('GET', '/rules').then(setRules, (error: unknown) => setProblem(reason(error)));
  }, []);

  const explain = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    setExplained(undefined);
    try {
      const given = (key: string, text: string): object => (text.trim() === '' ? {} : { [key]: JSON.parse(text) as unknown });
      const body = { rule, user, ...(name !== '' && { name }), ...given('userData', userData), ...given('data', data) };
      setExplained(await server.ask<Explained>('POST', '/rules/explain', body));
      setProblem('');
    } catch (error) {
      setProblem(reason(error));
    }
  };

  return (
    <section aria-labelledby="rules">
      <h2 id="rules">Rules</h2>
      <p class="problem" role="alert">
        {problem}
      </p>
      {rules && rules.kind !== 'file' && <p>There are no rules: permissions is {rules.kind}.</p>}
      {rules?.kind === 'file' && (
        <>
          <form class="card fields" onSubmit={explain}>
            <label>
              User id
              <input value={user} onInput={(event) => setUser(event.currentTarget.value)} autocomplete="off" />
            </label>
            <label>
              user.data, as JSON
              <input value={userData} onInput={(event) => setUserData(event.currentTarget.value)} autocomplete="off" />
            </label>
            <label>
              Wants
              <select value={rule} onChange={(event) => setRule(event.currentTarget.value)}>
                {KINDS.map((kind) => (
                  <option key={kind}>{kind}</option>
                ))}
              </select>
            </label>
            <label>
              Name
              <input value={name} onInput={(event) => setName(event.currentTarget.value)} autocomplete="off" />
            </label>
            <label>
              New data, as JSON
              <input value={data} onInput={(event) => setData(event.currentTarget.value)} autocomplete="off" />
            </label>
            <button>Explain</button>
          </form>
          <div aria-live="polite">
            {explained && (
              <div class="card">
                <p class={explained.outcome === 'allowed' ? 'good' : 'bad'}>{explained.outcome}</p>
                <p class="name">{explained.rule ?? 'No pattern that matches the name has this rule.'}</p>
                {explained.reads.length > 0 && <p class="name">It reads {explained.reads.join(', ')}.</p>}
                {explained.others.map((other) => (
                  <p class="quiet name" key={other.rule}>
                    It would be {other.outcome} by {other.rule}
                  </p>
                ))}
              </div>
            )}
          </div>
          <h3 class="name">{rules.file}</h3>
          {rules.problems?.map((text) => (
            <p class="bad" key={text}>
              {text}
            </p>
          ))}
          <pre tabIndex={0}>{rules.text}</pre>
        </>
      )}
    </section>
  );
}
