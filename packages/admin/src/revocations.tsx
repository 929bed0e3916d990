// Revoked users and credentials, and a form to revoke another one.

import { useEffect, useState } from 'preact/hooks';
import { reason, type Server } from './server.ts';

interface Revocation {
  kind: string;
  name: string;
  since: number;
  until: number | null;
}

export function Revocations({ server, wanted }: { server: Server; wanted: string }) {
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

  const revoke = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
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

  return (
    <section aria-labelledby="revocations">
      <h2 id="revocations">Revoke</h2>
      <form class="card fields" onSubmit={revoke}>
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
      <ul class="rows" aria-label="Revocations">
        {revocations.map((revocation) => (
          <li class="card" key={`${revocation.kind} ${revocation.name}`}>
            <strong class="name">{revocation.name}</strong>
            <span>
              {revocation.kind}, since {new Date(revocation.since * 1000).toLocaleString()}
              {revocation.until === null ? '' : `, until ${new Date(revocation.until * 1000).toLocaleString()}`}
            </span>
            <button type="button" onClick={() => lift(revocation)}>
              Lift
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
