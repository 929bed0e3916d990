// Revoked users and credentials, and a form to revoke another one.

import { useEffect, useState } from 'preact/hooks';
import { refine } from './address.ts';
import { useConfirm } from './confirm.tsx';
import { date } from './figures.ts';
import { reason, type Server } from './server.ts';
import { sorted, Table, type Column } from './table.tsx';

interface Revocation {
  kind: string;
  name: string;
  since: number;
  until: number | null;
}

interface RevocationsProps {
  server: Server;
  /** The user in the form. */
  wanted: string;
  sort: string | undefined;
}

const VALUES: Record<string, (row: Revocation) => string | number> = {
  name: (row) => row.name,
  kind: (row) => row.kind,
  since: (row) => row.since,
  until: (row) => row.until ?? Infinity,
};

export function Revocations({ server, wanted, sort = '-since' }: RevocationsProps) {
  const [revocations, setRevocations] = useState<Revocation[]>([]);
  const [kind, setKind] = useState('user');
  const [name, setName] = useState(wanted);
  const [notice, setNotice] = useState('');

  const load = async (): Promise<void> => {
    try {
      setRevocations((await server.ask<{ revocations: Revocation[] }>('GET', '/v1/revocations')).revocations);
    } catch (error) {
      setNotice(reason(error));
    }
  };
  useEffect(() => void load(), []);

  const [question, confirm] = useConfirm();
  const askBack = (event: SubmitEvent): void => {
    event.preventDefault();
    confirm({
      text: `Revoke the ${kind} ${name}? Its sessions end, and the server refuses its logins until the revocation is lifted.`,
      action: 'Revoke',
      run: revoke,
    });
  };

  const revoke = async (): Promise<void> => {
    try {
      await server.ask('POST', '/v1/revocations', { [kind]: name });
      setNotice(`${kind} ${name} is revoked.`);
      setName('');
    } catch (error) {
      setNotice(reason(error));
    }
    await load();
  };

  const lift = async (revocation: Revocation): Promise<void> => {
    try {
      await server.answer('DELETE', `/v1/revocations/${revocation.kind}/${encodeURIComponent(revocation.name)}`);
      setNotice(`${revocation.kind} ${revocation.name} may log in again.`);
    } catch (error) {
      setNotice(reason(error));
    }
    await load();
  };

  const columns: ReadonlyArray<Column<Revocation>> = [
    { sort: 'name', head: 'Name', width: 'minmax(150px, 2fr)', cell: (row) => row.name },
    { sort: 'kind', head: 'Kind', width: '110px', cell: (row) => row.kind },
    { sort: 'since', head: 'Since', width: 'minmax(190px, 1fr)', cell: (row) => date(row.since) },
    { sort: 'until', head: 'Until', width: 'minmax(190px, 1fr)', cell: (row) => (row.until === null ? 'no end' : date(row.until)) },
    {
      head: 'Action',
      width: '80px',
      cell: (row) => (
        <button type="button" aria-label={`Lift ${row.kind} ${row.name}`} onClick={() => confirm({ text: `Lift the revocation of the ${row.kind} ${row.name}? It may log in again.`, action: 'Lift', run: () => lift(row) })}>
          Lift
        </button>
      ),
    },
  ];
  return (
    <section aria-labelledby="revocations">
      <h2 id="revocations">Revoke</h2>
      {question}
      <form class="card fields" onSubmit={askBack}>
        <label>
          What
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
            <option value="user">a user</option>
            <option value="token">a token, by its id</option>
            <option value="key">a key of a back end, by its id</option>
            <option value="certificate">a certificate, by its serial number</option>
          </select>
        </label>
        <label>
          User id, or id
          <input required value={name} onInput={(event) => setName(event.currentTarget.value)} autocomplete="off" />
        </label>
        <button>Revoke: end its sessions and keep it out</button>
      </form>
      <p class="notice" role="status">
        {notice}
      </p>
      <Table
        label="Revocations"
        columns={columns}
        total={revocations.length}
        rows={sorted(revocations, sort, VALUES)}
        idOf={(row) => `${row.kind} ${row.name}`}
        sort={sort}
        onSort={(sort) => refine({ sort })}
      />
      {revocations.length === 0 && <p class="quiet">Nothing is revoked.</p>}
    </section>
  );
}
