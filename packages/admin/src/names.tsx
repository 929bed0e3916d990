// Names by subscribers, and who is online.

import { useEffect, useState } from 'preact/hooks';
import { query, reason, type Server } from './server.ts';
import { count } from './figures.ts';

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
  const [topics, setTopics] = useState<Topics>();
  const [problem, setProblem] = useState('');

  useEffect(() => {
    let isOver = false;
    let timer: ReturnType<typeof setTimeout>;
    const load = async (): Promise<void> => {
      try {
        const found = await server.ask<Topics>('GET', `/topics${query({ kind, prefix })}`);
        if (isOver) return;
        setTopics(found);
        setProblem('');
      } catch (error) {
        setProblem(reason(error));
      }
      if (!isOver) timer = setTimeout(load, REFRESH_MS);
    };
    void load();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [kind, prefix]);

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
  const [users, setUsers] = useState<string[]>();
  const [problem, setProblem] = useState('');
  const load = async (): Promise<void> => {
    try {
      const body = { body: [{ topic: 'presence', action: 'query' }] };
      const answer = await server.ask<{ body: Array<{ users?: string[]; error?: string }> }>('POST', '/commands', body);
      setUsers([...(answer.body[0]?.users ?? [])].sort());
      setProblem(answer.body[0]?.error ?? '');
    } catch (error) {
      setProblem(reason(error));
    }
  };
  useEffect(() => void load(), []);
  return (
    <>
      <h3>Online</h3>
      <div class="bar">
        <button type="button" onClick={load}>
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
