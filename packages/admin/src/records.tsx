// Stored records by a prefix of their names, and an editor that reads, watches and saves one of them.

import { useState } from 'preact/hooks';
import { query, type Server } from './server.ts';
import { bytes } from './figures.ts';
import { useLoaded } from './loaded.ts';
import { Pager } from './pager.tsx';
import { RecordEditor } from './record.tsx';

interface Page {
  records: Array<{ name: string; version?: number; bytes?: number; damaged?: boolean }>;
  next: string | null;
}

export function Records({ server }: { server: Server }) {
  const [prefix, setPrefix] = useState('');
  const [after, setAfter] = useState('');
  const [round, setRound] = useState(0);
  const [chosen, setChosen] = useState('');
  const ask = (): Promise<Page> => server.ask('GET', `/records${query({ prefix, after })}`);
  const { value: page, problem } = useLoaded(ask, [prefix, after, round]);

  return (
    <section aria-labelledby="records">
      <h2 id="records">Records</h2>
      <form
        class="bar"
        onSubmit={(event) => {
          event.preventDefault();
          setChosen(prefix);
        }}
      >
        <label>
          Name, or its beginning
          <input value={prefix} onInput={(event) => (setPrefix(event.currentTarget.value), setAfter(''))} autocomplete="off" />
        </label>
        <button disabled={prefix === ''}>Open this name</button>
        <button type="button" onClick={() => setRound(round + 1)}>
          Look again
        </button>
      </form>
      <p class="problem" role="alert">
        {problem}
      </p>
      {chosen !== '' && <RecordEditor key={chosen} server={server} name={chosen} onClose={() => (setChosen(''), setRound(round + 1))} />}
      <ul class="rows" aria-label="Records">
        {page?.records.map((record) => (
          <li class="card" key={record.name}>
            <button type="button" class="link name" onClick={() => setChosen(record.name)}>
              {record.name}
            </button>
            <span>{record.damaged ? 'damaged: it does not pass its checksum' : `version ${record.version}, ${bytes(record.bytes ?? 0)}`}</span>
          </li>
        ))}
      </ul>
      {page?.records.length === 0 && <p class="quiet">No stored record begins so.</p>}
      <Pager after={after} next={page?.next} onMove={setAfter} />
    </section>
  );
}
