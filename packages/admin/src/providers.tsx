// The sessions that provide rpcs or listen for subscriptions, and the calls that have no response yet. A row opens the connection of its
// provider.

import { refine, visit, type Parameters } from './address.ts';
import { count, seconds } from './figures.ts';
import { useListPart } from './loaded.ts';
import type { Server } from './server.ts';
import { Table, type Column } from './table.tsx';

interface Provider {
  kind: string;
  name: string;
  user: string | null;
  connection: string;
}

/** A session of a call. Both are absent if it has ended. */
interface Party {
  user: string | null;
  connection: string | null;
}

interface Call {
  name: string;
  seconds: number;
  accepted: boolean;
  caller: Party;
  provider: Party;
}

interface Part {
  total: number;
  complete: boolean;
}

const REFRESH_MS = 2_000;
const KINDS = ['', 'rpc', 'event listener', 'record listener'];

function peer({ user, connection }: Party): string {
  return connection === null ? 'not connected' : (user ?? 'not logged in');
}

/** Opens a connection. */
function open(connection: string | null): void {
  if (connection !== null) visit('connections', { open: connection });
}

const PROVIDERS: ReadonlyArray<Column<Provider>> = [
  { sort: 'name', head: 'Name or pattern', width: 'minmax(140px, 40vw)', cell: (row) => row.name },
  { sort: 'kind', head: 'Kind', width: 'minmax(130px, 1fr)', cell: (row) => row.kind },
  { sort: 'user', head: 'User', width: 'minmax(130px, 1fr)', cell: (row) => row.user ?? 'not logged in' },
];

const CALLS: ReadonlyArray<Column<Call>> = [
  { sort: 'name', head: 'Rpc', width: 'minmax(140px, 30vw)', cell: (row) => row.name },
  { head: 'Caller', width: 'minmax(130px, 1fr)', cell: (row) => peer(row.caller) },
  { head: 'Provider', width: 'minmax(130px, 1fr)', cell: (row) => peer(row.provider) },
  { head: 'State', width: '100px', cell: (row) => (row.accepted ? 'accepted' : 'sent') },
  { sort: 'age', head: 'Runs for', width: '100px', isNumber: true, cell: (row) => seconds(row.seconds) },
];

export function Providers({ server, parameters }: { server: Server; parameters: Parameters }) {
  const { kind = '', search = '', sort = 'name', calls: callSort = '-age' } = parameters;
  const providers = useListPart<Part & { providers: Provider[] }>(server, '/providers', { kind, search, sort }, REFRESH_MS);
  const calls = useListPart<Part & { calls: Call[] }>(server, '/calls', { search, sort: callSort }, REFRESH_MS);
  const number = (page: Part | undefined, what: string): string => (page ? `${count(page.total)} ${what}${page.complete ? '' : ' and more'}` : '');
  return (
    <section aria-labelledby="providers">
      <h2 id="providers">Providers</h2>
      <form class="bar" onSubmit={(event) => event.preventDefault()}>
        <label>
          Kind
          <select value={kind} onChange={(event) => refine({ kind: event.currentTarget.value })}>
            {KINDS.map((known) => (
              <option key={known} value={known}>
                {known || 'all'}
              </option>
            ))}
          </select>
        </label>
        <label>
          Part of a name
          <input value={search} onInput={(event) => refine({ search: event.currentTarget.value })} autocomplete="off" />
        </label>
        <span class="quiet" role="status">
          {number(providers.page, 'providers and listeners')}
        </span>
      </form>
      <p class="problem" role="alert">
        {providers.problem || calls.problem}
      </p>
      <Table
        label="Providers"
        columns={PROVIDERS}
        total={providers.page?.total ?? 0}
        rows={providers.page?.providers ?? []}
        first={providers.first}
        idOf={(row) => `${row.kind} ${row.name} ${row.connection}`}
        sort={sort}
        onSort={(sort) => refine({ sort })}
        onScroll={providers.onScroll}
        onOpen={(row) => open(row.connection)}
      />
      <h3>Running calls</h3>
      <p class="quiet">{number(calls.page, 'calls have no response yet')}</p>
      <Table
        label="Running calls"
        columns={CALLS}
        total={calls.page?.total ?? 0}
        rows={calls.page?.calls ?? []}
        first={calls.first}
        idOf={(row) => `${row.name} ${row.caller.connection} ${row.seconds}`}
        sort={callSort}
        onSort={(calls) => refine({ calls })}
        onScroll={calls.onScroll}
        onOpen={(row) => open(row.provider.connection)}
      />
    </section>
  );
}
