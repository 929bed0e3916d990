// Names with their numbers of subscribers, and the users that are online.

import { useMemo, useState } from 'preact/hooks';
import { refine, type Parameters } from './address.ts';
import { count } from './figures.ts';
import { useListPart, useLoaded } from './loaded.ts';
import type { Server } from './server.ts';
import { Table, type Column } from './table.tsx';

interface Topic {
  kind: string;
  name: string;
  subscribers: number;
}

interface Topics {
  topics: Topic[];
  total: number;
  complete: boolean;
}

const REFRESH_MS = 3_000;
const SORT = '-subscribers';

const COLUMNS: ReadonlyArray<Column<Topic>> = [
  { sort: 'name', head: 'Name', width: 'minmax(150px, 3fr)', cell: (topic) => topic.name },
  { sort: 'kind', head: 'Kind', width: 'minmax(80px, 1fr)', cell: (topic) => topic.kind },
  { sort: 'subscribers', head: 'Subscribers', width: '130px', isNumber: true, cell: (topic) => count(topic.subscribers) },
];

export function Names({ server, parameters }: { server: Server; parameters: Parameters }) {
  const { kind = '', prefix = '', sort = SORT } = parameters;
  const { page: topics, first, problem, onScroll } = useListPart<Topics>(server, '/topics', { kind, prefix, sort }, REFRESH_MS);

  return (
    <section aria-labelledby="names">
      <h2 id="names">Names by subscribers</h2>
      <form class="bar" onSubmit={(event) => event.preventDefault()}>
        <label>
          Kind
          <select value={kind} onChange={(event) => refine({ kind: event.currentTarget.value })}>
            <option value="">all</option>
            <option value="event">events</option>
            <option value="pattern">patterns of events</option>
            <option value="record">records</option>
            <option value="user">users</option>
          </select>
        </label>
        <label>
          Begins with
          <input value={prefix} onInput={(event) => refine({ prefix: event.currentTarget.value })} autocomplete="off" />
        </label>
        <span class="quiet" role="status">
          {topics ? `${count(topics.total)} names${topics.complete ? '' : ' and more'}` : ''}
        </span>
      </form>
      <p class="problem" role="alert">
        {problem}
      </p>
      <Table
        label="Names"
        columns={COLUMNS}
        total={topics?.total ?? 0}
        rows={topics?.topics ?? []}
        first={first}
        idOf={(topic) => `${topic.kind} ${topic.name}`}
        sort={sort}
        onSort={(sort) => refine({ sort })}
        onScroll={onScroll}
      />
      <Presence server={server} />
    </section>
  );
}

const USER: ReadonlyArray<Column<string>> = [{ head: 'User', width: '1fr', cell: (user) => user }];

function Presence({ server }: { server: Server }) {
  const [round, setRound] = useState(0);
  const ask = async (): Promise<string[]> => {
    const body = { body: [{ topic: 'presence', action: 'query' }] };
    const [answer] = (await server.ask<{ body: Array<{ users?: string[]; error?: string }> }>('POST', '/commands', body)).body;
    if (answer?.error !== undefined) throw new Error(answer.error);
    return answer?.users ?? [];
  };
  const { value, problem } = useLoaded(ask, [round]);
  const users = useMemo(() => [...(value ?? [])].sort(), [value]);
  return (
    <>
      <h3>Online</h3>
      <div class="bar">
        <button type="button" onClick={() => setRound(round + 1)}>
          Refresh
        </button>
        <span class="quiet">{value ? `${count(users.length)} users` : ''}</span>
      </div>
      <p class="problem" role="alert">
        {problem}
      </p>
      <Table label="Users online" columns={USER} total={users.length} rows={users} idOf={(user) => user} />
    </>
  );
}
