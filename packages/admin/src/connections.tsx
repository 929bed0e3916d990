// Open connections, a page at a time: all of them, or only slow readers.

import { useState } from 'preact/hooks';
import { query, type Server } from './server.ts';
import { bytes } from './figures.ts';
import { useLoaded } from './loaded.ts';
import { Pager } from './pager.tsx';

interface Connection {
  id: string;
  user: string | null;
  operator: boolean;
  protocol: string;
  address: string | null;
  encrypted: boolean;
  compressed: boolean;
  bytesIn: number;
  bytesOut: number;
  outboxBytes: number;
  lagging: boolean;
  subscriptions: number | null;
}

interface Page {
  connections: Connection[];
  next: string | null;
}

const REFRESH_MS = 2_000;

export function Connections({ server, onRevoke }: { server: Server; onRevoke: (user: string) => void }) {
  const [search, setSearch] = useState('');
  const [isSlow, setSlow] = useState(false);
  const [after, setAfter] = useState('');
  const ask = (): Promise<Page> => server.ask('GET', `/connections${query({ search, slow: isSlow ? '1' : '', after })}`);
  const { value: page, problem } = useLoaded(ask, [search, isSlow, after], REFRESH_MS);

  const rows = [...(page?.connections ?? [])].sort((left, right) => right.outboxBytes - left.outboxBytes);
  return (
    <section aria-labelledby="connections">
      <h2 id="connections">Connections</h2>
      <form class="bar" onSubmit={(event) => event.preventDefault()}>
        <label>
          User or address
          <input value={search} onInput={(event) => (setSearch(event.currentTarget.value), setAfter(''))} autocomplete="off" />
        </label>
        <label class="check">
          <input type="checkbox" checked={isSlow} onChange={(event) => (setSlow(event.currentTarget.checked), setAfter(''))} /> only slow readers
        </label>
      </form>
      <p class="problem" role="alert">
        {problem}
      </p>
      <ul class="rows" aria-label="Connections">
        {rows.map((row) => (
          <li class="card" key={row.id}>
            <strong class="name">{row.user ?? 'not logged in'}</strong>
            <span>
              {row.operator ? 'operator, ' : ''}
              {row.protocol}
              {row.encrypted ? ', TLS' : ''}
              {row.compressed ? ', compressed' : ''}
            </span>
            <span>{row.address ?? ''}</span>
            <span>
              {bytes(row.bytesIn)} in, {bytes(row.bytesOut)} out
            </span>
            <span class={row.lagging || row.outboxBytes > 0 ? 'bad' : ''}>
              {bytes(row.outboxBytes)} wait{row.lagging ? ', lagging' : ''}
            </span>
            <span>{row.subscriptions ?? 0} subscriptions</span>
            {row.user !== null && !row.operator && (
              <button type="button" onClick={() => onRevoke(row.user as string)}>
                Revoke …
              </button>
            )}
          </li>
        ))}
      </ul>
      {page && rows.length === 0 && <p class="quiet">Nobody.</p>}
      <Pager after={after} next={page?.next} onMove={setAfter} />
    </section>
  );
}
