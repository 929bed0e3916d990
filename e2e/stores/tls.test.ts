// TLS between the server and its database: the server verifies the certificate and refuses an invalid one with a reason.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { Authority } from '../harness/certificate.ts';
import { connect } from '../harness/client.ts';
import { Database, type DatabaseKind } from '../harness/database.ts';
import { Server, type ServerOptions } from '../harness/server.ts';

const STORES: Array<[kind: DatabaseKind, section: string, path: string]> = [
  ['postgres', 'postgres', '/postgres?sslmode=require'],
  ['redis', 'redis', '/0'],
  ['valkey', 'redis', '/0'],
];
const LOOPBACK = 'DNS:localhost,IP:127.0.0.1';

for (const [kind, section, path] of STORES) {
  describe(`a ${kind} that accepts TLS only`, () => {
    /** Starts a database whose certificate has these names; returns also options of a server that trusts an authority. */
    async function started(t: TestContext, names = LOOPBACK): Promise<{ url: string; options: (trusted: Authority) => ServerOptions; own: Authority }> {
      const own = new Authority(t);
      const tls = own.issue('database', { names, usage: 'serverAuth' });
      const database = await Database.during(t, kind, { tls });
      const options = (trusted: Authority): ServerOptions => {
        const ca = join(database.folder, `${trusted === own ? 'own' : 'other'}-ca.pem`);
        writeFileSync(ca, trusted.certificate);
        return { store: { kind: section, timeout: '3s', [section]: { url: database.url + path, ca } } };
      };
      return { url: database.url, options, own };
    }

    test('keeps records for a server that trusts its authority', async (t) => {
      const { options, own } = await started(t);
      const server = await Server.during(t, options(own));
      const client = await connect(t, server, { errors: ['CONNECTION_ERROR'] });
      await client.record.setDataWithAck('kept', { n: 1 });
      await server.kill();
      await server.start();
      const reader = await connect(t, server);
      assert.deepEqual(await reader.record.snapshot('kept'), { n: 1 });
    });

    test('is refused by a server that trusts another authority', async (t) => {
      const { options } = await started(t);
      await assert.rejects(Server.start(options(new Authority(t))), /ended with 4 while starting:\n(.*\n)*.*can't be used: its certificate is not accepted.*as `ca` of the store/);
    });

    test('is refused if its certificate is of another name', async (t) => {
      const { options, own } = await started(t, 'DNS:db.example.com');
      await assert.rejects(Server.start(options(own)), /ended with 4 while starting:\n(.*\n)*.*can't be used: its certificate is not accepted.*use a name of its certificate/);
    });
  });
}

test('a server without TLS reports that a PostgreSQL requires it', async (t) => {
  const tls = new Authority(t).issue('database', { names: LOOPBACK, usage: 'serverAuth' });
  const database = await Database.during(t, 'postgres', { tls });
  const postgres = { url: `${database.url}/postgres?sslmode=disable` };
  await assert.rejects(
    Server.start({ store: { kind: 'postgres', postgres } }),
    /ended with 4 while starting:\n(.*\n)*.*no encryption/,
  );
});
