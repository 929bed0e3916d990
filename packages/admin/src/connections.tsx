// Open connections, sorted by any column: all of them, or only slow readers. One of them can be opened.

import { refine, visit, type Parameters } from './address.ts';
import { ConnectionCard, traits, type Connection } from './connection.tsx';
import { bytes, count } from './figures.ts';
import { useListPart } from './loaded.ts';
import type { Server } from './server.ts';
import { Table, type Column } from './table.tsx';

interface Page {
  connections: Connection[];
  total: number;
  complete: boolean;
}

const REFRESH_MS = 2_000;
const SORT = '-outboxBytes';

const COLUMNS: ReadonlyArray<Column<Connection>> = [
  { sort: 'user', head: 'User', width: 'minmax(130px, 2fr)', cell: (row) => row.user ?? 'not logged in' },
  { sort: 'protocol', head: 'Protocol', width: 'minmax(130px, 1fr)', cell: traits },
  { sort: 'address', head: 'Address', width: 'minmax(150px, 1fr)', cell: (row) => row.address ?? '–' },
  { sort: 'bytesIn', head: 'In', width: '90px', isNumber: true, cell: (row) => bytes(row.bytesIn) },
  { sort: 'bytesOut', head: 'Out', width: '90px', isNumber: true, cell: (row) => bytes(row.bytesOut) },
  {
    sort: 'outboxBytes',
    head: 'Waiting',
    width: '120px',
    isNumber: true,
    cell: (row) => <span class={row.lagging || row.outboxBytes > 0 ? 'bad' : ''}>{`${bytes(row.outboxBytes)}${row.lagging ? ', lagging' : ''}`}</span>,
  },
  { sort: 'subscriptions', head: 'Subscriptions', width: '120px', isNumber: true, cell: (row) => count(row.subscriptions ?? 0) },
];

export function Connections({ server, parameters, onRevoke }: { server: Server; parameters: Parameters; onRevoke: (user: string) => void }) {
  const { search = '', slow = '', sort = SORT, open = '' } = parameters;
  const { page, first, problem, onScroll } = useListPart<Page>(server, '/connections', { search, slow, sort }, REFRESH_MS);

  return (
    <section aria-labelledby="connections">
      <h2 id="connections">Connections</h2>
      <form class="bar" onSubmit={(event) => event.preventDefault()}>
        <label>
          User or address
          <input value={search} onInput={(event) => refine({ search: event.currentTarget.value })} autocomplete="off" />
        </label>
        <label class="check">
          <input type="checkbox" checked={slow !== ''} onChange={(event) => refine({ slow: event.currentTarget.checked ? '1' : '' })} /> only slow readers
        </label>
        <span class="quiet" role="status">
          {page ? `${count(page.total)} connections${page.complete ? '' : ' and more'}` : ''}
        </span>
      </form>
      <p class="problem" role="alert">
        {problem}
      </p>
      {open !== '' && <ConnectionCard key={open} server={server} id={open} onRevoke={onRevoke} onClose={() => visit('connections', { ...parameters, open: '' })} />}
      <Table
        label="Connections"
        columns={COLUMNS}
        total={page?.total ?? 0}
        rows={page?.connections ?? []}
        first={first}
        idOf={(row) => row.id}
        sort={sort}
        onSort={(sort) => refine({ sort })}
        onScroll={onScroll}
        onOpen={(row) => visit('connections', { ...parameters, open: row.id })}
        open={open}
      />
      {page?.total === 0 && <p class="quiet">No connection matches.</p>}
    </section>
  );
}
