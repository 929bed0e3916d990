// The permission rules, the rule that decides a given case, and the last denials, each with the rule that denied.

import { useEffect, useState } from 'preact/hooks';
import { refine, type Parameters } from './address.ts';
import { date } from './figures.ts';
import { useLoaded } from './loaded.ts';
import { reason, type Server } from './server.ts';
import { sorted, Table, type Column } from './table.tsx';

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

/** A request that the rules denied. */
interface Denial {
  /** Milliseconds since 1970. */
  at: number;
  user: string;
  kind: string;
  name: string;
  outcome: string;
  by: string;
  allowing: string;
}

const REFRESH_MS = 2_000;

const COLUMNS: ReadonlyArray<Column<Denial>> = [
  { sort: 'name', head: 'Name', width: 'minmax(130px, 20vw)', cell: (row) => row.name || 'all users' },
  { sort: 'user', head: 'User', width: 'minmax(110px, 1fr)', cell: (row) => row.user },
  { sort: 'kind', head: 'Wanted', width: '140px', cell: (row) => row.kind },
  { sort: 'by', head: 'Denied by', width: 'minmax(260px, 4fr)', cell: (row) => row.by },
  { sort: 'at', head: 'Time', width: '200px', isNumber: true, cell: (row) => date(row.at / 1000) },
];

const VALUES: Record<string, (row: Denial) => string | number> = {
  name: (row) => row.name,
  user: (row) => row.user,
  kind: (row) => row.kind,
  by: (row) => row.by,
  at: (row) => row.at,
};

const idOf = ({ at, user, kind, name }: Denial): string => `${at} ${user} ${kind} ${name}`;

/** The last denials. An open one is shown with its whole rule and the next rule that would have allowed it. */
function Denials({ server, sort = '-at' }: { server: Server; sort: string | undefined }) {
  const ask = async (): Promise<Denial[]> => (await server.ask<{ denials: Denial[] }>('GET', '/denials')).denials;
  const { value: denials = [], problem } = useLoaded(ask, [], REFRESH_MS);
  const [open, setOpen] = useState<Denial>();
  return (
    <>
      <h3>Last denials</h3>
      <p class="problem" role="alert">
        {problem}
      </p>
      {open && (
        <div class="card one" role="group" aria-label="One denial">
          <h4 class="name">
            {open.user} wanted {open.kind} {open.name}
          </h4>
          <p class="bad">{open.outcome}</p>
          <p class="name">{open.by}</p>
          <p class="quiet name">The next rule that would allow it: {open.allowing}</p>
          <button type="button" onClick={() => setOpen(undefined)}>
            Close
          </button>
        </div>
      )}
      <Table
        label="Denials"
        columns={COLUMNS}
        total={denials.length}
        rows={sorted(denials, sort, VALUES)}
        idOf={idOf}
        sort={sort}
        onSort={(sort) => refine({ sort })}
        onOpen={setOpen}
        open={open === undefined ? '' : idOf(open)}
      />
      {denials.length === 0 && <p class="quiet">The rules have denied nothing yet.</p>}
    </>
  );
}

const KINDS = [
  'record.read', 'record.write', 'record.create', 'record.delete', 'record.listen', 'record.notify',
  'event.publish', 'event.subscribe', 'event.listen', 'rpc.request', 'rpc.provide', 'presence.allow', 'presence.join', 'presence.subscribe',
];

export function RulesView({ server, parameters }: { server: Server; parameters: Parameters }) {
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
          <Denials server={server} sort={parameters['sort']} />
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
