// One connection: its state, its subscriptions, and the actions that end it.

import { useState } from 'preact/hooks';
import { visit } from './address.ts';
import { useConfirm } from './confirm.tsx';
import { bytes, count } from './figures.ts';
import { useListPart, useLoaded } from './loaded.ts';
import { reason, Refused, type Server } from './server.ts';
import { Table, type Column } from './table.tsx';

export interface Connection {
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

const REFRESH_MS = 2_000;

/** The protocol, and how the connection differs from others. */
export function traits(row: Connection): string {
  return [row.operator ? 'operator' : '', row.protocol, row.encrypted ? 'TLS' : '', row.compressed ? 'compressed' : ''].filter((word) => word !== '').join(', ');
}

interface CardProps {
  server: Server;
  id: string;
  onRevoke: (user: string) => void;
  onClose: () => void;
}

export function ConnectionCard({ server, id, onRevoke, onClose }: CardProps) {
  const ask = async (): Promise<Connection | null> => {
    try {
      return await server.ask<Connection>('GET', `/connections/${encodeURIComponent(id)}`);
    } catch (error) {
      // The last values stay out of sight: they belong to a connection that has ended.
      if (error instanceof Refused && error.status === 404) return null;
      throw error;
    }
  };
  const { value: row, problem } = useLoaded(ask, [id], REFRESH_MS);
  const [refusal, setRefusal] = useState('');
  const [question, confirm] = useConfirm();
  const disconnect = async (): Promise<void> => {
    try {
      await server.answer('DELETE', `/connections/${encodeURIComponent(id)}`);
      setRefusal('');
    } catch (error) {
      setRefusal(reason(error));
    }
  };
  const who = row?.user ?? 'a client that is not logged in';
  return (
    <div class="card one" role="group" aria-label="One connection">
      <h3 class="name">{row === null ? 'This connection has ended.' : (row?.user ?? 'not logged in')}</h3>
      <p class="problem" role="alert">
        {refusal || problem}
      </p>
      {question}
      {row && (
        <dl class="facts">
          <Fact name="Protocol" value={traits(row)} />
          <Fact name="Address" value={row.address ?? 'not known'} />
          <Fact name="Received" value={bytes(row.bytesIn)} />
          <Fact name="Sent" value={bytes(row.bytesOut)} />
          <Fact name="Waiting" value={`${bytes(row.outboxBytes)}${row.lagging ? ', lagging' : ''}`} />
          <Fact name="Subscriptions" value={count(row.subscriptions ?? 0)} />
        </dl>
      )}
      {row && <Subscriptions server={server} id={id} />}
      <div class="bar">
        {row && (
          <button type="button" onClick={() => visit('live-tail', { connection: id, on: '1' })}>
            Live tail
          </button>
        )}
        {row && (
          <button
            type="button"
            onClick={() =>
              confirm({
                text: `Close this connection of ${who}? Its session ends. The client may connect and log in again at once.`,
                action: 'Disconnect',
                run: disconnect,
              })
            }
          >
            Disconnect …
          </button>
        )}
        {row && row.user !== null && !row.operator && (
          <button type="button" onClick={() => onRevoke(row.user as string)}>
            Revoke …
          </button>
        )}
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </div>
  );
}

interface Subscription {
  kind: string;
  name: string;
}

interface SubscriptionPage {
  subscriptions: Subscription[];
  total: number;
  complete: boolean;
}

const COLUMNS: ReadonlyArray<Column<Subscription>> = [
  { sort: 'name', head: 'Name', width: 'minmax(140px, 45vw)', cell: (row) => row.name || 'all users' },
  { sort: 'kind', head: 'Kind', width: 'minmax(130px, 1fr)', cell: (row) => row.kind },
];

/** The names that the session is subscribed to, the rpcs that it provides, and the patterns that it listens with. */
function Subscriptions({ server, id }: { server: Server; id: string }) {
  const [sort, setSort] = useState('name');
  const [search, setSearch] = useState('');
  const { page, first, problem, onScroll } = useListPart<SubscriptionPage>(server, `/connections/${encodeURIComponent(id)}/subscriptions`, { sort, search }, REFRESH_MS);
  return (
    <>
      <div class="bar">
        <label>
          Part of a name
          <input value={search} onInput={(event) => setSearch(event.currentTarget.value)} autocomplete="off" />
        </label>
        <span class="quiet" role="status">
          {page ? `${count(page.total)} subscriptions${page.complete ? '' : ' and more'}` : ''}
        </span>
      </div>
      <p class="problem" role="alert">
        {problem}
      </p>
      <Table
        label="Subscriptions"
        columns={COLUMNS}
        total={page?.total ?? 0}
        rows={page?.subscriptions ?? []}
        first={first}
        idOf={(row) => `${row.kind} ${row.name}`}
        sort={sort}
        onSort={setSort}
        onScroll={onScroll}
      />
    </>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class="name">{value}</dd>
    </div>
  );
}
