// Names with their numbers of subscribers, and the users that are online.

import { useState } from 'preact/hooks';
import { query, type Server } from './server.ts';
import { count } from './figures.ts';
import { useLoaded } from './loaded.ts';

interface Topics {
  topics: Array<{ kind: string; name: string; subscribers: number }>;
  total: number;
  complete: boolean;
}

const REFRESH_MS = 3_000;
const SHOWN_USERS = 200;

export function Names({ server }: { server: Server }) {
  const [kind, setKind] = useState('');
  const [prefix, setPrefix] = useState('');
  const ask = (): Promise<Topics> => server.ask('GET', `/topics${query({ kind, prefix })}`);
  const { value: topics, problem } = useLoaded(ask, [kind, prefix], REFRESH_MS);

  return (
    <section aria-labelledby="names">
      <h2 id="names">Names by subscribers</h2>
      <form class="bar" onSubmit={(event) => event.preventDefault()}>
        <label>
          Kind
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
            <option value="">all</option>
            <option value="event">events</option>
            <option value="record">records</option>
            <option value="user">users</option>
          </select>
        </label>
        <label>
          Begins with
          <input value={prefix} onInput={(event) => setPrefix(event.currentTarget.value)} autocomplete="off" />
        </label>
      </form>
      <p class="problem" role="alert">
        {problem}
      </p>
      {topics && (
        <p class="quiet">
          {count(topics.total)} names{topics.complete ? '' : ' and more'}
        </p>
      )}
      <ul class="rows" aria-label="Names">
        {topics?.topics.map((topic) => (
          <li class="card" key={`${topic.kind} ${topic.name}`}>
            <strong class="name">{topic.name}</strong>
            <span>{topic.kind}</span>
            <span>{count(topic.subscribers)} subscribers</span>
          </li>
        ))}
      </ul>
      <Presence server={server} />
    </section>
  );
}

function Presence({ server }: { server: Server }) {
  const [round, setRound] = useState(0);
  const ask = async (): Promise<string[]> => {
    const body = { body: [{ topic: 'presence', action: 'query' }] };
    const [answer] = (await server.ask<{ body: Array<{ users?: string[]; error?: string }> }>('POST', '/commands', body)).body;
    if (answer?.error !== undefined) throw new Error(answer.error);
    return (answer?.users ?? []).sort();
  };
  const { value: users, problem } = useLoaded(ask, [round]);
  return (
    <>
      <h3>Online</h3>
      <div class="bar">
        <button type="button" onClick={() => setRound(round + 1)}>
          Look again
        </button>
        <span class="quiet">{users ? `${count(users.length)} users` : ''}</span>
      </div>
      <p class="problem" role="alert">
        {problem}
      </p>
      <ul class="chips" aria-label="Users online">
        {users?.slice(0, SHOWN_USERS).map((user) => (
          <li key={user}>{user}</li>
        ))}
        {users && users.length > SHOWN_USERS && <li>and {count(users.length - SHOWN_USERS)} more</li>}
      </ul>
    </>
  );
}
